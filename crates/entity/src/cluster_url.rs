//! Address and settings of a cluster: `cassandra://HOST[:PORT],HOST/KEYSPACE[?create=...]`; and the authentication
//! between its nodes and this process.
//!
//! Place: `cli` reads it from `--store`, in every build, so that one without the feature `distributed` can report that
//! it is missing; `cluster` connects by it.

use std::fmt;
use std::str::FromStr;

use millpond_io::tls::{CertificateFiles, Trust};

/// Default port of the nodes.
const PORT: u16 = 9042;

/// Default number of partitions of a keyspace.
pub const BUCKETS_DEFAULT: u16 = 64;

/// A range read asks all of them.
pub const BUCKETS_MAX: u16 = 4096;

const SCHEME: &str = "cassandra://";

/// A keyspace, and some of its nodes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterUrl {
    /// `HOST:PORT` of those to ask first.
    pub nodes: Vec<String>,
    /// The keyspace with the tables.
    pub keyspace: String,
    /// Make the keyspace and its tables if they are missing, with so many copies of everything.
    pub create: Option<u16>,
    /// Into how many partitions ids are dealt out; a keyspace keeps what it was made with.
    pub buckets: Option<u16>,
    /// Whether writes may be conditional; fixed when the keyspace is created.
    pub conditions: Option<bool>,
}

/// The text is no such thing.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ClusterUrlError {
    /// Another engine, or none.
    #[error(
        "unknown store {text:?}: use cassandra://HOST,HOST/KEYSPACE, or leave --store out and keep the \
         data in --data"
    )]
    Scheme {
        /// The text given.
        text: String,
    },
    /// No host, an empty one, or a port that is none.
    #[error("bad node {text:?}: write cassandra://HOST,HOST:PORT/KEYSPACE")]
    Node {
        /// The text given.
        text: String,
    },
    /// It would be visible in the process list. No message repeats the text.
    #[error(
        "a user or password does not belong in the URL, which others can read: give --store-user NAME and \
         --store-password-file FILE"
    )]
    Login,
    /// Not a name that needs no quotes.
    #[error("bad keyspace {text:?}: use 1 to 48 small letters, digits and _, a letter first")]
    Keyspace {
        /// The text given.
        text: String,
    },
    /// Unknown, or a value that it cannot have.
    #[error(
        "bad setting {text:?}: use create=COPIES (1 to 100), buckets=N (1 to {BUCKETS_MAX}) and \
         conditions=on|off, with & between them"
    )]
    Setting {
        /// The text given.
        text: String,
    },
}

impl FromStr for ClusterUrl {
    type Err = ClusterUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text
            .strip_prefix(SCHEME)
            .ok_or_else(|| ClusterUrlError::Scheme {
                text: text.to_owned(),
            })?;
        let (rest, settings) = rest.split_once('?').unwrap_or((rest, ""));
        if rest.contains('@') {
            return Err(ClusterUrlError::Login);
        }
        let (nodes, keyspace) = rest.split_once('/').unwrap_or((rest, ""));
        if !is_name(keyspace) {
            return Err(ClusterUrlError::Keyspace {
                text: keyspace.to_owned(),
            });
        }
        let mut url = Self {
            nodes: nodes.split(',').map(node).collect::<Result<_, _>>()?,
            keyspace: keyspace.to_owned(),
            create: None,
            buckets: None,
            conditions: None,
        };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            url.set(setting).ok_or_else(|| ClusterUrlError::Setting {
                text: setting.to_owned(),
            })?;
        }
        Ok(url)
    }
}

impl ClusterUrl {
    /// The hosts of its nodes, without ports and brackets.
    #[must_use]
    pub fn hosts(&self) -> Vec<String> {
        let hosts = self.nodes.iter().filter_map(|node| node.rsplit_once(':'));
        let bare = hosts.map(|(host, _)| host.trim_matches(['[', ']']).to_owned());
        bare.collect()
    }

    fn set(&mut self, setting: &str) -> Option<()> {
        let (name, value) = setting.split_once('=')?;
        let number = |max: u16| {
            let number = value.parse().ok();
            number.filter(|number| (1..=max).contains(number))
        };
        match name {
            "create" => self.create = Some(number(100)?),
            "buckets" => self.buckets = Some(number(BUCKETS_MAX)?),
            "conditions" => {
                self.conditions = Some(match value {
                    "on" => true,
                    "off" => false,
                    _ => return None,
                });
            }
            _ => return None,
        }
        Some(())
    }
}

/// As it has to be written to mean the same, but for settings.
impl fmt::Display for ClusterUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{SCHEME}{}/{}",
            self.nodes.join(","),
            self.keyspace
        )
    }
}

/// Authentication between the nodes and this process. The default: none, in plaintext.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClusterSecurity {
    /// For nodes that require a password.
    pub login: Option<ClusterLogin>,
    /// How TLS is spoken with the nodes.
    pub tls: Option<ClusterTls>,
}

/// The account this process signs in with.
#[derive(Clone, Eq, PartialEq)]
pub struct ClusterLogin {
    /// A role that may log in.
    pub user: String,
    /// Its password. Without TLS the nodes get it in plaintext.
    pub password: String,
}

/// Without the password: debug output ends up in logs.
impl fmt::Debug for ClusterLogin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("ClusterLogin");
        fields.field("user", &self.user).finish_non_exhaustive()
    }
}

/// The trusted certificates, and the one of this process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterTls {
    /// The authorities that sign the nodes' certificates.
    pub trust: Trust,
    /// For nodes that require a certificate.
    pub identity: Option<CertificateFiles>,
    /// Accept a certificate for any host: for nodes whose certificates name neither their addresses nor hosts of the
    /// URL.
    pub any_host: bool,
}

/// The port is added where it is missing; an IPv6 address is in brackets.
fn node(text: &str) -> Result<String, ClusterUrlError> {
    let bad = || ClusterUrlError::Node {
        text: text.to_owned(),
    };
    let is_whole = text.ends_with(']');
    let (host, port) = match text.rsplit_once(':').filter(|_| !is_whole) {
        None => (text, PORT),
        Some((host, port)) => (host, port.parse().map_err(|_| bad())?),
    };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let is_plain = !host.contains(['[', ']', ':', '@']);
    let is_shown = host.chars().all(|letter| letter.is_ascii_graphic());
    match !host.is_empty() && is_shown && (is_bracketed || is_plain) {
        true => Ok(format!("{host}:{port}")),
        false => Err(bad()),
    }
}

/// Names that need no quotes, and are therefore the same in every statement.
fn is_name(text: &str) -> bool {
    let is_inner = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    text.len() <= 48
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.as_bytes().iter().all(is_inner)
}

#[cfg(test)]
#[path = "tests/cluster_url.rs"]
mod tests;

//! Which protocols may take a connection over, and whether an upstream changed to the one it was asked for.
//!
//! An upstream is asked for one protocol: the first of the client's that is allowed. So 101 has one right
//! meaning, and an upstream cannot make the client's connection speak what nobody allowed.

use crate::client::AnswerHead;
use crate::head_text::{FieldName, FieldValue};
use crate::request::Request;
use std::fmt;
use std::str::FromStr;

/// Names in one list; each costs a comparison with each protocol that a client offers.
const PROTOCOLS_MAX: usize = 8;

/// Protocols that may take a connection over, by their names in `Upgrade`. By default there are none.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UpgradeProtocols {
    names: Vec<String>,
}

impl UpgradeProtocols {
    /// WebSocket alone (RFC 6455).
    #[must_use]
    pub fn websocket() -> Self {
        Self {
            names: vec!["websocket".to_owned()],
        }
    }

    fn has(&self, protocol: &[u8]) -> bool {
        let mut names = self.names.iter();
        names.any(|name| protocol.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// The first protocol that the client offers and that is allowed.
    pub(super) fn first_of<'h>(&self, request: &Request<'h>) -> Option<FieldValue<'h>> {
        if self.names.is_empty() {
            return None;
        }
        let upgrade = FieldName::UPGRADE.as_bytes();
        let fields = request.fields.spans().iter();
        let offered =
            fields.filter(|field| field.name.of(request.bytes).eq_ignore_ascii_case(upgrade));
        let mut offered = offered
            .flat_map(|field| field.value.of(request.bytes).split(|&byte| byte == b','))
            .map(<[u8]>::trim_ascii);
        // A part of a value that was checked, and as good.
        offered.find(|it| self.has(it)).map(FieldValue::known)
    }
}

/// Whether 101 is for the protocol that was asked for, and for it alone (RFC 9110 7.8).
pub(super) fn is_agreed(asked: Option<&[u8]>, answer: &AnswerHead<'_>) -> bool {
    let upgrade = FieldName::UPGRADE.as_bytes();
    let fields = answer.fields.spans().iter();
    let mut told = fields.filter(|field| field.name.of(answer.bytes).eq_ignore_ascii_case(upgrade));
    let (first, second) = (told.next(), told.next());
    let told = first.map(|field| field.value.of(answer.bytes).trim_ascii());
    match (asked, told, second) {
        (Some(asked), Some(told), None) => asked.eq_ignore_ascii_case(told),
        _ => false,
    }
}

/// A protocol that may not take a connection over.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UpgradeProtocolsError {
    /// No name, or one that no `Upgrade` can have.
    #[error("{name:?} is no protocol: write its name in Upgrade, e.g. websocket")]
    Malformed {
        /// As it was given.
        name: String,
    },
    /// Requests inside of it would pass by all that the proxy checks.
    #[error(
        "{name} cannot be let through: requests inside of it would reach the upstream unchecked"
    )]
    CarriesRequests {
        /// As it was given.
        name: String,
    },
    /// More than are compared.
    #[error("{count} protocols are too many: name at most {PROTOCOLS_MAX}")]
    TooMany {
        /// How many.
        count: usize,
    },
}

impl FromStr for UpgradeProtocols {
    type Err = UpgradeProtocolsError;

    /// Names with commas between them.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        for name in &names {
            let is_name = |byte: u8| crate::scan::is_token(byte) || byte == b'/';
            let name = name.clone();
            if name.is_empty() || !name.bytes().all(is_name) {
                return Err(UpgradeProtocolsError::Malformed { name });
            }
            let protocol = name.split('/').next().unwrap_or_default();
            let carriers = ["h2c", "h2", "http", "tls"];
            if carriers.iter().any(|it| protocol.eq_ignore_ascii_case(it)) {
                return Err(UpgradeProtocolsError::CarriesRequests { name });
            }
        }
        match names.len() {
            0..=PROTOCOLS_MAX => Ok(Self { names }),
            count => Err(UpgradeProtocolsError::TooMany { count }),
        }
    }
}

impl fmt::Display for UpgradeProtocols {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a list is what it says, and what would carry requests past the proxy is refused.
    #[test]
    fn lists_are_read() {
        for text in ["websocket", "websocket,irc/6.9", "a,b,c,d,e,f,g,h"] {
            assert_eq!(text.parse::<UpgradeProtocols>().unwrap().to_string(), text);
        }
        for (text, part) in [
            ("", "no protocol"),
            ("websocket,", "no protocol"),
            ("web socket", "no protocol"),
            ("h2c", "unchecked"),
            ("websocket, HTTP/2.0", "unchecked"),
            ("TLS/1.0", "unchecked"),
            ("a,b,c,d,e,f,g,h,i", "at most 8"),
        ] {
            let error = text.parse::<UpgradeProtocols>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

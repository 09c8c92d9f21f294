//! Why requests of a load run failed: a kind, how often, and the first of each as an example.

use serde::{Deserialize, Serialize};

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadFailureKind {
    /// A connection was not opened.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// A request could not be sent.
    Write,
    /// The connection ended before the answer was complete.
    Read,
    /// The answer is no well-formed HTTP.
    Framing,
    /// The answer is larger than the generator takes.
    Limit,
    /// No answer came in time.
    Timeout,
    /// The answer's status is wrong.
    Status,
    /// The answer's content is wrong.
    Content,
}

impl LoadFailureKind {
    /// All, in the order of [`Self::index`].
    pub const ALL: [Self; 9] = [
        Self::Connect,
        Self::Tls,
        Self::Write,
        Self::Read,
        Self::Framing,
        Self::Limit,
        Self::Timeout,
        Self::Status,
        Self::Content,
    ];

    /// Its place among all.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// As it is printed and written.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Write => "write",
            Self::Read => "read",
            Self::Framing => "framing",
            Self::Limit => "limit",
            Self::Timeout => "timeout",
            Self::Status => "status",
            Self::Content => "content",
        }
    }
}

/// The first failure of a kind.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadFailureExample {
    /// When, since sending began; 0: before.
    pub at_ns: u64,
    /// On which connection, from 0.
    pub connection: u64,
    /// What happened.
    pub what: String,
    /// The first bytes of what arrived with it, escaped; empty if nothing did.
    pub bytes: String,
}

/// Failures of one kind.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct LoadFailure {
    /// Which.
    pub kind: LoadFailureKind,
    /// How many.
    pub count: u64,
    /// The first of them, as far as it was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<LoadFailureExample>,
}

impl LoadFailure {
    /// In a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        let mut text = format!("{} {}", self.kind.label(), self.count);
        if let Some(first) = &self.first {
            let seconds = first.at_ns as f64 / 1e9;
            text += &format!(
                ", the first after {seconds:.3} s on connection {}: {}",
                first.connection, first.what
            );
            if !first.bytes.is_empty() {
                text += &format!("; it came with \"{}\"", first.bytes);
            }
        }
        text
    }
}

//! Fields that the operator sets, adds or removes, of requests to upstreams and of their answers.
//!
//! A change cannot touch what frames a message, what is about one connection, or what the proxy says itself:
//! these would make two sides disagree. Where nothing is changed, a head costs one look at an empty list.

use super::field_rule::{FieldRule, is_same_name};
use crate::head_text::{FieldName, FieldValue};
use std::fmt;
use std::str::FromStr;

/// Changes of one direction: each costs a comparison with each field.
const CHANGES_MAX: usize = 32;
/// Bytes of all lines that they write.
const LINES_BYTES_MAX: usize = 4096;

/// One change, as it is written: `NAME: VALUE`, `+NAME: VALUE` or `-NAME`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FieldChange {
    /// Replaces all fields of this name.
    Set(String, String),
    /// Behind the others.
    Add(String, String),
    /// All fields of this name.
    Remove(String),
}

/// A change that cannot be made.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FieldChangeError {
    /// Not one of the three forms, or a byte that no field has.
    #[error(
        "{text:?} is no change of a field: write NAME: VALUE to set it, +NAME: VALUE to add it, or -NAME to \
         remove it"
    )]
    Malformed {
        /// As it was given.
        text: String,
    },
    /// The proxy writes it, or it is about one connection.
    #[error("{name} cannot be changed: it is about the connection, or the proxy writes it itself")]
    Reserved {
        /// The field.
        name: String,
    },
    /// A `*`, which is a character of names: nobody has such a field.
    #[error("{name} is the name of one field, not a pattern: name each field by itself")]
    Pattern {
        /// What was given.
        name: String,
    },
    /// More than are compared with each field.
    #[error("{count} changes of fields are too many: give at most {CHANGES_MAX}")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// More bytes than a head has room for.
    #[error(
        "the fields that are set have {bytes} bytes: they can have at most {LINES_BYTES_MAX} together"
    )]
    TooLong {
        /// How many.
        bytes: usize,
    },
}

impl FromStr for FieldChange {
    type Err = FieldChangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || FieldChangeError::Malformed {
            text: text.to_owned(),
        };
        let (kind, rest) = match text.as_bytes().first() {
            Some(b'+') => ('+', &text[1..]),
            Some(b'-') => ('-', &text[1..]),
            _ => ('=', text),
        };
        let (name, value) = match (kind, rest.split_once(':')) {
            ('-', None) => (rest, ""),
            ('+' | '=', Some((name, value))) => (name, value.trim_matches([' ', '\t'])),
            _ => return Err(malformed()),
        };
        // First: a name that frames a message is no name of a field to be written either.
        if FieldRule::of(name.as_bytes()) != FieldRule::PassOn {
            return Err(FieldChangeError::Reserved {
                name: name.to_owned(),
            });
        }
        if FieldName::new(name).is_err() || FieldValue::new(value).is_err() {
            return Err(malformed());
        }
        let (name, value) = (name.to_owned(), value.to_owned());
        if name.contains('*') {
            return Err(FieldChangeError::Pattern { name });
        }
        Ok(match kind {
            '-' => Self::Remove(name),
            '+' => Self::Add(name, value),
            _ => Self::Set(name, value),
        })
    }
}

impl fmt::Display for FieldChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(name, value) => write!(formatter, "{name}: {value}"),
            Self::Add(name, value) => write!(formatter, "+{name}: {value}"),
            Self::Remove(name) => write!(formatter, "-{name}"),
        }
    }
}

/// All changes of one direction, ready to be made.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FieldChanges {
    /// Names of fields that do not pass.
    dropped: Vec<String>,
    /// What is written behind the others, each line with its end.
    lines: Vec<u8>,
}

impl FieldChanges {
    /// Nothing is changed.
    pub(super) const fn none() -> Self {
        Self {
            dropped: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// In this order.
    ///
    /// # Errors
    /// When there are too many, or their lines are too long.
    pub fn new(changes: &[FieldChange]) -> Result<Self, FieldChangeError> {
        if changes.len() > CHANGES_MAX {
            return Err(FieldChangeError::TooMany {
                count: changes.len(),
            });
        }
        let mut all = Self::default();
        for change in changes {
            if let FieldChange::Set(name, _) | FieldChange::Remove(name) = change {
                all.dropped.push(name.clone());
            }
            if let FieldChange::Set(name, value) | FieldChange::Add(name, value) = change {
                for part in [name, ": ", value, "\r\n"] {
                    all.lines.extend_from_slice(part.as_bytes());
                }
            }
        }
        match all.lines.len() {
            0..=LINES_BYTES_MAX => Ok(all),
            bytes => Err(FieldChangeError::TooLong { bytes }),
        }
    }

    /// Whether a field that came does not pass.
    #[inline]
    pub(super) fn drops(&self, name: &[u8]) -> bool {
        let mut dropped = self.dropped.iter();
        dropped.any(|it| is_same_name(it.as_bytes(), name))
    }

    /// What stands behind the fields that pass.
    pub(super) fn lines(&self) -> &[u8] {
        &self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is written is what it says, and nothing can be changed on which two sides could disagree.
    #[test]
    fn changes_are_read() {
        for text in ["X-A: b", "X-A: ", "+Set-Cookie: a=b; Path=/", "-Server"] {
            assert_eq!(text.parse::<FieldChange>().unwrap().to_string(), text);
        }
        for (text, part) in [
            ("", "is no change"),
            ("X-A", "is no change"),
            ("-X-A: b", "is no change"),
            ("X A: b", "is no change"),
            ("X-A: b\r\nX: c", "is no change"),
            ("Content-Length: 5", "cannot be changed"),
            ("-transfer_encoding", "cannot be changed"),
            ("Connection: x", "cannot be changed"),
            ("+Host: x", "cannot be changed"),
            ("X-Forwarded-For: 1.1.1.1", "cannot be changed"),
            ("-Via", "cannot be changed"),
            ("-X-*", "not a pattern"),
            ("X-A: b\r", "is no change"),
        ] {
            let error = text.parse::<FieldChange>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let many = vec![FieldChange::Remove("X".to_owned()); CHANGES_MAX + 1];
        assert!(FieldChanges::new(&many).is_err());
        let long = FieldChange::Set("X".to_owned(), "y".repeat(LINES_BYTES_MAX));
        assert!(FieldChanges::new(&[long]).is_err());
    }
}

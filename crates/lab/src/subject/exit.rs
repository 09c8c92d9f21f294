//! How a process ended.

use std::fmt;

use millpond_measure::record::signal_name;

/// How the first process of a target, or a load program, ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// By itself, with this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// The process that was to say it has ended itself.
    Unknown,
}

impl Exit {
    /// True for a program that has done its work, or handed it over to a process in the background.
    #[must_use]
    pub const fn is_well(self) -> bool {
        matches!(self, Self::Status(0))
    }

    /// From the words of the supervisor: `code 3` or `signal 9`.
    pub(super) fn parse(words: &str) -> Option<Self> {
        let (kind, number) = words.split_once(' ')?;
        let number = number.parse().ok()?;
        Some(match kind {
            "code" => Self::Status(number),
            _ => Self::Signal(number),
        })
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Status(status) => write!(f, "exit status {status}"),
            Self::Signal(number) => {
                write!(f, "killed by signal {number}")?;
                signal_name(number).map_or(Ok(()), |name| write!(f, ", {name}"))
            }
            Self::Unknown => write!(f, "its supervisor is gone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an end is told with the name of the signal, where it has one.
    #[test]
    fn ends_are_told() {
        let told = |words| Exit::parse(words).map(|exit| exit.to_string());
        assert_eq!(told("code 3").as_deref(), Some("exit status 3"));
        assert_eq!(
            told("signal 11").as_deref(),
            Some("killed by signal 11, SIGSEGV")
        );
        assert_eq!(told("signal 40").as_deref(), Some("killed by signal 40"));
        assert_eq!(told("code x"), None);
        assert!(Exit::Status(0).is_well() && !Exit::Signal(15).is_well());
    }
}

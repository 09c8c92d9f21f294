//! The mode every pool is built in, and how it is written on a command line.
//!
//! On the path: `--pools` is parsed here once, and every pool of every shard is made with it.
use crate::{Checks, ChecksError};
use std::fmt;
use std::str::FromStr;

/// Whether a pool keeps freed memory, chosen when the pool is made.
///
/// ```
/// use millpond_mempool::{Checks, PoolMode};
/// assert_eq!("arena-only".parse(), Ok(PoolMode::ArenaOnly));
/// assert_eq!("checked".parse(), Ok(PoolMode::Checked(Checks::default())));
/// let mode: PoolMode = "checked,guard,fail=100".parse()?;
/// assert_eq!(mode.to_string(), "checked,guard,fail=100");
/// # Ok::<(), millpond_mempool::PoolModeError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum PoolMode {
    /// Freed memory is kept and reused, newest first.
    #[default]
    On,
    /// Arenas keep and reuse their memory; every other pool is as in [`PoolMode::Off`].
    ArenaOnly,
    /// Every allocation is exactly one malloc and every return exactly one free, through the
    /// global allocator. Same calls, same results; it shows what the pools give.
    Off,
    /// For debugging: what the program does wrong with the memory is caught, and the pool panics
    /// with a [`Violation`](crate::Violation). Many times slower than any other mode, and blocks
    /// take more memory; budgets count what was asked for, as with pools off.
    Checked(Checks),
}

/// A text that names no mode.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolModeError {
    /// The word before the first comma.
    #[error("{text:?} is no mode of the pools: write on, off, arena-only, or checked")]
    UnknownMode {
        /// What was written.
        text: String,
    },
    /// What follows `checked,`.
    #[error(transparent)]
    Checks(#[from] ChecksError),
}

impl PoolMode {
    /// The mode without its options: the value of the metrics label `mode`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::ArenaOnly => "arena-only",
            Self::Off => "off",
            Self::Checked(_) => "checked",
        }
    }

    /// Whether pools of blocks and objects keep what is freed.
    #[must_use]
    pub const fn pools_blocks(self) -> bool {
        matches!(self, Self::On)
    }

    /// Whether arenas keep what is freed.
    #[must_use]
    pub const fn pools_arenas(self) -> bool {
        matches!(self, Self::On | Self::ArenaOnly)
    }
}

impl FromStr for PoolMode {
    type Err = PoolModeError;

    /// `on`, `off`, `arena-only`, `checked`, or `checked` with options after a comma.
    fn from_str(text: &str) -> Result<Self, PoolModeError> {
        match text {
            "on" => Ok(Self::On),
            "arena-only" => Ok(Self::ArenaOnly),
            "off" => Ok(Self::Off),
            "checked" => Ok(Self::Checked(Checks::default())),
            _ => match text.strip_prefix("checked,") {
                // A comma with nothing behind it is a word left out.
                Some("") => Err(PoolModeError::Checks(ChecksError::UnknownOption {
                    option: String::new(),
                })),
                Some(options) => Ok(Self::Checked(options.parse()?)),
                None => Err(PoolModeError::UnknownMode {
                    text: text.to_owned(),
                }),
            },
        }
    }
}

impl fmt::Display for PoolMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())?;
        match self {
            Self::Checked(checks) if *checks != Checks::default() => {
                write!(formatter, ",{checks}")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;

    /// Goal: every mode is read back as it was written.
    #[test]
    fn modes_survive_being_written() {
        let mut modes = vec![PoolMode::On, PoolMode::ArenaOnly, PoolMode::Off];
        for guard_pages in [false, true] {
            for fail_at in [None, NonZeroU64::new(7)] {
                modes.push(PoolMode::Checked(Checks {
                    guard_pages,
                    fail_at,
                }));
            }
        }
        for mode in modes {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
    }

    /// Goal: what is no mode is refused with the modes there are.
    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("yes", "\"yes\" is no mode"),
            ("", "write on, off, arena-only, or checked"),
            ("off,guard", "is no mode"),
            ("checked,", "know no \"\""),
            ("checked,fail=x", "from 1 on"),
            ("checkedguard", "is no mode"),
        ] {
            let sentence = text.parse::<PoolMode>().unwrap_err().to_string();
            assert!(sentence.contains(expected), "{text}: {sentence}");
        }
    }
}

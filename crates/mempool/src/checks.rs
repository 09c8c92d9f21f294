//! What a checked pool does beside its checks, and how that is written on a command line.
//!
//! On the path: `--pools checked,guard,fail=100` becomes these, and the pools built with them keep
//! their blocks in a `checked_memory`.
//! Absent on purpose: switches for poison, canaries, double frees and foreign pointers. They are
//! what the mode is for, and cost too little of a mode that is for debugging.
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// What a pool in [`PoolMode::Checked`](crate::PoolMode::Checked) does beside its checks.
///
/// Poison, canaries on both sides, double free, foreign pointer and wrong size are always on.
///
/// ```
/// use millpond_mempool::Checks;
/// let checks: Checks = "guard,fail=100".parse()?;
/// assert!(checks.guard_pages);
/// assert_eq!(checks.to_string(), "guard,fail=100");
/// # Ok::<(), millpond_mempool::ChecksError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Checks {
    /// Every block lies against a page that nobody may touch, and becomes one when it is freed: a
    /// stray access faults at the very instruction. Costs at least a page and a few system calls
    /// for each block.
    pub guard_pages: bool,
    /// The pool refuses this allocation, counted from 1, and no other.
    pub fail_at: Option<NonZeroU64>,
}

/// A word that is no option of checked pools.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ChecksError {
    /// An option nobody knows.
    #[error("checked pools know no {option:?}: write guard, fail=N, or both with a comma")]
    UnknownOption {
        /// The word.
        option: String,
    },
    /// What `fail=` is followed by counts nothing.
    #[error("fail={text:?} names no allocation: write a whole number from 1 on")]
    BadNumber {
        /// What follows the sign.
        text: String,
    },
    /// The same option twice.
    #[error("{option} is given twice: leave one out")]
    Repeated {
        /// The option.
        option: &'static str,
    },
}

impl FromStr for Checks {
    type Err = ChecksError;

    /// Options with commas between them; none at all is what is always on.
    fn from_str(text: &str) -> Result<Self, ChecksError> {
        let mut checks = Self::default();
        for option in text.split(',').filter(|_| !text.is_empty()) {
            if option == "guard" {
                if checks.guard_pages {
                    return Err(ChecksError::Repeated { option: "guard" });
                }
                checks.guard_pages = true;
            } else if let Some(number) = option.strip_prefix("fail=") {
                if checks.fail_at.is_some() {
                    return Err(ChecksError::Repeated { option: "fail" });
                }
                let number = number.parse().map_err(|_| ChecksError::BadNumber {
                    text: number.to_owned(),
                })?;
                checks.fail_at = Some(number);
            } else {
                return Err(ChecksError::UnknownOption {
                    option: option.to_owned(),
                });
            }
        }
        Ok(checks)
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comma = match (self.guard_pages, self.fail_at) {
            (true, Some(_)) => ",",
            _ => "",
        };
        if self.guard_pages {
            write!(formatter, "guard{comma}")?;
        }
        match self.fail_at {
            Some(number) => write!(formatter, "fail={number}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is written is read back the same, whatever the options and their order.
    #[test]
    fn options_survive_being_written() {
        for guard_pages in [false, true] {
            for fail_at in [None, NonZeroU64::new(1), Some(NonZeroU64::MAX)] {
                let checks = Checks {
                    guard_pages,
                    fail_at,
                };
                assert_eq!(checks.to_string().parse(), Ok(checks), "{checks}");
            }
        }
        assert_eq!("fail=3,guard".parse(), "guard,fail=3".parse::<Checks>());
    }

    /// Goal: mistakes are refused by name, with what to write instead.
    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("guards", "know no \"guards\""),
            ("guard,", "know no \"\""),
            ("fail=0", "fail=\"0\""),
            ("fail=", "from 1 on"),
            ("fail=-1", "from 1 on"),
            ("guard,guard", "guard is given twice"),
            ("fail=1,fail=2", "fail is given twice"),
        ] {
            let sentence = text.parse::<Checks>().unwrap_err().to_string();
            assert!(sentence.contains(expected), "{text}: {sentence}");
        }
    }
}

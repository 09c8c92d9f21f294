//! Which driver a shard gets: asked for, or the best this kernel allows.
//!
//! Chosen once, before any shard's thread starts: the path from a shard to its driver has no
//! branch and no pointer to functions in it.

use super::features::DriverFeatures;
use super::uring::{UringUnavailable, probe};
use crate::error::IoError;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

/// Which kernel interface is asked for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum DriverChoice {
    /// The best one this kernel allows.
    #[default]
    Auto,
    /// Completions through io_uring, or an error.
    Uring,
    /// Readiness through epoll.
    Epoll,
}

impl DriverChoice {
    /// Looks what this kernel has; an error only if io_uring was asked for and is not to be had.
    pub fn choose(self) -> Result<ChosenDriver, IoError> {
        if self == Self::Auto && is_emulated() {
            return self.choose_by(|| Err(UringUnavailable::Emulated));
        }
        self.choose_by(probe)
    }

    fn choose_by(
        self,
        probe: impl FnOnce() -> Result<DriverFeatures, UringUnavailable>,
    ) -> Result<ChosenDriver, IoError> {
        let epoll = |reason| ChosenDriver {
            kind: DriverKind::Epoll,
            features: DriverFeatures::default(),
            reason,
        };
        let uring = |features: DriverFeatures| ChosenDriver {
            kind: DriverKind::Uring,
            features,
            reason: format!("with {features}"),
        };
        match self {
            Self::Epoll => Ok(epoll("as asked for".to_owned())),
            Self::Uring => probe().map(uring).map_err(IoError::UringUnavailable),
            Self::Auto => Ok(match probe() {
                Ok(features) => uring(features),
                Err(why) => epoll(format!("because {why}")),
            }),
        }
    }
}

/// Valgrind puts an object of its own in front of all others of what it runs.
fn is_emulated() -> bool {
    const PREFIX: &[u8] = b"vgpreload_";
    std::env::var_os("LD_PRELOAD").is_some_and(|objects| {
        let mut windows = objects.as_bytes().windows(PREFIX.len());
        windows.any(|window| window == PREFIX)
    })
}

impl FromStr for DriverChoice {
    type Err = IoError;

    fn from_str(text: &str) -> Result<Self, IoError> {
        match text {
            "auto" => Ok(Self::Auto),
            "uring" => Ok(Self::Uring),
            "epoll" => Ok(Self::Epoll),
            _ => Err(IoError::DriverUnknown {
                text: text.to_owned(),
            }),
        }
    }
}

/// A driver there is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DriverKind {
    /// [`crate::UringDriver`].
    Uring,
    /// [`crate::EpollDriver`].
    Epoll,
}

impl DriverKind {
    /// What [`crate::Driver::name`] of it says.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }
}

/// What was chosen, and why; prints as one line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChosenDriver {
    /// Which.
    pub kind: DriverKind,
    /// What of the kernel it will use.
    pub features: DriverFeatures,
    /// Why, as the rest of a sentence.
    pub reason: String,
}

impl fmt::Display for ChosenDriver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} driver, {}", self.kind.name(), self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    /// Goal: what is asked for is what one gets, or an error; auto always finds one and says why.
    #[test]
    fn a_choice_is_kept_or_explained() {
        let epoll = DriverChoice::Epoll.choose().unwrap();
        assert_eq!(epoll.kind, DriverKind::Epoll);
        let auto = DriverChoice::Auto.choose().unwrap();
        match probe() {
            Ok(features) => {
                assert_eq!((auto.kind, auto.features), (DriverKind::Uring, features));
                assert_eq!(DriverChoice::Uring.choose().unwrap(), auto);
                assert!(
                    auto.to_string().starts_with("uring driver, with "),
                    "{auto}"
                );
            }
            Err(why) => {
                assert_eq!(auto.kind, DriverKind::Epoll);
                assert!(auto.to_string().contains(&why.to_string()), "{auto}");
                assert_eq!(
                    DriverChoice::Uring.choose(),
                    Err(IoError::UringUnavailable(why))
                );
            }
        }
    }

    /// Goal: whatever keeps io_uring away, auto goes on with epoll and says why, io_uring asked for
    /// by name is an error with the same reason, and epoll by name does not even look.
    #[test]
    fn without_io_uring_there_is_epoll_and_the_reason() {
        let error = Errno::PERM;
        for why in [
            UringUnavailable::Absent,
            UringUnavailable::Emulated,
            UringUnavailable::Disabled { value: 2 },
            UringUnavailable::Forbidden { error },
            UringUnavailable::TooOld { lacks: "accept" },
            UringUnavailable::OutOfResources { error },
            UringUnavailable::Refused { error },
        ] {
            let auto = DriverChoice::Auto.choose_by(|| Err(why)).unwrap();
            assert_eq!(auto.kind, DriverKind::Epoll);
            assert_eq!(auto.features, DriverFeatures::default());
            assert_eq!(auto.to_string(), format!("epoll driver, because {why}"));
            let by_name = DriverChoice::Uring.choose_by(|| Err(why));
            assert_eq!(by_name, Err(IoError::UringUnavailable(why)));
        }
        let by_name = DriverChoice::Epoll.choose_by(|| panic!("nobody asked for io_uring"));
        assert_eq!(by_name.unwrap().kind, DriverKind::Epoll);
    }

    /// Goal: the names are those of the documentation, and others are refused with the list.
    #[test]
    fn choices_have_names() {
        for (text, choice) in [
            ("auto", DriverChoice::Auto),
            ("uring", DriverChoice::Uring),
            ("epoll", DriverChoice::Epoll),
        ] {
            assert_eq!(text.parse(), Ok(choice));
        }
        let error = "kqueue".parse::<DriverChoice>().unwrap_err().to_string();
        assert!(error.contains("auto, uring or epoll"), "{error}");
        let error = IoError::UringUnavailable(UringUnavailable::Absent).to_string();
        assert!(error.contains("epoll driver works everywhere"), "{error}");
    }
}

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
    /// Checks what this kernel supports; an error only if io_uring was requested and is not available.
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
    /// Its [`crate::Driver::name`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }
}

/// The choice and its reason; prints as one line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChosenDriver {
    /// Which.
    pub kind: DriverKind,
    /// The kernel features it will use.
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
#[path = "tests/choice.rs"]
mod tests;

//! The failing calls and files, from the environment, and how many calls there were.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A kind of call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Write,
    Sync,
    Rename,
    Link,
    Create,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Write,
        Self::Sync,
        Self::Rename,
        Self::Link,
        Self::Create,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Rename => "rename",
            Self::Link => "link",
            Self::Create => "create",
        }
    }
}

/// Which calls fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Plan {
    kind: Kind,
    /// Counted from 1.
    number: u64,
    /// All later ones fail too.
    is_lasting: bool,
    errno: i32,
}

/// The text says nothing of that form.
#[derive(Debug, Eq, PartialEq)]
struct BadPlan;

impl FromStr for Plan {
    type Err = BadPlan;

    fn from_str(text: &str) -> Result<Self, BadPlan> {
        let (kind, rest) = text.split_once(':').ok_or(BadPlan)?;
        let kind = Kind::ALL.into_iter().find(|known| known.as_str() == kind);
        let (number, errno) = match rest.split_once(':') {
            None | Some((_, "EIO")) => (rest.trim_end_matches(":EIO"), libc::EIO),
            Some((number, "ENOSPC")) => (number, libc::ENOSPC),
            Some(_) => return Err(BadPlan),
        };
        let digits = number.strip_suffix('+').unwrap_or(number);
        Ok(Self {
            kind: kind.ok_or(BadPlan)?,
            number: digits.parse().map_err(|_| BadPlan)?,
            is_lasting: digits != number,
            errno,
        })
    }
}

/// All settings.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) directory: Option<PathBuf>,
    plan: Option<Plan>,
    only: String,
    /// An open descriptor.
    pub(crate) journal: Option<i32>,
    counted: AtomicU64,
}

/// Read at the first call. Invalid settings end the process: a test that plants nothing must not
/// pass.
pub(crate) fn get() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings::read().unwrap_or_else(|()| std::process::abort()))
}

impl Settings {
    fn read() -> Result<Self, ()> {
        let text = |name| match std::env::var(name) {
            Ok(text) => Ok(Some(text)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err(()),
        };
        let plan = text("DISK_FAIL")?.map(|plan| plan.parse().map_err(|BadPlan| ()));
        let journal = text("DISK_JOURNAL")?;
        Ok(Self {
            directory: text("DISK_DIRECTORY")?.map(PathBuf::from),
            plan: plan.transpose()?,
            only: text("DISK_ONLY")?.unwrap_or_default(),
            journal: journal
                .map(|path| crate::journal::open(&path))
                .transpose()?,
            counted: AtomicU64::new(0),
        })
    }

    /// Counts the call; with what it is to fail, if it is.
    pub(crate) fn failure(&self, kind: Kind, path: &Path) -> Option<i32> {
        let plan = self.plan.filter(|plan| plan.kind == kind)?;
        if !path.as_os_str().to_string_lossy().contains(&self.only) {
            return None;
        }
        let number = self.counted.fetch_add(1, Ordering::SeqCst) + 1;
        let is_meant = number == plan.number || plan.is_lasting && number > plan.number;
        is_meant.then_some(plan.errno)
    }
}

#[cfg(test)]
#[path = "tests/settings.rs"]
mod tests;

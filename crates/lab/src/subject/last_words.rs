//! What a target wrote before its end.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// How many last lines of a target's log an error repeats.
const LAST_LINES: usize = 5;

/// The end of a target's log.
#[derive(Clone, Debug)]
pub struct LastWords {
    /// The whole log.
    pub log: PathBuf,
    /// Its last lines, empty ones left out.
    pub lines: Vec<String>,
}

impl LastWords {
    /// Reads the end of `log`; a log that is not there is an empty one.
    #[must_use]
    pub fn read(log: &Path) -> Self {
        let bytes = fs::read(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let written = text.lines().rev().filter(|line| !line.trim().is_empty());
        let mut lines: Vec<String> = written.take(LAST_LINES).map(str::to_owned).collect();
        lines.reverse();
        Self {
            log: log.to_owned(),
            lines,
        }
    }
}

impl fmt::Display for LastWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lines.is_empty() {
            return write!(f, "it wrote nothing to its log {}", self.log.display());
        }
        let lines = self.lines.join("\n    ");
        write!(
            f,
            "its last words were:\n    {lines}\n  (log: {})",
            self.log.display()
        )
    }
}

//! What a target wrote before its end.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// How many last lines of a target's log an error repeats.
const LAST_LINES: usize = 5;
/// How much of the end of a log is read for them: logs of requests are long.
const TAIL_BYTES: u64 = 64 * 1024;
/// Longer lines are cut.
const LINE_CHARACTERS_MAX: usize = 500;

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
        let bytes = tail_of(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let written = text.lines().rev().filter(|line| !line.trim().is_empty());
        let cut = |line: &str| line.chars().take(LINE_CHARACTERS_MAX).collect();
        let mut lines: Vec<String> = written.take(LAST_LINES).map(cut).collect();
        lines.reverse();
        Self {
            log: log.to_owned(),
            lines,
        }
    }

    /// Whether a line has one of these in it, in whatever case.
    pub(crate) fn mention(&self, parts: &[&str]) -> bool {
        let mut lines = self.lines.iter().map(|line| line.to_lowercase());
        lines.any(|line| parts.iter().any(|part| line.contains(part)))
    }
}

fn tail_of(log: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
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

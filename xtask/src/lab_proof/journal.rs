//! Comparisons that ended, one a line, so that hours of them can be interrupted and go on.

use super::record::Comparison;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file of them. It lies in the scratch directory, and goes with it.
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    lines: Vec<Value>,
}

impl Journal {
    /// What was kept under this name, and room for more. A line that was cut short is not there.
    pub(crate) fn open(scratch: &Path, name: &str) -> Result<Self, String> {
        let path = scratch.join(format!("{name}.ndjson"));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let lines = whole
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let file = File::options().create(true).append(true).open(&path);
        let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
        let mut journal = Self { path, file, lines };
        if !text.is_empty() && !text.ends_with('\n') {
            journal.write("\n")?;
        }
        Ok(journal)
    }

    /// The comparison that was kept under `key`.
    fn find(&self, key: &str) -> Option<Comparison> {
        let mut lines = self.lines.iter();
        let line = lines.find(|line| line["key"] == key)?;
        Some(Comparison::of_record(line["comparison"].clone()))
    }

    /// The comparison that was kept under `key`, or the one that `make` makes, which is kept.
    pub(crate) fn find_or(
        &mut self,
        key: &str,
        make: impl FnOnce() -> Result<Comparison, String>,
    ) -> Result<Comparison, String> {
        if let Some(kept) = self.find(key) {
            return Ok(kept);
        }
        let comparison = make()?;
        self.keep(key, &comparison)?;
        Ok(comparison)
    }

    fn keep(&mut self, key: &str, comparison: &Comparison) -> Result<(), String> {
        let line = json!({"key": key, "comparison": comparison.kept()});
        self.write(&format!("{line}\n"))?;
        self.lines.push(line);
        Ok(())
    }

    fn write(&mut self, text: &str) -> Result<(), String> {
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what was kept is found by the next one, also behind a line that a kill cut short.
    #[test]
    fn kept_comparisons_are_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let comparison =
            Comparison::of_record(json!({"details": [], "settings": {"rounds_done": 3}}));
        let mut journal = Journal::open(directory.path(), "x").unwrap();
        journal.keep("one", &comparison).unwrap();
        journal.write("{\"key\": \"two\", \"comp").unwrap();
        let mut again = Journal::open(directory.path(), "x").unwrap();
        assert!(again.find("one").is_some() && again.find("two").is_none());
        again.keep("three", &comparison).unwrap();
        let last = Journal::open(directory.path(), "x").unwrap();
        let rounds = last.find("three").unwrap().course()["rounds"].clone();
        assert_eq!((rounds, last.find("one").is_some()), (json!(3), true));
    }
}

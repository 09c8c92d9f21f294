//! The lines of a file that requests take in turn.
//!
//! Absent on purpose: reading while the run goes on. A file is read once; its lines are slices of it.
use super::template::Place;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A file and where its lines are. Empty lines are left out, and the end of a line is LF or CRLF.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    text: Vec<u8>,
    spans: Box<[Range<usize>]>,
    longest_bytes: usize,
}

impl Lines {
    /// Reads a file; the error names it.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read(path)
            .map_err(|error| format!("the file {} cannot be read: {error}", path.display()))?;
        let mut spans = Vec::new();
        let mut start = 0;
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            let bytes = line.strip_suffix(b"\n").unwrap_or(line);
            let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
            if !bytes.is_empty() {
                spans.push(start..start + bytes.len());
            }
            start += line.len();
        }
        let longest_bytes = spans.iter().map(Range::len).max();
        let longest_bytes =
            longest_bytes.ok_or_else(|| format!("the file {} holds no line", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            text,
            spans: spans.into(),
            longest_bytes,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn longest_bytes(&self) -> usize {
        self.longest_bytes
    }

    /// The line of request `number`.
    pub(super) fn line(&self, number: u64) -> &[u8] {
        let index = number % self.spans.len() as u64;
        &self.text[self.spans[index as usize].clone()]
    }

    /// Refuses a line that would end the request line or the field it is put into.
    pub(super) fn check(&self, place: Place) -> Result<(), String> {
        let is_bad = |byte: &u8| match place {
            Place::Target => *byte <= b' ' || *byte >= 0x7f,
            Place::Field => byte.is_ascii_control() && *byte != b'\t',
            Place::Body => false,
        };
        let bad = self
            .spans
            .iter()
            .find(|span| self.text[(*span).clone()].iter().any(is_bad));
        bad.map_or(Ok(()), |span| {
            let line = 1 + self.text[..span.start]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count();
            let path = self.path.display();
            Err(match place {
                Place::Target => format!(
                    "line {line} of {path} holds a blank or a letter that has to be written as %XX"
                ),
                _ => format!("line {line} of {path} holds a control character"),
            })
        })
    }
}

//! A build without a reader of symbols: no code has a name.

use std::path::Path;
use std::rc::Rc;

/// Nothing.
pub(super) struct ElfSymbols;

impl ElfSymbols {
    pub(super) fn new() -> Self {
        Self
    }

    /// No names.
    pub(super) fn look_up(&self, _file: &Path, _offsets: &[u64]) -> Vec<(u64, Rc<[String]>)> {
        Vec::new()
    }
}

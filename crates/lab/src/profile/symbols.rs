//! Names of code: of an address in a file, with the functions that the compiler put into it.
//!
//! Without the feature `symbols` nothing is looked up, and all code is told by its file.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

#[cfg_attr(not(feature = "symbols"), path = "symbols/absent.rs")]
mod elf;

/// What profiles have to say about their names, if they have none.
pub(super) const LIMIT: Option<&str> = if cfg!(feature = "symbols") {
    None
} else {
    Some(
        "the allocation graphs tell files, not functions: this program was built without the \
         feature `symbols`",
    )
};

/// A symboliser with everything it found.
pub(super) struct Symbols {
    elf: elf::ElfSymbols,
    /// Innermost first.
    names: HashMap<PathBuf, HashMap<u64, Rc<[String]>>>,
}

impl Symbols {
    pub(super) fn new() -> Self {
        Self {
            elf: elf::ElfSymbols::new(),
            names: HashMap::new(),
        }
    }

    /// Looks all of `wanted` up, file by file: many at once are far quicker than one by one.
    pub(super) fn prepare(&mut self, wanted: HashMap<&Path, HashSet<u64>>) {
        for (file, offsets) in wanted {
            let known = self.names.entry(file.to_owned()).or_default();
            let offsets: Vec<u64> = offsets
                .into_iter()
                .filter(|offset| !known.contains_key(offset))
                .collect();
            known.extend(self.elf.look_up(file, &offsets));
        }
    }

    /// The functions at an offset of a file, innermost first; the file's name in brackets where it
    /// says nothing.
    pub(super) fn names(&self, file: &Path, offset: u64) -> Rc<[String]> {
        let found = self.names.get(file).and_then(|names| names.get(&offset));
        let nameless = || {
            let name = file.file_name().unwrap_or_default().display();
            Rc::from([format!("[{name}]")])
        };
        found.map_or_else(nameless, Rc::clone)
    }
}

#[cfg(test)]
#[path = "tests/symbols.rs"]
mod tests;

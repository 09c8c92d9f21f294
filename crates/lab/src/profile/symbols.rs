//! Names of code: of an address in a file, with the functions that the compiler put into it.
//!
//! Without the feature `symbols` no name is resolved, and all code is named by its file.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The note of profiles about names, if they have none.
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

    /// Resolves all of `wanted`, file by file: many at once are far quicker than one by one.
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

#[cfg(feature = "symbols")]
mod elf {
    //! Names of code from an ELF file and its debug information.

    use std::path::Path;
    use std::rc::Rc;

    use blazesym::symbolize::source::{Elf, Source};
    use blazesym::symbolize::{Input, Symbolized, Symbolizer};
    use millpond_measure::flamegraph::without_hash;

    /// Open files and what was read of them.
    pub(super) struct ElfSymbols(Symbolizer);

    impl ElfSymbols {
        pub(super) fn new() -> Self {
            Self(
                Symbolizer::builder()
                    // Without it there are no inlined functions.
                    .enable_code_info(true)
                    .enable_inlined_fns(true)
                    .enable_demangling(true)
                    .build(),
            )
        }

        /// The names at those of `offsets` that have any, each with its functions innermost first.
        pub(super) fn look_up(&self, file: &Path, offsets: &[u64]) -> Vec<(u64, Rc<[String]>)> {
            let source = Source::Elf(Elf::new(file));
            // A file that cannot be read any more has no names.
            let found = self
                .0
                .symbolize(&source, Input::FileOffset(offsets))
                .unwrap_or_default();
            let named = offsets.iter().zip(&found);
            named
                .filter_map(|(&offset, symbol)| {
                    let Symbolized::Sym(symbol) = symbol else {
                        return None;
                    };
                    let inlined = symbol.inlined.iter().rev();
                    let names = inlined
                        .map(|function| &*function.name)
                        .chain([&*symbol.name])
                        .map(|name| without_hash(name).to_owned());
                    Some((offset, names.collect()))
                })
                .collect()
        }
    }
}

#[cfg(not(feature = "symbols"))]
mod elf {
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
}

#[cfg(test)]
#[path = "tests/symbols.rs"]
mod tests;

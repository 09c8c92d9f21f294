//! Names of code: of an address in a file, with the functions that the compiler put into it.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use millpond_measure::flamegraph::without_hash;

/// A symboliser with everything it found.
pub(super) struct Symbols {
    symbolizer: Symbolizer,
    /// Innermost first.
    names: HashMap<PathBuf, HashMap<u64, Rc<[String]>>>,
}

impl Symbols {
    pub(super) fn new() -> Self {
        Self {
            symbolizer: Symbolizer::builder()
                // Without it there are no inlined functions.
                .enable_code_info(true)
                .enable_inlined_fns(true)
                .enable_demangling(true)
                .build(),
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
            let source = Source::Elf(Elf::new(file));
            let found = self
                .symbolizer
                .symbolize(&source, Input::FileOffset(&offsets));
            // A file that cannot be read any more has no names.
            let found = found.unwrap_or_default();
            for (&offset, symbol) in offsets.iter().zip(&found) {
                if let Symbolized::Sym(symbol) = symbol {
                    let inlined = symbol.inlined.iter().rev();
                    let names = inlined
                        .map(|function| &*function.name)
                        .chain([&*symbol.name])
                        .map(|name| without_hash(name).to_owned());
                    known.insert(offset, names.collect());
                }
            }
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
mod tests {
    use super::*;
    use crate::profile::maps::{Maps, Place};

    /// Goal: a function of this very program gets its name, and what is no code gets none.
    #[test]
    fn functions_have_names() {
        let own = std::process::id();
        let mut maps = Maps::default();
        maps.capture(&[own]);
        let address = functions_have_names as fn() as usize as u64 + 1;
        let Place::File(file, offset) = maps.place(own, &[], address) else {
            unreachable!("this is code of a file")
        };
        let mut symbols = Symbols::new();
        symbols.prepare(HashMap::from([(file.as_path(), HashSet::from([offset]))]));
        let names = symbols.names(file, offset);
        let last = names.last().unwrap();
        assert!(last.ends_with("functions_have_names"), "{names:?}");
        assert_eq!(&*symbols.names(Path::new("/nowhere"), 1), ["[nowhere]"]);
    }
}

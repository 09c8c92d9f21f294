//! What an ELF file and its debug information call the code in it.

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

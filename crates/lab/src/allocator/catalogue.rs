//! The list of `millpond allocators`: each allocator with its version and place, or with the way to
//! get it.

use super::known::{KNOWN, Known};
use super::version::c_library;
use super::{Allocator, GLIBC, discover};

/// For users that search for the one of an earlier comparison.
pub const NOT_TO_BE_HAD: &str = "lockless (llalloc) is in no package registry, only on its author's \
    site: build it yourself and give it as lockless=/path/to/libllalloc.so";

/// One line of the list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CatalogueEntry {
    /// As `--allocators` takes it.
    pub name: &'static str,
    /// As exactly as it is known; `None` too if it is not here.
    pub version: Option<String>,
    /// Where it is; `None` if it is not here.
    pub place: Option<String>,
    /// How to get it, if it is not here.
    pub remedy: Option<String>,
    /// Settings that people change most; empty if it reads none.
    pub settings: &'static str,
    /// How it is given settings, e.g. `MALLOC_CONF`, or `TCMALLOC_*` where each has a variable; empty if it reads none.
    pub variable: String,
}

/// Every known allocator, in the order of reports.
#[must_use]
pub fn catalogue() -> Vec<CatalogueEntry> {
    let found = discover();
    KNOWN.iter().map(|known| entry(known, &found)).collect()
}

fn entry(known: &Known, found: &[Allocator]) -> CatalogueEntry {
    let here = found.iter().find(|allocator| allocator.name == known.name);
    let place = match here {
        Some(_) if known.name == GLIBC => c_library().map(|path| path.display().to_string()),
        Some(allocator) => allocator.library_title(),
        None => None,
    };
    CatalogueEntry {
        name: known.name,
        version: here.and_then(Allocator::version),
        place,
        remedy: known.remedy().filter(|_| here.is_none()),
        settings: known.settings,
        variable: known.dialect.variable(),
    }
}

#[cfg(test)]
#[path = "tests/catalogue.rs"]
mod tests;

//! What there is, for `millpond allocators`: each allocator with its version and place, or with the
//! way to get it.

use super::known::{Dialect, KNOWN, Known};
use super::{Allocator, GLIBC, discover, version};

/// Said to whoever looks for the one of an earlier comparison.
pub const NOT_TO_BE_HAD: &str = "lockless (llalloc) is in no package registry, only on its author's \
    site: build it yourself and give it as lockless=/path/to/libllalloc.so";

/// One line of the list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CatalogueEntry {
    /// As `--allocators` takes it.
    pub name: &'static str,
    /// As exactly as it can be told; `None` too if it is not here.
    pub version: Option<String>,
    /// Where it is; `None` if it is not here.
    pub place: Option<String>,
    /// How to get it, if it is not here.
    pub remedy: Option<String>,
    /// Settings that people change most; empty if it reads none.
    pub settings: &'static str,
    /// How it is given settings, e.g. `MALLOC_CONF`.
    pub variable: &'static str,
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
        Some(_) if known.name == GLIBC => {
            version::c_library().map(|path| path.display().to_string())
        }
        Some(allocator) => allocator.library_title(),
        None => None,
    };
    CatalogueEntry {
        name: known.name,
        version: here.and_then(Allocator::version),
        place,
        remedy: known.remedy().filter(|_| here.is_none()),
        settings: known.settings,
        variable: match known.dialect {
            Dialect::Glibc => "GLIBC_TUNABLES",
            Dialect::Jemalloc(variable) => variable,
            Dialect::Scudo => "SCUDO_OPTIONS",
            Dialect::Mimalloc => "MIMALLOC_*",
            Dialect::Variables("TCMALLOC_") => "TCMALLOC_*",
            Dialect::Variables("TBB_MALLOC_") => "TBB_MALLOC_*",
            Dialect::Variables(_) => "MEMPOOL_*",
            Dialect::None => "",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every line says either where the allocator is or how to get it, never both; what is
    /// here has a version.
    #[test]
    fn every_allocator_is_here_or_to_be_had() {
        let list = catalogue();
        assert_eq!(list.len(), KNOWN.len());
        for entry in list {
            assert_ne!(entry.place.is_some(), entry.remedy.is_some(), "{entry:?}");
            assert_eq!(entry.place.is_some(), entry.version.is_some(), "{entry:?}");
            assert_eq!(
                entry.settings.is_empty(),
                entry.variable.is_empty(),
                "{entry:?}"
            );
        }
    }
}

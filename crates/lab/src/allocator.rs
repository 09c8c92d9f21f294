//! Which allocators can be compared here: those of the distribution, ours, those that were built
//! from their crates, and any object the user names.
//!
//! The first thing a comparison does. Everything that can be known to fail is refused here with a
//! sentence, because the dynamic linker only prints to the target's stderr and continues without
//! the library.

mod known;
mod system;
mod built;
mod user;
mod selection;
mod settings_spelling;
mod tuning;
mod settings_effect;
mod trim;
mod family;
mod version;
mod catalogue;
mod error;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::embedded::{self, PrivateDirectory, SharedObject};
use known::{KNOWN, USUAL};
use trim::Trim;

pub use built::DIRECTORY_VARIABLE;
pub use catalogue::{CatalogueEntry, NOT_TO_BE_HAD, catalogue};
pub use error::AllocatorError;
pub(crate) use family::family_by_symbol;
pub use family::name_of_library;
pub use selection::REMEDIES;
pub use selection::{select, select_with_settings};
pub(crate) use settings_effect::has_background_thread;
pub(crate) use settings_spelling::reader_of_variable;
pub(crate) use tuning::complaint;
pub(crate) use user::settings_of;
pub(crate) use version::{banner, major_and_minor, of_mapped as version_of_mapped};

/// Writes the objects that are part of this program into `directory`, to stay there; their paths.
///
/// # Errors
/// [`AllocatorError::Extract`], also for a file of such a name with other contents, which is not replaced.
pub fn extract(directory: &Path) -> Result<Vec<PathBuf>, AllocatorError> {
    let objects = [embedded::MEMPOOL, embedded::TRIM].into_iter();
    objects
        .map(|object| {
            let written = object.extract_into(directory);
            written.map_err(|error| AllocatorError::Extract {
                path: object.path_in(directory),
                error: error.to_string(),
            })
        })
        .collect()
}

/// An allocator a target can be given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Allocator {
    /// `glibc`, `jemalloc`, or the user's name for it.
    pub name: String,
    /// The preloaded object; `None` for the target's own allocator. A file of ours is there as long
    /// as this value or a clone of it.
    pub library: Option<PathBuf>,
    /// Its settings and what it cannot do without, as variables of the target's environment; empty for what it does
    /// by itself.
    pub environment: Vec<(String, String)>,
    /// The user's as `KEY` and `VALUE`; empty where no rules are known that they could be read by. Variables that
    /// follow from `--as-cpus` are in `environment` alone.
    settings: Vec<(String, String)>,
    /// The known allocator whose rules hold for it.
    family: Option<&'static str>,
    /// What its settings change, in a few words, where they are of a list that describes itself.
    pub(crate) changes: &'static str,
    /// The result of a probe.
    proved: Option<&'static str>,
    /// Where `library` was written, if it is part of this program.
    written: Option<Arc<PrivateDirectory>>,
    /// The thread that trims beside it.
    trim: Option<Trim>,
}

impl Allocator {
    /// The target's own allocator, under the name `name`.
    #[must_use]
    pub fn native(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            library: None,
            environment: Vec::new(),
            settings: Vec::new(),
            changes: "",
            proved: None,
            family: known::find(name).map(|known| known.name),
            written: None,
            trim: None,
        }
    }

    /// The allocator in `library`, which must be a path as memory maps show it: absolute, without
    /// links.
    #[must_use]
    pub fn preloaded(name: &str, library: PathBuf) -> Self {
        let known = known::find(base_name(name));
        let needs = known.into_iter().flat_map(|known| known.needs);
        Self {
            name: name.to_owned(),
            library: Some(library),
            environment: needs
                .map(|(variable, value)| ((*variable).to_owned(), (*value).to_owned()))
                .collect(),
            settings: Vec::new(),
            changes: "",
            proved: None,
            family: known::find(name).map(|known| known.name),
            written: None,
            trim: None,
        }
    }

    /// True for what a target has by itself, with no settings of the user's and nothing beside it.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.library.is_none() && self.settings.is_empty() && self.trim.is_none()
    }

    /// An object preloaded beside `library` that does not replace malloc.
    pub(crate) fn companion(&self) -> Option<&Path> {
        self.trim.as_ref().map(|trim| trim.object.as_path())
    }

    /// Everything that is preloaded, what replaces malloc first.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Path> {
        self.library.as_deref().into_iter().chain(self.companion())
    }

    /// `environment` as a process is started with it.
    #[must_use]
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        let variables = self.environment.iter();
        variables
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    /// The version, as exactly as it is known without running it, and what a probe showed.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        let mut version = self.version_alone();
        if let Some(version) = version
            .as_mut()
            .filter(|_| base_name(&self.name) == "tcmalloc")
        {
            // Two programs have that name.
            *version = format!("gperftools {}", version.trim_start_matches("gperftools "));
        }
        match (version, self.proved) {
            (Some(version), Some(fact)) => Some(format!("{version}, {fact}")),
            (version, fact) => version.or(fact.map(str::to_owned)),
        }
    }

    fn version_alone(&self) -> Option<String> {
        match &self.library {
            None => version::of_c_library(),
            // Ours, and part of this program.
            Some(_) if self.written.is_some() => Some(env!("CARGO_PKG_VERSION").to_owned()),
            Some(library) => version::of_library(library).or_else(|| self.version_in_name()),
        }
    }

    /// `3.4.3` of `mimalloc3@3.4.3:purge_delay=0`.
    fn version_in_name(&self) -> Option<String> {
        let (_, version) = without_settings(&self.name).split_once('@')?;
        Some(version.to_owned())
    }

    /// The library as a report names it: the file of one that is part of this program is removed by
    /// then.
    #[must_use]
    pub fn library_title(&self) -> Option<String> {
        let library = self.library.as_deref()?;
        let file = library.file_name().filter(|_| self.written.is_some());
        Some(match file {
            Some(file) => format!("{} in millpond itself", file.display()),
            None => library.display().to_string(),
        })
    }

    /// True for one that is not among the usual ones, which a comparison takes only if it is named.
    #[must_use]
    pub fn is_extra(&self) -> bool {
        !USUAL.contains(&self.name.as_str())
    }
}

/// The version of the C library that this program runs with.
pub(crate) fn c_library_version() -> Option<String> {
    version::of_c_library()
}

/// The name for "preload nothing" on a system with the GNU C library.
pub const GLIBC: &str = "glibc";
/// The name for "preload nothing", whatever the target brings along.
pub const NATIVE: &str = "native";
/// The name for every allocator that is found.
pub const ALL: &str = "all";
/// Our own pools as malloc.
pub const MEMPOOL: &str = "mempool";

/// Every allocator found on this system, what the target has by itself first.
#[must_use]
pub fn discover() -> Vec<Allocator> {
    let mut found = vec![Allocator::native(GLIBC)];
    for known in KNOWN {
        if known.name == MEMPOOL {
            // If it cannot be written, `missing` says why.
            found.extend(mempool());
            continue;
        }
        let library = system::find_library(known.sonames)
            .or_else(|| system::find_pattern(known.patterns))
            .or_else(|| built::find(known.name));
        found.extend(library.map(|library| Allocator::preloaded(known.name, library)));
    }
    found
}

/// Known allocators that are not here and how to get them, for the report: `name (remedy)`.
#[must_use]
pub fn missing() -> Vec<String> {
    let found = discover();
    let is_missing = |name: &&str| found.iter().all(|allocator| allocator.name != *name);
    let not_built = |known: &&known::Known| !built::NAMES.contains(&known.name);
    let mut lines: Vec<String> = KNOWN
        .iter()
        .filter(not_built)
        .map(|known| known.name)
        .filter(is_missing)
        .filter_map(|name| Some(format!("{name} ({})", remedy(name)?)))
        .collect();
    let unbuilt: Vec<&str> = built::NAMES.iter().copied().filter(is_missing).collect();
    if !unbuilt.is_empty() {
        lines.push(format!("{} ({BUILD})", unbuilt.join(", ")));
    }
    lines
}

/// How to get what is built from crates.
const BUILD: &str = "cargo xtask allocators";

/// How to get a known allocator that is not here; `None` for a name that is not known.
fn remedy(name: &str) -> Option<String> {
    if let Some(remedy) = known::find(name)?.remedy() {
        return Some(remedy);
    }
    let error = mempool().err().filter(|_| name == MEMPOOL)?;
    Some(format!("its object cannot be written: {error}"))
}

/// Our own pools as malloc, out of this program.
fn mempool() -> io::Result<Allocator> {
    static OBJECT: SharedObject = SharedObject::new(embedded::MEMPOOL);
    let (library, written) = OBJECT.write()?;
    Ok(Allocator {
        name: MEMPOOL.to_owned(),
        library: Some(library),
        environment: Vec::new(),
        settings: Vec::new(),
        changes: "",
        proved: None,
        family: Some(MEMPOOL),
        written: Some(written),
        trim: None,
    })
}

/// The name without its settings.
fn without_settings(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

/// The name without settings and version: `mimalloc3` of `mimalloc3@3.4.3:purge_delay=0`.
fn base_name(name: &str) -> &str {
    let name = without_settings(name);
    name.split('@').next().unwrap_or(name)
}

#[cfg(test)]
#[path = "tests/allocator.rs"]
mod tests;

//! Why an allocator cannot be used. Each is one sentence that says what to do.

use std::path::PathBuf;

/// Why an allocator cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AllocatorError {
    /// An object of ours cannot be written.
    #[error("{} cannot be written: {error}; an object that is there is not replaced", path.display())]
    Extract {
        /// Where it was to be.
        path: PathBuf,
        /// Why not.
        error: String,
    },
    /// Not a known name and not NAME=/PATH.
    #[error(
        "unknown allocator \"{name}\": this system has {found}; \
         another one is given as NAME=/PATH/TO/LIBRARY.so"
    )]
    Unknown {
        /// As given.
        name: String,
        /// The alternatives.
        found: String,
    },
    /// A known allocator that is not here.
    #[error("{name} is not here (this system has {found}): {remedy}")]
    Missing {
        /// As given.
        name: String,
        /// The alternatives.
        found: String,
        /// How to get it.
        remedy: String,
    },
    /// The user's library cannot be preloaded.
    #[error("allocator {name}: {} {reason}", path.display())]
    Unusable {
        /// As given.
        name: String,
        /// The file.
        path: PathBuf,
        /// The end of the sentence.
        reason: String,
    },
    /// A setting that the allocator does not take.
    #[error("allocator {word}: {name} {reason}")]
    Setting {
        /// As given.
        word: String,
        /// The allocator's name.
        name: String,
        /// The end of the sentence.
        reason: String,
    },
    /// A setting without its allocator.
    #[error("allocator {word}: this is a setting; write it behind its allocator, {right}")]
    Spelling {
        /// As given.
        word: String,
        /// How it is written.
        right: String,
    },
    /// No list of settings is known for it.
    #[error(
        "--settings {name}: there is no such list; lists are for {names}, each named alone; settings of your own are \
         compared with --allocators, as in --allocators jemalloc,jemalloc:narenas=2"
    )]
    NoSettingsList {
        /// As given.
        name: String,
        /// Those that have a list.
        names: String,
    },
    /// Another version than the one that was named.
    #[error("allocator {name}: this is version {found}, not the one in its name: {remedy}")]
    OtherVersion {
        /// As given.
        name: String,
        /// The version that is there.
        found: String,
        /// The end of the sentence.
        remedy: String,
    },
    /// A thread that trims, where or how it cannot be.
    #[error("allocator {word}: {reason}; trimming is written glibc+trim=30s")]
    Trim {
        /// As given.
        word: String,
        /// Why not.
        reason: String,
    },
    /// Not KEY=VALUE.
    #[error(
        "allocator {word}: \"{part}\" is no setting; settings are written \
         jemalloc:narenas=2,dirty_decay_ms=0"
    )]
    NoSetting {
        /// As given.
        word: String,
        /// The wrong part.
        part: String,
    },
    /// Settings where only names are taken.
    #[error("allocator {word}: settings are for `millpond compare`; here it is {name} alone")]
    NoSettingsHere {
        /// As given.
        word: String,
        /// The name to write.
        name: String,
    },
    /// The same name twice would make results ambiguous.
    #[error("allocator \"{name}\" is given twice")]
    Twice {
        /// The name.
        name: String,
    },
}

//! What is known of each allocator that is built: its package, its crate, its compiler, its flags.
//!
//! The next one is an entry here and a package in `preload/allocators`.

/// What an allocator is written in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Language {
    C,
    Cpp,
}

/// Where an allocator's own version stands; a crate's version often says nothing about it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum VersionSource {
    /// The crate is released together with the allocator.
    Crate,
    /// A definition in a file of the crate, as a number: major, two digits minor, two digits patch.
    Definition {
        file: &'static str,
        name: &'static str,
    },
    /// The first line of a file of the crate.
    FirstLine { file: &'static str },
    /// What stands between `+` and `-` in the crate's version.
    BuildMetadata,
}

/// How one allocator is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    /// What it is called in `--allocators` and in reports. Its package is
    /// `millpond-allocator-NAME`.
    pub(crate) name: &'static str,
    /// The crate with its sources.
    pub(crate) source: &'static str,
    pub(crate) language: Language,
    pub(crate) version: VersionSource,
    /// For the compiler, beside what the crate's build script gives it.
    pub(crate) flags: &'static [&'static str],
}

/// Every allocator that is built here.
pub(crate) const ALL: &[Recipe] = &[
    Recipe {
        name: "jemalloc531",
        source: "tikv-jemalloc-sys",
        language: Language::C,
        // Behind the crate's own number, as in 0.7.1+5.3.1-0-g81034ce.
        version: VersionSource::BuildMetadata,
        flags: &[],
    },
    Recipe {
        name: "mimalloc2",
        source: "libmimalloc-sys",
        language: Language::C,
        version: VersionSource::Definition {
            file: "c_src/mimalloc/v2/include/mimalloc.h",
            name: "MI_MALLOC_VERSION",
        },
        flags: &[],
    },
    Recipe {
        name: "mimalloc3",
        source: "libmimalloc-sys",
        language: Language::C,
        version: VersionSource::Definition {
            file: "c_src/mimalloc/v3/include/mimalloc.h",
            name: "MI_MALLOC_VERSION",
        },
        flags: &[],
    },
    Recipe {
        name: "snmalloc",
        source: "snmalloc-sys",
        language: Language::Cpp,
        version: VersionSource::Crate,
        // What its own build sets and the crate's build without cmake forgets: no assertions on
        // every path, prefetches for writing, and the end of a thread learnt from the C library.
        flags: &[
            "-DNDEBUG",
            #[cfg(target_arch = "x86_64")]
            "-mprfchw",
            "-DSNMALLOC_USE_CXX11_THREAD_ATEXIT_DIRECT",
        ],
    },
    Recipe {
        name: "rpmalloc",
        source: "rpmalloc-sys",
        language: Language::C,
        version: VersionSource::FirstLine {
            file: "rpmalloc/CHANGELOG",
        },
        // Optimised as in its own release build; and see `preload/allocators/rpmalloc/src/lib.rs`
        // about the renamed function.
        flags: &[
            "-O3",
            "-funroll-loops",
            "-Dpthread_create=millpond_rpmalloc_pthread_create",
        ],
    },
    Recipe {
        name: "hardened",
        source: "hardened-malloc-sys",
        language: Language::C,
        // Releases of the allocator are dates, and the crate's third number is one.
        version: VersionSource::Crate,
        // Optimised as in its own makefile; its functions under names of their own (see
        // `preload/allocators/hardened/src/lib.rs`); and a header that compilers before C23 need.
        flags: &["-O3", "-DH_MALLOC_PREFIX", "-include", "stdalign.h"],
    },
    Recipe {
        name: "tcmalloc_percpu",
        source: "libtcmalloc-sys",
        language: Language::Cpp,
        // TCMalloc has no releases; the crate's number is all that tells its states apart.
        version: VersionSource::Crate,
        // As in its own release build: no assertions, no exceptions.
        flags: &["-DNDEBUG", "-fno-exceptions"],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// Goal: every recipe has its package, uses the crate it names there, and is looked for by the
    /// lab, which nothing but this test connects with it.
    #[test]
    fn every_recipe_is_complete() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |path: &str| fs::read_to_string(root.join(path)).expect("a file of ours");
        let members = read("preload/allocators/Cargo.toml");
        let looked_for = read("crates/lab/src/allocator/catalogue.rs");
        for recipe in ALL {
            let Recipe { name, source, .. } = recipe;
            let package = read(&format!("preload/allocators/{name}/Cargo.toml"));
            assert!(package.contains(&format!("name = \"millpond-allocator-{name}\"")));
            assert!(package.contains(&format!("name = \"millpond_{name}\"")));
            assert!(package.contains(source), "{name} does not use {source}");
            let quoted = format!("\"{name}\"");
            assert!(members.contains(&quoted), "{name} is no member");
            assert!(
                looked_for.contains(&quoted),
                "the lab does not look for {name}"
            );
        }
    }
}

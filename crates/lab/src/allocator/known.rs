//! The allocators that have a name here: where the distribution has them, and how they are set up.

use super::{BUILD, GLIBC, MEMPOOL, built};

/// How an allocator is given its settings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Dialect {
    /// `GLIBC_TUNABLES=glibc.malloc.KEY=VALUE:...`
    Glibc,
    /// `VARIABLE=KEY:VALUE,...`, of which the variable is `MALLOC_CONF`, behind the prefix of a build's functions.
    Jemalloc(&'static str),
    /// `SCUDO_OPTIONS=KEY=VALUE:...`
    Scudo,
    /// `MIMALLOC_KEY=VALUE`, each option of which it lists when asked.
    Mimalloc,
    /// `PREFIXKEY=VALUE`, a variable for each.
    Variables(&'static str),
    /// It reads nothing.
    None,
}

impl Dialect {
    /// The variable by its public name, with `*` where each setting has one of its own; empty if it reads nothing.
    pub(super) fn variable(self) -> String {
        match self {
            Self::Glibc => "GLIBC_TUNABLES".to_owned(),
            Self::Jemalloc(variable) => variable.to_owned(),
            Self::Scudo => "SCUDO_OPTIONS".to_owned(),
            Self::Mimalloc => "MIMALLOC_*".to_owned(),
            Self::Variables(prefix) => format!("{prefix}*"),
            Self::None => String::new(),
        }
    }
}

/// The known facts about an allocator.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) name: &'static str,
    /// File name prefixes, best first: a soname may be followed by more digits. None for what is
    /// part of the system, of this program, or built.
    pub(super) sonames: &'static [&'static str],
    /// Where else it may be, with `*` for a directory's part.
    pub(super) patterns: &'static [&'static str],
    /// The package of Debian 12.
    pub(super) package: Option<&'static str>,
    pub(super) dialect: Dialect,
    /// Settings that people change most, for help.
    pub(super) settings: &'static str,
    /// Variables without which it would be another allocator.
    pub(super) needs: &'static [(&'static str, &'static str)],
    /// The result that a probe must have before the allocator is compared under its name.
    pub(super) proof: Option<Proof>,
}

/// A line that an allocator writes to stderr at the end of a program, if it is asked to.
#[derive(Debug)]
pub(super) struct Proof {
    /// Asks for it.
    pub(super) variable: &'static str,
    pub(super) line: &'static str,
    /// The fact that the line proves, for the record.
    pub(super) fact: &'static str,
    /// Why the line may be missing, and what to do.
    pub(super) remedy: &'static str,
}

const fn built(name: &'static str, dialect: Dialect, settings: &'static str) -> Known {
    Known {
        name,
        sonames: &[],
        patterns: &[],
        package: None,
        dialect,
        settings,
        needs: &[],
        proof: None,
    }
}

const JEMALLOC_SETTINGS: &str = "narenas, dirty_decay_ms, muzzy_decay_ms, background_thread, thp";
const MIMALLOC3_SETTINGS: &str = "purge_delay, arena_eager_commit, allow_large_os_pages";

/// In the order of reports.
pub(super) const KNOWN: &[Known] = &[
    built(
        GLIBC,
        Dialect::Glibc,
        "arena_max, tcache_count, trim_threshold, mmap_threshold, hugetlb",
    ),
    Known {
        name: "jemalloc",
        sonames: &["libjemalloc.so.2"],
        patterns: &[],
        package: Some("libjemalloc2"),
        dialect: Dialect::Jemalloc("MALLOC_CONF"),
        settings: JEMALLOC_SETTINGS,
        needs: &[],
        proof: None,
    },
    built(
        "jemalloc531",
        Dialect::Jemalloc("_RJEM_MALLOC_CONF"),
        JEMALLOC_SETTINGS,
    ),
    Known {
        name: "tcmalloc",
        // The full library adds a heap profiler; malloc itself is the same.
        sonames: &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"],
        patterns: &[],
        package: Some("libtcmalloc-minimal4"),
        dialect: Dialect::Variables("TCMALLOC_"),
        settings: "release_rate, max_total_thread_cache_bytes, aggressive_decommit",
        needs: &[],
        proof: None,
    },
    Known {
        name: "mimalloc",
        sonames: &["libmimalloc.so.3", "libmimalloc.so.2"],
        patterns: &[],
        package: Some("libmimalloc2.0"),
        dialect: Dialect::Mimalloc,
        settings: "decommit_delay, page_reset, large_os_pages",
        needs: &[],
        proof: None,
    },
    built(MEMPOOL, Dialect::Variables("MEMPOOL_"), "checks"),
    Known {
        name: "scudo",
        sonames: &[],
        patterns: &[
            #[cfg(target_arch = "x86_64")]
            "/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.scudo_standalone-x86_64.so",
            #[cfg(target_arch = "aarch64")]
            "/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.scudo_standalone-aarch64.so",
        ],
        package: Some("libclang-rt-14-dev"),
        dialect: Dialect::Scudo,
        settings: "release_to_os_interval_ms, quarantine_size_kb",
        needs: &[],
        proof: None,
    },
    Known {
        name: "tbb",
        sonames: &["libtbbmalloc_proxy.so.2"],
        patterns: &[],
        package: Some("libtbbmalloc2"),
        dialect: Dialect::Variables("TBB_MALLOC_"),
        settings: "use_huge_pages, set_huge_size_threshold",
        needs: &[],
        proof: None,
    },
    built(
        "mimalloc2",
        Dialect::Mimalloc,
        "purge_delay, allow_large_os_pages, eager_commit",
    ),
    built("mimalloc3", Dialect::Mimalloc, MIMALLOC3_SETTINGS),
    built("snmalloc", Dialect::None, ""),
    built("rpmalloc", Dialect::None, ""),
    built("hardened", Dialect::None, ""),
    Known {
        // The C library would take the kernel's restartable sequences, which the caches need for themselves.
        needs: &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")],
        proof: Some(Proof {
            variable: "TCMALLOC_PERCPU_REPORT",
            line: "tcmalloc: per-CPU caches active",
            fact: "per-CPU caches active",
            remedy: "it needs restartable sequences (rseq) of the kernel to itself, in a way that newer kernels may \
                     refuse; without them it has caches per thread, as the allocator tcmalloc",
        }),
        ..built("tcmalloc_percpu", Dialect::None, "")
    },
];

/// Those of a comparison that names none.
pub(super) const USUAL: &[&str] = &[GLIBC, "jemalloc", "tcmalloc", "mimalloc", MEMPOOL];

/// The entry of that name.
pub(super) fn find(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name)
}

impl Known {
    /// How to get it; `None` for what is always there.
    pub(super) fn remedy(&self) -> Option<String> {
        if let Some(package) = self.package {
            return Some(format!("apt-get install {package}"));
        }
        built::NAMES
            .contains(&self.name)
            .then(|| format!("{BUILD} --only {}", self.name))
    }
}

#[cfg(test)]
#[path = "tests/known.rs"]
mod tests;

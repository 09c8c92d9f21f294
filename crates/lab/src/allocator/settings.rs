//! One allocator with the settings that matter, as candidates: `--settings jemalloc`.
//!
//! The lists are from the allocators' own documents: jemalloc's TUNING.md and manual, the chapter on tunables of the C
//! library's manual, the option lists of mimalloc, and gperftools' tcmalloc page. What depends on the version of an
//! allocator has several spellings. Each setting is asked for before it becomes a candidate (`tuning`).

use super::known::{self, Dialect, KNOWN};
use super::{Allocator, AllocatorError, discover, selection};

/// More candidates beside the default make every interval too wide for the time that people wait.
const SETTINGS_MAX: usize = 16;

/// A setting, as what stands behind the allocator's name. Of several spellings the first is taken that the version that is
/// here understands.
struct Choice {
    spellings: &'static [&'static str],
    changes: &'static str,
}

const fn choice(spellings: &'static [&'static str], changes: &'static str) -> Choice {
    Choice { spellings, changes }
}

/// Its defaults: 8 arenas per CPU; thresholds of 128 KiB that rise to what is freed; 7 blocks of a size, up to 1 KiB,
/// cached per thread; a heap that grows by 128 KiB.
const GLIBC_CHOICES: &[Choice] = &[
    choice(
        &[":arena_max=1"],
        "one arena for all threads, whose lock they share",
    ),
    choice(&[":arena_max=2"], "two arenas for all threads"),
    choice(&[":arena_max=4"], "four arenas for all threads"),
    choice(
        &[":mmap_threshold=32768,trim_threshold=32768"],
        "blocks from 32 KiB on come from the kernel and go back to it",
    ),
    // One of the two alone would keep the other from moving, at its usual value.
    choice(
        &[":mmap_threshold=131072,trim_threshold=131072"],
        "both thresholds stay at 128 KiB, not raised to what is freed",
    ),
    choice(
        &[":mmap_threshold=1048576,trim_threshold=1048576"],
        "both thresholds stay at 1 MiB",
    ),
    choice(
        &[":mmap_threshold=33554432,trim_threshold=67108864"],
        "large blocks are reused, up to 64 MiB kept free at the top",
    ),
    choice(&[":tcache_count=0"], "no cache per thread"),
    choice(
        &[":tcache_count=64"],
        "64 cached blocks of a size per thread, not 7",
    ),
    choice(
        &[":tcache_max=256"],
        "only blocks up to 256 bytes are cached per thread",
    ),
    choice(
        &[":mxfast=0"],
        "no fast bins: what is freed is merged at once",
    ),
    choice(
        &[":top_pad=0"],
        "heaps grow by what is needed; both thresholds stay at 128 KiB",
    ),
    choice(
        &[":top_pad=4194304"],
        "heaps grow by 4 MiB more; both thresholds stay at 128 KiB",
    ),
    choice(&[":hugetlb=1"], "asks for transparent huge pages"),
    choice(&["+trim=30s"], "a thread calls malloc_trim every 30 s"),
    choice(
        &[":arena_max=1,mmap_threshold=131072,trim_threshold=131072"],
        "one arena and both thresholds at 128 KiB",
    ),
];

/// Its defaults: 4 arenas per CPU; free pages go back over 10 s, as long as threads call it; blocks up to 32 KiB are cached
/// per thread.
const JEMALLOC_CHOICES: &[Choice] = &[
    choice(&[":narenas=1"], "one arena for all threads"),
    choice(&[":narenas=2"], "two arenas for all threads"),
    choice(&[":percpu_arena=percpu"], "an arena for each CPU"),
    choice(&[":tcache=false"], "no cache per thread"),
    choice(
        &[":lg_tcache_max=12"],
        "blocks up to 4 KiB are cached per thread, not 32 KiB",
    ),
    choice(
        &[":lg_tcache_max=20"],
        "blocks up to 1 MiB are cached per thread, not 32 KiB",
    ),
    choice(&[":dirty_decay_ms=0"], "free pages go back at once"),
    choice(
        &[":dirty_decay_ms=1000"],
        "free pages go back over 1 s, not 10 s",
    ),
    choice(&[":dirty_decay_ms=-1"], "free pages never go back"),
    choice(
        &[":background_thread=true"],
        "threads of its own give free pages back, also while idle",
    ),
    choice(
        &[":background_thread=true,dirty_decay_ms=1000"],
        "threads of its own give free pages back over 1 s",
    ),
    choice(
        &[":background_thread=true,dirty_decay_ms=5000,muzzy_decay_ms=5000"],
        "threads of its own give free pages back in two steps of 5 s",
    ),
    choice(&[":thp=always"], "asks for transparent huge pages"),
    choice(
        &[":metadata_thp=auto"],
        "huge pages for what it keeps of its blocks",
    ),
    choice(
        &[":narenas=2,background_thread=true,dirty_decay_ms=1000"],
        "two arenas, and free pages go back over 1 s",
    ),
    choice(
        &[":narenas=1,tcache=false,dirty_decay_ms=0"],
        "one arena, no cache, free pages go back at once",
    ),
];

/// Before 2.1 options have other names, and version 3 has others again. Its defaults: free pages go back after 10 ms (25
/// before 2.1, 1 s from 3.2 on).
const MIMALLOC_CHOICES: &[Choice] = &[
    choice(
        &[":purge_delay=0", ":decommit_delay=0"],
        "free pages go back at once",
    ),
    choice(
        &[":purge_delay=100", ":decommit_delay=100"],
        "free pages go back after 100 ms",
    ),
    choice(
        &[":purge_delay=5000", ":decommit_delay=5000"],
        "free pages go back after 5 s",
    ),
    choice(
        &[":purge_delay=-1", ":allow_decommit=0"],
        "free pages never go back",
    ),
    choice(
        &[":purge_decommits=0", ":page_reset=1"],
        "free pages are marked as unused, not taken out",
    ),
    choice(
        &[":eager_commit=0"],
        "segments are committed as they are needed",
    ),
    choice(
        &[":eager_commit_delay=0"],
        "the first segment of a thread is committed at once too",
    ),
    choice(
        &[":arena_eager_commit=0"],
        "arenas are committed as they are needed",
    ),
    choice(&[":arena_eager_commit=1"], "arenas are committed at once"),
    choice(
        &[":allow_large_os_pages=1", ":large_os_pages=1"],
        "huge pages where the kernel has them",
    ),
    choice(
        &[":abandoned_page_purge=1", ":abandoned_page_decommit=1"],
        "free pages of threads that have ended go back",
    ),
    choice(
        &[":page_reclaim_on_free=0", ":abandoned_reclaim_on_free=1"],
        "another rule for who takes over pages of threads that have ended",
    ),
    choice(
        &[":max_segment_reclaim=100"],
        "a thread takes over all it finds of those that have ended",
    ),
    choice(
        &[":page_full_retain=0"],
        "no full page of a size is kept in reserve",
    ),
    choice(
        &[":arena_purge_mult=1", ":segment_decommit_delay=0"],
        "whole segments and arenas go back as soon as pages",
    ),
    choice(
        &[
            ":purge_delay=0,arena_eager_commit=0",
            ":decommit_delay=0,eager_commit=0",
        ],
        "free pages go back at once, committed as needed",
    ),
];

/// Its defaults: a release rate of 1, 32 MiB for all caches of threads, 32 blocks moved at once. Sampling is not among them:
/// the usual library, without profilers, has the variable's name in it and does nothing with it.
const TCMALLOC_CHOICES: &[Choice] = &[
    choice(&[":release_rate=0"], "free pages never go back"),
    choice(
        &[":release_rate=10"],
        "free pages go back ten times as fast",
    ),
    choice(
        &[":release_rate=100"],
        "free pages go back a hundred times as fast",
    ),
    choice(&[":aggressive_decommit=1"], "free pages go back at once"),
    choice(
        &[":max_total_thread_cache_bytes=1048576"],
        "1 MiB for all caches of threads, not 32",
    ),
    choice(
        &[":max_total_thread_cache_bytes=8388608"],
        "8 MiB for all caches of threads, not 32",
    ),
    choice(
        &[":max_total_thread_cache_bytes=134217728"],
        "128 MiB for all caches of threads, not 32",
    ),
    choice(
        &[":transfer_num_obj=8"],
        "8 blocks at once between caches and the rest, not 32",
    ),
    choice(
        &[":transfer_num_obj=512"],
        "512 blocks at once between caches and the rest, not 32",
    ),
    choice(&[":skip_sbrk=1"], "memory comes by mmap alone, not by brk"),
    choice(
        &[":release_rate=10,max_total_thread_cache_bytes=8388608"],
        "quicker release and smaller caches",
    ),
    choice(
        &[":aggressive_decommit=1,max_total_thread_cache_bytes=1048576"],
        "release at once and the smallest caches",
    ),
];

const _: () = assert!(
    GLIBC_CHOICES.len() <= SETTINGS_MAX
        && JEMALLOC_CHOICES.len() <= SETTINGS_MAX
        && MIMALLOC_CHOICES.len() <= SETTINGS_MAX
        && TCMALLOC_CHOICES.len() <= SETTINGS_MAX
);

/// Those of an allocator that has a list.
fn choices(dialect: Dialect) -> &'static [Choice] {
    match dialect {
        Dialect::Glibc => GLIBC_CHOICES,
        Dialect::Jemalloc(_) => JEMALLOC_CHOICES,
        Dialect::Mimalloc => MIMALLOC_CHOICES,
        Dialect::Variables("TCMALLOC_") => TCMALLOC_CHOICES,
        Dialect::Variables(_) | Dialect::Scudo | Dialect::None => &[],
    }
}

/// The allocator as it is, then with each setting that it takes.
#[derive(Debug)]
pub(crate) struct SettingsList {
    pub(crate) allocators: Vec<Allocator>,
    /// What the version that is here does not take.
    pub(crate) left_out: Vec<&'static str>,
}

/// The candidates of `--settings NAME`.
pub(crate) fn settings_of(name: &str) -> Result<SettingsList, AllocatorError> {
    let found = discover();
    let known = known::find(name).filter(|known| !choices(known.dialect).is_empty());
    let Some(known) = known else {
        let with_list = KNOWN.iter().filter(|one| !choices(one.dialect).is_empty());
        let names: Vec<&str> = with_list.map(|one| one.name).collect();
        return Err(AllocatorError::NoSettingsList {
            name: name.to_owned(),
            names: names.join(", "),
        });
    };
    let mut list = SettingsList {
        allocators: vec![selection::resolve(name, &found)?],
        left_out: Vec::new(),
    };
    for choice in choices(known.dialect) {
        let words = choice.spellings.iter().map(|text| format!("{name}{text}"));
        let taken = words
            .map(|word| selection::resolve(&word, &found))
            .find_map(Result::ok);
        match taken {
            Some(mut allocator) => {
                allocator.changes = choice.changes;
                list.allocators.push(allocator);
            }
            None => list.left_out.extend(choice.spellings.first()),
        }
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const LISTS: [(&str, &[Choice]); 4] = [
        ("glibc", GLIBC_CHOICES),
        ("jemalloc", JEMALLOC_CHOICES),
        ("mimalloc", MIMALLOC_CHOICES),
        ("tcmalloc", TCMALLOC_CHOICES),
    ];

    /// Goal: each list says of every setting what it changes, briefly, and has none twice.
    #[test]
    fn lists_say_what_changes_and_have_nothing_twice() {
        for (name, list) in LISTS {
            let found = choices(known::find(name).unwrap().dialect);
            assert_eq!(found.len(), list.len(), "{name}");
            let mut seen = BTreeSet::new();
            for choice in list {
                assert!(
                    (8..=64).contains(&choice.changes.len()),
                    "{}",
                    choice.changes
                );
                assert!(seen.insert(choice.changes), "{}", choice.changes);
                for spelling in choice.spellings {
                    assert!(seen.insert(spelling), "{spelling}");
                }
            }
        }
        let mempool = known::find("mempool").unwrap().dialect;
        assert!(choices(mempool).is_empty());
    }

    /// Goal: the default comes first and alone is plain; each other candidate has a setting that its allocator took, a
    /// reason, and a name of its own; few are not understood by what is here.
    #[test]
    fn lists_are_taken_by_what_is_installed() {
        for (name, list) in LISTS {
            if !discover().iter().any(|one| one.name == name) {
                eprintln!("skipped: {name} is not installed; scripts/setup installs it");
                continue;
            }
            let found = settings_of(name).unwrap();
            let (default, others) = found.allocators.split_first().unwrap();
            assert_eq!((default.name.as_str(), default.changes), (name, ""));
            assert_eq!(others.len() + found.left_out.len(), list.len());
            assert!(others.len() >= 8, "{name}: {:?}", found.left_out);
            let names: BTreeSet<&str> = others.iter().map(|one| one.name.as_str()).collect();
            assert_eq!(names.len(), others.len());
            for one in others {
                assert!(one.name.starts_with(name) && !one.changes.is_empty());
                assert!(!one.environment.is_empty(), "{}", one.name);
            }
        }
    }

    /// Goal: what glibc 2.36 and jemalloc 5.3 have is taken whole: a spelling that is wrong would be left out in silence.
    #[test]
    fn current_versions_take_all_settings() {
        for (name, version) in [("glibc", "2.36"), ("jemalloc", "5.3")] {
            let Ok(found) = settings_of(name) else {
                continue;
            };
            let here = found.allocators[0].version().unwrap_or_default();
            if here.starts_with(version) {
                assert!(found.left_out.is_empty(), "{name}: {:?}", found.left_out);
            }
        }
    }

    /// Goal: what has no list is answered with what has one, and how to compare settings of one's own.
    #[test]
    fn allocators_without_a_list_are_refused() {
        for name in ["rpmalloc", "mempool", "jemalloc:narenas=2", "nothing", ""] {
            let told = settings_of(name).unwrap_err().to_string();
            for part in ["glibc, jemalloc", "mimalloc3", "--allocators"] {
                assert!(told.contains(part), "{name}: {told}");
            }
        }
    }
}

//! An object of the user's: `NAME=/PATH/TO/LIBRARY.so` or `NAME@VERSION=/PATH`, with settings.
//!
//! An object whose family is recognised takes the settings of that, checked as those of a known allocator; any other
//! one takes variables as they stand. Everything that can be known to fail is refused here with a sentence, because the
//! dynamic linker only prints to the target's stderr and continues without the library.

use std::fs;
use std::path::Path;

use crate::elf::Elf;

use super::known::{Dialect, KNOWN};
use super::{
    ALL, Allocator, AllocatorError, GLIBC, NATIVE, base_name, discover, family, known, selection,
    tuning, version,
};

/// The allocator of such a word.
pub(super) fn resolve(word: &str, name: &str, rest: &str) -> Result<Allocator, AllocatorError> {
    let (path, settings) = match rest.split_once(':') {
        Some((path, settings)) if settings.contains(['=', ':']) => (path, Some(settings)),
        _ => (rest, None),
    };
    let (mut allocator, elf) = library(name, Path::new(path))?;
    check_version(name, &allocator)?;
    let library = allocator.library.clone().unwrap_or_default();
    let known = family::of_object(name, &library, &elf);
    allocator.family = known.map(|known| known.name);
    let Some(settings) = settings else {
        return Ok(allocator);
    };
    match known {
        Some(known) => selection::give_settings(&mut allocator, known, word, settings)?,
        None => give_variables(&mut allocator, word, settings)?,
    }
    Ok(allocator)
}

/// An object of an unknown family may read any variable: they are passed on unchanged.
fn give_variables(
    allocator: &mut Allocator,
    word: &str,
    settings: &str,
) -> Result<(), AllocatorError> {
    let variables = tuning::parse(settings).map_err(|part| AllocatorError::NoSetting {
        word: word.to_owned(),
        part,
    })?;
    if let Some((key, _)) = variables.iter().find(|(key, _)| !is_variable(key)) {
        return Err(AllocatorError::Setting {
            word: word.to_owned(),
            name: allocator.name.clone(),
            reason: format!(
                "takes only variables as it reads them, NAME=VALUE in capitals, and {key} is none: neither its \
                 file name nor its symbols say of which known allocator it is, whose settings could be checked"
            ),
        });
    }
    allocator.name = format!("{}:{settings}", allocator.name);
    allocator.environment = variables;
    Ok(())
}

fn is_variable(key: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
    let is_part = |byte: u8| is_letter(byte) || byte.is_ascii_digit();
    key.bytes().next().is_some_and(is_letter) && key.bytes().all(is_part)
}

/// `NAME@VERSION` must not be another version, where the object says its own.
fn check_version(name: &str, allocator: &Allocator) -> Result<(), AllocatorError> {
    let Some((_, wanted)) = name.split_once('@') else {
        return Ok(());
    };
    let library = allocator.library.as_deref().unwrap_or(Path::new(""));
    match version::told_by(library) {
        Some(told) if !version::is_of(&told, wanted) => Err(AllocatorError::OtherVersion {
            name: name.to_owned(),
            found: told,
            remedy: format!("{} is that", library.display()),
        }),
        _ => Ok(()),
    }
}

fn library(name: &str, path: &Path) -> Result<(Allocator, Elf), AllocatorError> {
    let unusable = |reason: &str| AllocatorError::Unusable {
        name: name.to_owned(),
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    if ["", GLIBC, NATIVE, ALL].contains(&base_name(name)) {
        return Err(unusable(
            "needs a name of its own (NAME=/PATH/TO/LIBRARY.so)",
        ));
    }
    if !is_expressible(path) {
        return Err(unusable(
            "has a colon or blank in its path, which LD_PRELOAD cannot express",
        ));
    }
    let library =
        fs::canonicalize(path).map_err(|error| unusable(&format!("cannot be opened: {error}")))?;
    match Elf::read(&library) {
        Err(error) => Err(unusable(&format!("cannot be read: {error}"))),
        Ok(None) => Err(unusable("is not a 64-bit ELF shared object")),
        Ok(Some(elf)) if !elf.is_for_this_machine() => {
            Err(unusable("is made for another processor"))
        }
        Ok(Some(elf)) if !elf.is_shared() => Err(unusable("is a program, not a shared object")),
        Ok(Some(elf)) if !elf.exports("malloc") || !elf.exports("free") => Err(unusable(
            "does not export malloc and free, so preloading it would change nothing",
        )),
        Ok(Some(elf)) => Ok((Allocator::preloaded(name, library), elf)),
    }
}

/// LD_PRELOAD splits at colons and blanks; such a path would be two wrong ones.
fn is_expressible(path: &Path) -> bool {
    path.to_str().is_some_and(|text| !text.contains([':', ' ']))
}

/// True if preloading the file gives a program of this machine another malloc.
pub(super) fn can_be_malloc(path: &Path) -> bool {
    let good = |elf: Elf| {
        elf.is_for_this_machine() && elf.is_shared() && elf.exports("malloc") && elf.exports("free")
    };
    is_expressible(path) && Elf::read(path).is_ok_and(|elf| elf.is_some_and(good))
}

// One allocator with the settings that matter, as candidates: `--settings jemalloc`.
//
// The lists are from the allocators' own documents: jemalloc's TUNING.md and manual, the chapter on tunables of the C
// library's manual, the option lists of mimalloc, and gperftools' tcmalloc page. Settings that depend on the version of
// an allocator have several spellings. Each setting is asked for before it becomes a candidate (`tuning`).

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
        "another rule for which thread takes over pages of ended threads",
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
    /// The settings that the installed version does not take.
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
#[path = "tests/settings.rs"]
mod settings_tests;

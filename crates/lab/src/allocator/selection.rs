//! The allocators that were asked for: out of the words of a list, in its order, each with its
//! settings.
//!
//! What the user wrote, against what [`super::discover`] found. A word that cannot be taken is
//! answered with what there is and how to get more.

use std::fmt::Write as _;

use super::tuning::Setting;
use super::{
    ALL, Allocator, AllocatorError, BUILD, GLIBC, MEMPOOL, NATIVE, NOT_TO_BE_HAD, base_name,
    catalogue, discover, effect, remedy, tuning, user, without_settings,
};

/// The allocators of a list of names, in its order. Settings are refused: see
/// [`select_with_settings`].
pub fn select(wanted: &[String]) -> Result<Vec<Allocator>, AllocatorError> {
    let selected = select_with_settings(wanted)?;
    match selected.iter().find(|one| one.name.contains(':')) {
        None => Ok(selected),
        Some(tuned) => Err(AllocatorError::NoSettingsHere {
            word: tuned.name.clone(),
            name: without_settings(&tuned.name).to_owned(),
        }),
    }
}

/// The allocators of a `--allocators` list, in its order, with their settings: the words are what
/// stood between commas, and so are the settings behind the first one of an allocator.
pub fn select_with_settings(wanted: &[String]) -> Result<Vec<Allocator>, AllocatorError> {
    let found = discover();
    let mut selected: Vec<Allocator> = Vec::with_capacity(wanted.len());
    for word in regroup(wanted) {
        let meant = match word.as_str() {
            ALL => found.clone(),
            REMEDIES => all()?,
            _ => vec![resolve(&word, &found)?],
        };
        for allocator in meant {
            if selected
                .iter()
                .any(|earlier| earlier.name == allocator.name)
            {
                return Err(AllocatorError::Twice {
                    name: allocator.name,
                });
            }
            selected.push(allocator);
        }
    }
    Ok(selected)
}

/// Puts settings that a list was split at back to their allocator: `KEY=VALUE` behind a word with
/// settings belongs to it, unless the value is a path, which makes it a library of the user's. So does
/// `KEY:VALUE` whose key is no allocator.
fn regroup(words: &[String]) -> Vec<String> {
    let mut grouped: Vec<String> = Vec::with_capacity(words.len());
    for word in words.iter().map(|word| word.trim()) {
        let is_setting = match word.split_once('=') {
            Some((key, _)) if key.ends_with(effect::MARK) => false,
            Some((key, value)) => !key.contains(':') && !value.contains('/'),
            None => word
                .split_once(':')
                .is_some_and(|(key, _)| find(base_name(key)).is_none()),
        };
        match grouped.last_mut() {
            Some(last) if is_setting && last.contains(':') => {
                last.push(',');
                last.push_str(word);
            }
            _ => grouped.push(word.to_owned()),
        }
    }
    grouped
}

pub(super) fn resolve(word: &str, found: &[Allocator]) -> Result<Allocator, AllocatorError> {
    if let Some(right) = misplaced(word) {
        return Err(AllocatorError::Spelling {
            word: word.to_owned(),
            right,
        });
    }
    if let Some((name, rest)) = word.split_once(effect::MARK) {
        return trimmed(word, name, rest, found);
    }
    // Whichever comes first: `mine=/a.so:X=1` is a library, `jemalloc:narenas=2` has settings.
    match word.find(['=', ':']).map(|at| word.split_at(at)) {
        Some((name, rest)) if rest.starts_with('=') => user::resolve(word, name, &rest[1..]),
        Some((name, rest)) => tuned(word, name, &rest[1..], found),
        None => named(word, found),
    }
}

fn named(word: &str, found: &[Allocator]) -> Result<Allocator, AllocatorError> {
    if word == NATIVE || word == "malloc" {
        return Ok(Allocator::native(GLIBC));
    }
    if let Some(allocator) = found.iter().find(|allocator| allocator.name == word) {
        return Ok(allocator.clone());
    }
    if let Some(allocator) = found.iter().find(|one| one.name == base_name(word)) {
        return of_version(word, allocator);
    }
    let (name, found) = (word.to_owned(), names(found));
    if let Some(remedy) = remedy(word) {
        return Err(AllocatorError::Missing {
            name,
            found,
            remedy,
        });
    }
    if ["lockless", "llalloc"].contains(&word) {
        return Err(AllocatorError::Missing {
            name,
            found,
            remedy: NOT_TO_BE_HAD.to_owned(),
        });
    }
    Err(AllocatorError::Unknown { name, found })
}

/// A known allocator with settings, once it has said that it takes them.
fn tuned(
    word: &str,
    name: &str,
    settings: &str,
    found: &[Allocator],
) -> Result<Allocator, AllocatorError> {
    let mut allocator = named(name, found)?;
    let Some(known) = allocator.family.and_then(find) else {
        return Err(AllocatorError::Unknown {
            name: name.to_owned(),
            found: names(found),
        });
    };
    give_settings(&mut allocator, known, word, settings)?;
    Ok(allocator)
}

/// `glibc+trim=30s`, and settings behind it.
fn trimmed(
    word: &str,
    name: &str,
    rest: &str,
    found: &[Allocator],
) -> Result<Allocator, AllocatorError> {
    let (interval, settings) = match rest.split_once(':') {
        Some((interval, settings)) => (interval, Some(settings)),
        None => (rest, None),
    };
    let mut allocator = match settings {
        Some(settings) => tuned(word, name, settings, found)?,
        None => resolve(name, found)?,
    };
    effect::give(&mut allocator, word, interval)?;
    Ok(allocator)
}

/// Gives an allocator of a known family its settings, once it has said that it takes them. `word` is what the
/// user wrote.
pub(super) fn give_settings(
    allocator: &mut Allocator,
    known: &Known,
    word: &str,
    settings: &str,
) -> Result<(), AllocatorError> {
    let parsed = self::settings(known.dialect, settings);
    let parsed = parsed.map_err(|part| AllocatorError::NoSetting {
        word: word.to_owned(),
        part,
    })?;
    let refused = |reason| AllocatorError::Setting {
        word: word.to_owned(),
        name: known.name.to_owned(),
        reason,
    };
    tuning::ask(known, allocator.library.as_deref(), &parsed).map_err(refused)?;
    allocator.environment = tuning::environment(known.dialect, &parsed);
    allocator.name = format!("{}:{}", allocator.name, canonical(&parsed));
    allocator.settings = parsed;
    Ok(())
}

/// The allocator that is here under the name `word`, which says a version, if it is of that.
fn of_version(word: &str, here: &Allocator) -> Result<Allocator, AllocatorError> {
    let wanted = word.split_once('@').map_or("", |(_, version)| version);
    let found = here.version_alone().unwrap_or_else(|| "unknown".to_owned());
    if !wanted.is_empty() && found.starts_with(wanted) && catalogue::is_of(&found, wanted) {
        return Ok(Allocator {
            name: word.to_owned(),
            ..here.clone()
        });
    }
    Err(AllocatorError::OtherVersion {
        name: word.to_owned(),
        found,
        remedy: format!("another one is given as {word}=/PATH/TO/LIBRARY.so"),
    })
}

fn names(found: &[Allocator]) -> String {
    let mut list = String::new();
    for (index, allocator) in found.iter().enumerate() {
        let _ = write!(
            list,
            "{}{}",
            if index == 0 { "" } else { ", " },
            allocator.name
        );
    }
    list
}

// Settings as people paste them, in the one spelling that candidates are named by.
//
// `selection` and `user` read settings through this. `narenas:2`, `MALLOC_CONF=narenas:2`,
// `MALLOC_ARENA_MAX=2` and `glibc.malloc.arena_max=2` are what manuals and shell scripts have; the same
// setting has the same name here, so that it is not measured twice under two.

/// The settings in `text`, each as `KEY` and `VALUE` of the list; `Err` is the part that is none.
pub(super) fn settings(dialect: Dialect, text: &str) -> Result<Vec<Setting>, String> {
    let mut found = Vec::new();
    for part in text.split(',') {
        for pair in unwrapped(dialect, part) {
            let (key, value) = pair
                .find(['=', ':'])
                .map(|at| (&pair[..at], &pair[at + 1..]))
                .ok_or_else(|| pair.to_owned())?;
            let key = plain_key(dialect, key);
            if key.is_empty() || value.is_empty() {
                return Err(pair.to_owned());
            }
            found.push((key, value.to_owned()));
        }
    }
    Ok(found)
}

/// As the name of a candidate has them.
pub(super) fn canonical(settings: &[Setting]) -> String {
    let pairs: Vec<String> = settings
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    pairs.join(",")
}

/// What stands in a variable that holds several settings: `MALLOC_CONF=a:1` is `a:1`.
fn unwrapped(dialect: Dialect, part: &str) -> Vec<&str> {
    let Some((name, value)) = part.split_once('=') else {
        return vec![part];
    };
    match dialect {
        Dialect::Jemalloc(_) if name.ends_with("MALLOC_CONF") => vec![value],
        Dialect::Glibc if name == "GLIBC_TUNABLES" => value.split(':').collect(),
        Dialect::Glibc if name.starts_with("glibc.") => {
            // Several of them, as they stand in the variable.
            part.split(':').collect()
        }
        Dialect::Scudo if name == "SCUDO_OPTIONS" => value.split(':').collect(),
        _ => vec![part],
    }
}

/// The key without what its variable puts around it.
fn plain_key(dialect: Dialect, key: &str) -> String {
    let without = |start: &str| key.strip_prefix(start);
    match dialect {
        Dialect::Glibc => {
            if let Some(rest) = without("glibc.malloc.").or_else(|| without("glibc.")) {
                return rest.to_owned();
            }
            // The variables of old, MALLOC_TRIM_THRESHOLD_, and the names of mallopt, M_TRIM_THRESHOLD.
            match without("MALLOC_").or_else(|| without("M_")) {
                Some(rest) => rest.trim_end_matches('_').to_lowercase(),
                None => key.to_owned(),
            }
        }
        Dialect::Jemalloc(_) => without("opt.").unwrap_or(key).to_owned(),
        Dialect::Mimalloc => {
            let rest = without("MIMALLOC_").or_else(|| without("mi_option_"));
            rest.unwrap_or(key).to_lowercase()
        }
        Dialect::Variables(prefix) => without(prefix).unwrap_or(key).to_lowercase(),
        Dialect::Scudo | Dialect::None => key.to_owned(),
    }
}

/// How a word that is a setting without its allocator is written here; `None` for any other word.
pub(super) fn misplaced(word: &str) -> Option<String> {
    let at = word.find(['=', ':'])?;
    let (name, value) = (&word[..at], &word[at + 1..]);
    // A library of the user's, or an allocator with settings.
    if value.contains('/') || find(base_name(name)).is_some() {
        return None;
    }
    let known = reader_of_variable(name)
        .and_then(find)
        .or_else(|| reader_of_key(name))?;
    let settings = settings(known.dialect, word).ok()?;
    Some(format!("{}:{}", known.name, canonical(&settings)))
}

/// The family whose variable this is.
pub(crate) fn reader_of_variable(name: &str) -> Option<&'static str> {
    let is_glibcs = name == "GLIBC_TUNABLES" || name.starts_with("glibc.");
    let family = match name {
        _ if is_glibcs => "glibc",
        _ if name.ends_with("MALLOC_CONF") => "jemalloc",
        _ if name.starts_with("TBB_MALLOC_") => "tbb",
        _ if name.starts_with("MALLOC_") => "glibc",
        _ if name.starts_with("MIMALLOC_") => "mimalloc",
        _ if name.starts_with("TCMALLOC_") => "tcmalloc",
        _ if name.starts_with("MEMPOOL_") => "mempool",
        "SCUDO_OPTIONS" => "scudo",
        _ => return None,
    };
    Some(family)
}

/// The first allocator that has it among the settings that people change most.
fn reader_of_key(key: &str) -> Option<&'static Known> {
    let has = |known: &&Known| known.settings.split(", ").any(|setting| setting == key);
    KNOWN.iter().find(has)
}

// What people do against memory that a service keeps, as one list of candidates: `--allocators remedies`.
//
// Each stands for an advice that is given again and again in public: fewer arenas, thresholds that do not move,
// trimming from outside, and the allocators that give memory back by themselves when they are told how soon.

/// The name of the list.
pub const REMEDIES: &str = "remedies";

/// In the order of reports. Of several spellings in one line the first is taken that this version understands.
const LIST: &[&[&str]] = &[
    &["glibc"],
    &["glibc:arena_max=2"],
    // One of the two alone would keep the other from moving, at its usual value.
    &["glibc:mmap_threshold=131072,trim_threshold=131072"],
    &["glibc+trim=30s"],
    &["jemalloc"],
    &["jemalloc:background_thread=true,dirty_decay_ms=5000,muzzy_decay_ms=5000"],
    &["mimalloc:purge_delay=0", "mimalloc:decommit_delay=0"],
    &["tcmalloc:release_rate=10"],
];

/// Those that are here. An allocator that is not installed is left out, as `all` leaves it out; what keeps another one
/// from being used is an error.
pub(super) fn all() -> Result<Vec<Allocator>, AllocatorError> {
    let mut found = Vec::with_capacity(LIST.len());
    for spellings in LIST {
        if let Some(allocator) = first_of(spellings)? {
            found.push(allocator);
        }
    }
    Ok(found)
}

fn first_of(spellings: &[&str]) -> Result<Option<Allocator>, AllocatorError> {
    let mut refusal = None;
    for &spelling in spellings {
        let words: Vec<String> = spelling.split(',').map(str::to_owned).collect();
        match select_with_settings(&words) {
            Ok(selected) => return Ok(selected.into_iter().next()),
            Err(AllocatorError::Missing { .. }) => return Ok(None),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    refusal.map_or(Ok(None), Err)
}

// The allocators that have a name here: where the distribution has them, and how they are set up.

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

/// What is known of an allocator.
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
    /// What a probe has to show before it is compared under its name.
    pub(super) proof: Option<Proof>,
}

/// A line that an allocator writes to stderr at the end of a program, if it is asked to.
#[derive(Debug)]
pub(super) struct Proof {
    /// Asks for it.
    pub(super) variable: &'static str,
    pub(super) line: &'static str,
    /// What the line proves, for the record.
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
        catalogue::NAMES
            .contains(&self.name)
            .then(|| format!("{BUILD} --only {}", self.name))
    }
}

#[cfg(test)]
#[path = "tests/selection.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/spelling.rs"]
mod spelling_tests;

#[cfg(test)]
#[path = "tests/remedies.rs"]
mod remedies_tests;

#[cfg(test)]
#[path = "tests/known.rs"]
mod known_tests;

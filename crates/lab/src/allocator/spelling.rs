//! Settings as people paste them, in the one spelling that candidates are named by.
//!
//! `selection` and `user` read settings through this. `narenas:2`, `MALLOC_CONF=narenas:2`,
//! `MALLOC_ARENA_MAX=2` and `glibc.malloc.arena_max=2` are what manuals and shell scripts have; the same
//! setting has the same name here, so that it is not measured twice under two.

use super::base_name;
use super::known::{self, Dialect, KNOWN, Known};
use super::tuning::Setting;

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
    if value.contains('/') || known::find(base_name(name)).is_some() {
        return None;
    }
    let known = reader_of_variable(name)
        .and_then(known::find)
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

#[cfg(test)]
mod tests {
    use super::*;

    const JEMALLOC: Dialect = Dialect::Jemalloc("MALLOC_CONF");

    /// Goal: what manuals and scripts have becomes the same settings as the short spelling, for every family.
    #[test]
    fn pasted_spellings_are_understood() {
        let read = |dialect, text: &str| settings(dialect, text).map(|found| canonical(&found));
        let cases = [
            (
                JEMALLOC,
                "narenas=2,dirty_decay_ms=0",
                "narenas=2,dirty_decay_ms=0",
            ),
            (
                JEMALLOC,
                "narenas:2,dirty_decay_ms:0",
                "narenas=2,dirty_decay_ms=0",
            ),
            (
                JEMALLOC,
                "MALLOC_CONF=narenas:2,thp:never",
                "narenas=2,thp=never",
            ),
            (JEMALLOC, "_RJEM_MALLOC_CONF=narenas:2", "narenas=2"),
            (JEMALLOC, "opt.narenas:2", "narenas=2"),
            (Dialect::Glibc, "arena_max=2", "arena_max=2"),
            (
                Dialect::Glibc,
                "MALLOC_ARENA_MAX=2,MALLOC_TOP_PAD_=0",
                "arena_max=2,top_pad=0",
            ),
            (
                Dialect::Glibc,
                "M_MMAP_THRESHOLD=4096",
                "mmap_threshold=4096",
            ),
            (Dialect::Glibc, "glibc.malloc.arena_max=2", "arena_max=2"),
            (
                Dialect::Glibc,
                "GLIBC_TUNABLES=glibc.malloc.arena_max=2:glibc.pthread.rseq=0",
                "arena_max=2,pthread.rseq=0",
            ),
            (
                Dialect::Glibc,
                "glibc.malloc.arena_max=2:glibc.malloc.perturb=1",
                "arena_max=2,perturb=1",
            ),
            (Dialect::Mimalloc, "MIMALLOC_PURGE_DELAY=0", "purge_delay=0"),
            (
                Dialect::Mimalloc,
                "mi_option_purge_delay=0",
                "purge_delay=0",
            ),
            (
                Dialect::Variables("TCMALLOC_"),
                "TCMALLOC_RELEASE_RATE=10",
                "release_rate=10",
            ),
            (
                Dialect::Variables("MEMPOOL_"),
                "checks=fail=2",
                "checks=fail=2",
            ),
            (Dialect::Scudo, "SCUDO_OPTIONS=a=1:b=2", "a=1,b=2"),
        ];
        for (dialect, text, expected) in cases {
            assert_eq!(read(dialect, text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(read(Dialect::Glibc, "a=1,b"), Err("b".to_owned()));
        assert_eq!(read(Dialect::Glibc, "=1"), Err("=1".to_owned()));
        assert_eq!(read(JEMALLOC, "MALLOC_CONF="), Err(String::new()));
    }

    /// Goal: a setting without its allocator is answered with where it belongs; names of allocators and of
    /// libraries are not taken for settings.
    #[test]
    fn a_setting_without_its_allocator_is_known() {
        for (word, right) in [
            ("MALLOC_ARENA_MAX=2", "glibc:arena_max=2"),
            ("glibc.malloc.arena_max=2", "glibc:arena_max=2"),
            ("narenas:2", "jemalloc:narenas=2"),
            ("MALLOC_CONF=narenas:2", "jemalloc:narenas=2"),
            ("MIMALLOC_PURGE_DELAY=0", "mimalloc:purge_delay=0"),
            ("release_rate=10", "tcmalloc:release_rate=10"),
        ] {
            assert_eq!(misplaced(word).as_deref(), Some(right), "{word}");
        }
        for word in [
            "glibc",
            "jemalloc:narenas=2",
            "mine=/a/b.so",
            "mine=b.so",
            "x=/b.so:A=1",
        ] {
            assert_eq!(misplaced(word), None, "{word}");
        }
    }
}

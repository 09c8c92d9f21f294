//! Settings as people paste them, in the one spelling that candidates are named by.
//!
//! `selection` and `user` read settings through this. `narenas:2`, `MALLOC_CONF=narenas:2`,
//! `MALLOC_ARENA_MAX=2` and `glibc.malloc.arena_max=2` are what manuals and shell scripts have; the same
//! setting has the same name here, so that it is not measured twice under two.

use super::base_name;
use super::known::{Dialect, KNOWN, Known, find};
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

/// The value of a variable that holds several settings: `MALLOC_CONF=a:1` is `a:1`.
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

#[cfg(test)]
#[path = "tests/settings_spelling.rs"]
mod tests;

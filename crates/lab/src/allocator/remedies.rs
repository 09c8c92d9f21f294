//! What people do against memory that a service keeps, as one list of candidates: `--allocators remedies`.
//!
//! Each stands for an advice that is given again and again in public: fewer arenas, thresholds that do not move,
//! trimming from outside, and the allocators that give memory back by themselves when they are told how soon.

use super::{Allocator, AllocatorError, select_with_settings};

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the list is what is here of it, in its order, each with the settings that make it a remedy.
    #[test]
    fn remedies_are_those_that_are_here() {
        let words = [REMEDIES.to_owned()];
        let selected = select_with_settings(&words).unwrap();
        let names: Vec<&str> = selected.iter().map(|one| one.name.as_str()).collect();
        let glibcs = [
            "glibc",
            "glibc:arena_max=2",
            "glibc:mmap_threshold=131072,trim_threshold=131072",
            "glibc+trim=30s",
        ];
        assert_eq!(names[..4], glibcs);
        let here = super::super::discover();
        for name in ["jemalloc", "mimalloc", "tcmalloc"] {
            let is_here = here.iter().any(|allocator| allocator.name == name);
            assert_eq!(
                names.iter().any(|one| one.starts_with(name)),
                is_here,
                "{names:?}"
            );
        }
        let tuned = selected.iter().filter(|one| !one.is_plain()).count();
        assert_eq!(tuned, selected.len() - 1, "{names:?}");
    }
}

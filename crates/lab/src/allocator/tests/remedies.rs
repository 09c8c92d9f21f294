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

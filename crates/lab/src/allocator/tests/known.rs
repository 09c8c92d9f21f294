use super::*;

/// Goal: the table is complete: what is built is in it, names are unique, and everything that
/// may be missing says how to get it.
#[test]
fn the_table_is_complete() {
    for (index, known) in KNOWN.iter().enumerate() {
        assert!(KNOWN[..index].iter().all(|other| other.name != known.name));
        let is_always_there = [GLIBC, MEMPOOL].contains(&known.name);
        assert_eq!(known.remedy().is_none(), is_always_there, "{}", known.name);
        assert_eq!(known.settings.is_empty(), known.dialect == Dialect::None);
    }
    assert!(
        crate::allocator::built::NAMES
            .iter()
            .all(|name| find(name).is_some())
    );
    assert!(USUAL.iter().all(|name| find(name).is_some()));
}

/// Goal: an allocator is listed under the variables that it reads, also one that is not in the table yet. Every prefix
/// that was not spelled out was listed as `MEMPOOL_*` once.
#[test]
fn variables_are_listed_by_their_own_prefix() {
    assert_eq!(Dialect::Variables("NEW_").variable(), "NEW_*");
    let listed = [
        "tcmalloc",
        "tbb",
        "mempool",
        "mimalloc",
        "jemalloc531",
        "snmalloc",
    ]
    .map(|name| find(name).map(|known| known.dialect.variable()));
    let expected = [
        "TCMALLOC_*",
        "TBB_MALLOC_*",
        "MEMPOOL_*",
        "MIMALLOC_*",
        "_RJEM_MALLOC_CONF",
        "",
    ];
    assert_eq!(listed, expected.map(|variable| Some(variable.to_owned())));
}

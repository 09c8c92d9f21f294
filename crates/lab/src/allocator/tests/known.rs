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
        crate::allocator::catalogue::NAMES
            .iter()
            .all(|name| find(name).is_some())
    );
    assert!(USUAL.iter().all(|name| find(name).is_some()));
}

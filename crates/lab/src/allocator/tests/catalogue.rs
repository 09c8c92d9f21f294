use super::*;

/// Goal: every line says either where the allocator is or how to get it, never both; what is
/// here has a version.
#[test]
fn every_allocator_is_here_or_to_be_had() {
    let list = catalogue();
    assert_eq!(list.len(), KNOWN.len());
    for entry in list {
        assert_ne!(entry.place.is_some(), entry.remedy.is_some(), "{entry:?}");
        assert_eq!(entry.place.is_some(), entry.version.is_some(), "{entry:?}");
        assert_eq!(
            entry.settings.is_empty(),
            entry.variable.is_empty(),
            "{entry:?}"
        );
    }
}

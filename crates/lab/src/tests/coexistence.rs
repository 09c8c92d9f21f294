use super::*;

/// Goal: copies that do not fit into memory together do not run together, and the reason says how much was needed.
#[test]
fn memory_bounds_how_many_live() {
    let fits = Found::new(Coexistence::Namespaces).within_memory(1 << 20, 3);
    assert_eq!(fits.way, Coexistence::Namespaces);
    assert!(fits.note().unwrap().contains("network namespace"));
    let found = Found::new(Coexistence::PortInCommand);
    assert_eq!(found.note(), None);
    let found = found.within_memory(1 << 50, 3);
    assert_eq!(found.way, Coexistence::OneAtATime);
    let note = found.note().unwrap();
    assert!(
        note.contains("3 copies of 1 PiB") || note.contains("3 copies of 1024 TiB"),
        "{note}"
    );
}

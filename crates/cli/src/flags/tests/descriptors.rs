use super::*;

/// `ulimit -n 1024`, 1,500 idle connections, and the store could open no file any more.
///
/// Goal: connections take what is left beside the server's own files and no more, and what is said has the number
/// that is enough; with enough nothing is said, and with too few for anything the server does not start.
#[test]
fn connections_fit_beside_the_servers_own_files() {
    let room = ConnectionRoom::within(1024, "entity", 2, false);
    let connections = room.connections(16_384).unwrap();
    assert!(
        (400..1024 - room.reserved).contains(&connections),
        "{connections}"
    );
    assert!(room.needed(connections) <= 1024);
    assert!(room.reserved >= OTHER_FILES + 256, "{room:?}");
    let note = room.note(16_384).unwrap();
    for part in [
        format!("at most {connections} of 16384 connections"),
        "1024 files".to_owned(),
        format!("`ulimit -n {}`", 16_384 + 2 * 256 + room.reserved),
    ] {
        assert!(note.contains(&part), "{part}: {note}");
    }
    assert_eq!(room.connections(100), Ok(100));
    assert_eq!(room.note(100), None);
    let proxy = ConnectionRoom::within(1024, "proxy", 2, true);
    assert!(proxy.needed(proxy.connections(16_384).unwrap()) <= 1024);
    let beside = proxy.beside(128);
    assert!(beside.needed(beside.connections(16_384).unwrap()) <= 1024);
    assert!(beside.connections(16_384).unwrap() < proxy.connections(16_384).unwrap());
    let unlimited = ConnectionRoom::within(u64::MAX, "plaintext", 1, false);
    assert_eq!(unlimited.connections(u64::MAX / 2), Ok(u64::MAX / 2));
    let none = ConnectionRoom::within(64, "entity", 2, false)
        .connections(16_384)
        .unwrap_err();
    assert!(none.contains("64 files may be open"), "{none}");
}

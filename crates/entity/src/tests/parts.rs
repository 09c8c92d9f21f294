use super::*;
use crate::store::memory::MemoryStore;
use crate::store::{Durability, Write};

/// Goal: all keys of parts lie behind all ids, sets in the order of their versions and parts in that of their indexes.
#[test]
fn keys_lie_behind_all_ids() {
    let longest = [0xff; ID_BYTES_MAX];
    assert!(&longest[..] < IDS_END && !is_part(&longest));
    let keys: Vec<Vec<u8>> = vec![
        header_key(Version(0)).into(),
        header_key(Version(u64::MAX)).into(),
        part_key(Version(0), 0).into(),
        part_key(Version(0), u32::MAX).into(),
        part_key(Version(256), 1).into(),
        part_key(Version(256), 256).into(),
    ];
    assert!(keys.is_sorted());
    for key in &keys {
        assert!(&key[..] > IDS_END && is_part(key));
    }
    assert_eq!(set_of_part(&keys[4]), Some(Version(256)));
    assert_eq!(set_of_part(&keys[1]), None);
    assert_eq!(set_of_header(&keys[1]), Some(Version(u64::MAX)));
    assert_eq!(set_of_header(&keys[4]), None);
}

/// All parts of a value of unknown length were read to count them, and of one that was cut off the announced number was
/// deleted.
///
/// Goal: the count is exact, whatever was announced, and few parts are read.
#[test]
fn parts_are_counted_by_a_few_looks() {
    let store = MemoryStore::new();
    let commit = |key: &[u8]| {
        let (head, value) = (&b""[..], &b"part"[..]);
        let put = Write::Put { key, head, value };
        store
            .commit([put].into_iter(), 10, Durability::Written)
            .unwrap();
    };
    let set = Version(7);
    // Of its neighbours.
    commit(&part_key(Version(6), 3));
    commit(&part_key(Version(8), 0));
    for count in 0..70 {
        let held = store.hold().unwrap();
        let snapshot = held.snapshot();
        for announced in [COUNT_UNKNOWN, count.max(1), count + 1, 100, 4000, u32::MAX] {
            let counted = count_parts(&snapshot, set, announced).unwrap();
            assert_eq!(counted, count, "{announced} announced");
        }
        drop(snapshot);
        drop(held);
        commit(&part_key(set, count));
    }
}

/// Goal: a set in use is not condemned, and a condemned set is not taken into use.
#[test]
fn pins_and_deletion_exclude_each_other() {
    let sets = PartSets::default();
    let (used, dead) = (Version(1), Version(2));
    assert!(sets.pin(used) && sets.pin(used));
    sets.unpin(used);
    for set in [used, dead, dead] {
        sets.condemn(DeadSet { set, parts: 1 });
    }
    assert!(!sets.pin(dead));
    assert_eq!(
        sets.next_dead(),
        Some(DeadSet {
            set: dead,
            parts: 1
        })
    );
    assert_eq!(sets.next_dead(), None);
    assert!(!sets.pin(dead), "it is being deleted");
    sets.let_go(dead);
    assert!(
        sets.pin(dead),
        "its parts are not found, which tells as much"
    );
    sets.unpin(used);
    assert_eq!(sets.lock().pinned.len(), 1);
}

use super::super::selection::version_tests::version;
use super::*;
use millpond_mempool::{BlockPool, PoolMode};
use proptest::prelude::*;
use std::time::SystemTime;

fn file(blocks: &BlockPool, bytes: &[u8]) -> CachedFile {
    let mut body = Buffer::new();
    body.extend_from_slice(blocks, bytes).unwrap();
    let version = version(bytes.len() as u64, 1);
    CachedFile {
        version,
        validators: Validators::new(&version, SystemTime::UNIX_EPOCH),
        media_type: FieldValue::TEXT_PLAIN,
        body,
    }
}

/// Goal: an entry is fresh for a second from its last check, and a check renews it.
#[test]
fn an_entry_is_believed_for_a_second() {
    let blocks = BlockPool::new("test", PoolMode::On);
    let mut cache = Cache::new(1 << 20);
    assert_eq!(cache.find(b"a", 0), Known::Nothing);
    assert_eq!(cache.insert(b"a", file(&blocks, b"1"), 5).unwrap(), (0, 0));
    assert_eq!(cache.find(b"a", 4 + FRESH_NS), Known::Fresh(0));
    assert_eq!(cache.find(b"a", 5 + FRESH_NS), Known::Old(0));
    cache.refresh(0, 5 + FRESH_NS);
    assert_eq!(cache.find(b"a", 6 + FRESH_NS), Known::Fresh(0));
    cache.insert(b"a", file(&blocks, b"2"), 9).unwrap();
    assert_eq!((cache.len(), &*cache.file(0).body), (1, &b"2"[..]));
}

/// Goal: entries not used lately are evicted for room; files that never fit are given back.
#[test]
fn used_entries_stay() {
    let blocks = BlockPool::new("test", PoolMode::On);
    let one = ENTRY_BYTES + 2 + file(&blocks, &[0; 100]).body.capacity();
    let mut cache = Cache::new(3 * one);
    for name in [b"a", b"b", b"c"] {
        cache.insert(name, file(&blocks, &[0; 100]), 0).unwrap();
    }
    assert_ne!(cache.find(b"a", 0), Known::Nothing);
    let (_, evicted_count) = cache.insert(b"d", file(&blocks, &[0; 100]), 0).unwrap();
    assert_eq!(evicted_count, 1);
    assert_ne!(cache.find(b"a", 0), Known::Nothing);
    assert_ne!(cache.find(b"d", 0), Known::Nothing);
    assert_eq!(cache.insert(b"e", file(&blocks, &[0; 3000]), 0), None);
    assert_eq!(cache.len(), 3);
    assert!(!cache.takes(3 * one as u64) && cache.takes(100));
    assert!(!Cache::new(1 << 30).takes(FILE_BYTES_MAX + 1));
}

proptest! {
    /// Goal: after any insertions and removals every name leads to its own bytes, and the sum of
    /// bytes is that of the entries and below the limit.
    #[test]
    fn names_lead_to_their_own_bytes(steps in proptest::collection::vec((0_u8..12, 0_usize..4), 0..200)) {
        let blocks = BlockPool::new("test", PoolMode::On);
        let mut cache = Cache::new(8 * (ENTRY_BYTES + 66));
        let mut latest = HashMap::new();
        for (name, kind) in steps {
            match kind {
                0 => cache.remove(&[name]),
                1 => { cache.find(&[name], 0); }
                _ => {
                    let body = [name, kind as u8, latest.len() as u8];
                    latest.insert(name, body);
                    cache.insert(&[name], file(&blocks, &body), 0).unwrap();
                }
            }
            let sum: usize = cache.entries.iter().map(CacheEntry::bytes).sum();
            prop_assert_eq!(sum, cache.bytes());
            prop_assert!(sum <= cache.capacity_bytes);
            prop_assert_eq!(cache.places.len(), cache.len());
            for name in 0..12 {
                if let Known::Fresh(place) = cache.find(&[name], 0) {
                    prop_assert_eq!(&*cache.file(place).body, &latest[&name][..]);
                }
            }
        }
    }
}

//! Reads that may not wait, of an engine that has not read its tables yet.

use millpond_entity::store::{CachedRead, Durability, Write};
use millpond_entity::{Engine, EntityConfig, Store, open};

/// A read from memory returns success and an empty value if the engine would have to open a table first; only if it
/// would have to read a block is it an error. Such reads were taken for the entity's value, which they never are: a
/// record has a head.
///
/// Goal: behind a restart every such read finds the value or nothing certain, and the disk has it.
#[test]
fn table_that_is_not_open_is_not_an_empty_value() {
    let parent = tempfile::tempdir().unwrap();
    let mut config = EntityConfig::new(parent.path().join("data"));
    config.memtable_bytes = 3 << 20;
    let mut random = fastrand::Rng::with_seed(6);
    let value: Vec<u8> = (0..50_000).map(|_| random.u8(..)).collect();
    let keys: Vec<[u8; 4]> = (0..2000_u32).map(u32::to_be_bytes).collect();
    {
        let store = open(&config).unwrap();
        for key in &keys {
            let write = Write::Put {
                key,
                head: &[],
                value: &value,
            };
            let batch = [write].into_iter();
            store
                .commit(batch, value.len(), Durability::Written)
                .unwrap();
        }
    }
    let store = open(&config).unwrap();
    let mut uncertain = 0;
    for key in &keys {
        match store.get_cached(key, <[u8]>::to_vec).unwrap() {
            CachedRead::Found(found) => assert_eq!(found.len(), value.len(), "{key:?}"),
            CachedRead::NotCached => uncertain += 1,
            CachedRead::Absent => panic!("{key:?} is there"),
        }
        assert!(store.get(key, |found| found == value).unwrap().unwrap());
    }
    assert!(uncertain > 0, "all of it was in memory");
}

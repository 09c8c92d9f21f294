use super::*;
use crate::config::Compression;
use crate::store::rocksdb::{RocksDbOptions, RocksDbStore};
use crate::store::{Durability, Write};
use std::ops::ControlFlow;

const OPTIONS: RocksDbOptions = RocksDbOptions {
    block_cache_bytes: 1 << 20,
    memtable_bytes: 3 << 20,
    disk_reserve_bytes: Some(0),
    compression: Compression::Lz4,
    accepts_loss: false,
    reads_only: false,
};

type Entities = Vec<(Vec<u8>, Vec<u8>)>;

/// Bare values of any form, including those like expired records.
fn entities() -> Entities {
    let values = |n: u8| match n % 4 {
        0 => Vec::new(),
        1 => record(Version(1), b"x"),
        2 => [&[1, 0][..], &[0; 8], &1_u64.to_le_bytes(), b"ended"].concat(),
        _ => vec![n; 300],
    };
    (0..40).map(|n| (vec![n], values(n))).collect()
}

fn directory_of_format_1(path: &Path) {
    let store = RocksDbStore::open(path, OPTIONS).unwrap();
    let entities = entities();
    let writes = entities.iter().map(|(key, value)| Write::Put {
        key,
        head: b"",
        value,
    });
    store.commit(writes, 0, Durability::Synced).unwrap();
    std::fs::write(path.join("MILLPOND"), "millpond entity data, format 1\n").unwrap();
}

fn values(store: &RocksDbStore) -> Entities {
    let mut found = Vec::new();
    let visit = &mut |key: &[u8], record: &[u8]| {
        let (head, Value::Whole(value)) = Head::split(record).unwrap() else {
            panic!("{key:?} is in parts");
        };
        assert_eq!((head.expires_ms, head.content_type), (0, &b""[..]));
        found.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    store
        .hold()
        .unwrap()
        .snapshot()
        .visit(b"", None, visit)
        .unwrap();
    found
}

/// Goal: a directory of format 1 is read as what it held, also after a compaction, and opened again
/// it is rewritten no second time.
#[test]
fn bare_values_become_records() {
    let data = tempfile::tempdir().unwrap();
    directory_of_format_1(data.path());
    for _ in 0..2 {
        let store = RocksDbStore::open(data.path(), OPTIONS).unwrap();
        assert_eq!(values(&store), entities());
        store.compact().unwrap();
        assert_eq!(values(&store), entities());
    }
    assert_eq!(data_dir::prepare(data.path()).unwrap(), Found::Current);
}

/// Goal: wherever an upgrade is cut off, the next opening completes it: every value once in a record,
/// none twice.
#[test]
fn interrupted_upgrade_goes_on() {
    for batches in 0..=10 {
        for is_marked_current in [false, true] {
            let data = tempfile::tempdir().unwrap();
            directory_of_format_1(data.path());
            data_dir::mark_upgrading(data.path()).unwrap();
            let db = DB::open_default(data.path()).unwrap();
            let batches = if is_marked_current {
                usize::MAX
            } else {
                batches
            };
            rewrite(&db, 700, batches).unwrap();
            drop(db);
            if is_marked_current {
                data_dir::mark_current(data.path()).unwrap();
            }
            let store = RocksDbStore::open(data.path(), OPTIONS).unwrap();
            assert_eq!(values(&store), entities(), "cut off after {batches}");
        }
    }
}

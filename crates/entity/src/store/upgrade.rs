//! Rewrites a data directory of format 1, whose values were bare, into records.
//!
//! ```text
//! MILLPOND says "format 3, upgrading"   from here on older builds refuse the directory
//! batch: records of the next keys, and under the empty key the last of them      again and again
//! MILLPOND says "format 3"
//! the empty key goes
//! ```
//! No id is empty, so that key is free. It is written in one batch with the records it speaks of: all
//! keys up to it are records, all behind it are bare, wherever the power fails. It is deleted last,
//! because "upgrading" without it means that nothing is rewritten yet.
//!
//! Place: `rocksdb` calls this before it opens a directory for good. In place, a megabyte at a time: a
//! copy would need the room twice.
//! Absent on purpose: the way back.

use std::path::Path;

use rocksdb::{DB, WriteBatch, WriteOptions};

use crate::data_dir::{self, DataDirError, Found};
#[cfg(test)]
use crate::record::Value;
use crate::record::{HEAD_BYTES_MAX, Head, Version, Versions};

const CURSOR: &[u8] = b"";

/// A batch takes records until it has these many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Rewrites what is not yet rewritten.
///
/// # Errors
/// [`DataDirError`]; opening the directory again goes on with it.
pub(super) fn run(db: &DB, path: &Path, found: Found) -> Result<(), DataDirError> {
    if found == Found::Format1 {
        data_dir::mark_upgrading(path)?;
    }
    rewrite(db, BATCH_BYTES, usize::MAX).map_err(|error| refused(path, &error))?;
    data_dir::mark_current(path)
}

/// Removes what an upgrade left that was cut off at its very end.
///
/// # Errors
/// [`DataDirError`].
pub(super) fn clean_up(db: &DB, path: &Path) -> Result<(), DataDirError> {
    let clean_up = || match db.get_pinned(CURSOR)? {
        Some(_) => db.delete_opt(CURSOR, &synced()),
        None => Ok(()),
    };
    clean_up().map_err(|error| refused(path, &error))
}

fn refused(path: &Path, error: &rocksdb::Error) -> DataDirError {
    DataDirError::Engine {
        path: path.to_owned(),
        cause: format!("upgrading it from format 1: {error}"),
    }
}

fn synced() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}

/// Writes `batches_max` batches at most.
fn rewrite(db: &DB, batch_bytes: usize, batches_max: usize) -> Result<(), rocksdb::Error> {
    // The iterator shows what was there when it was made, so it never meets what is written here.
    let mut bare = db.raw_iterator();
    let done = db.get(CURSOR)?;
    bare.seek(done.as_deref().unwrap_or(CURSOR));
    // One for all: a version has to be new to its id.
    let version = Versions::new(0).unused();
    let mut batches = 0;
    while batches < batches_max {
        let mut batch = WriteBatch::default();
        let mut last = None;
        while batch.size_in_bytes() < batch_bytes
            && let Some((key, value)) = bare.item()
        {
            // Where it stopped the last time is a record already.
            if key != CURSOR && Some(key) != done.as_deref() {
                batch.put(key, record(version, value));
                last = Some(key.to_vec());
            }
            bare.next();
        }
        bare.status()?;
        let Some(last) = last else { break };
        batch.put(CURSOR, last);
        db.write_opt(batch, &synced())?;
        batches += 1;
    }
    Ok(())
}

fn record(version: Version, value: &[u8]) -> Vec<u8> {
    let head = Head {
        version,
        expires_ms: 0,
        content_type: b"",
        content_encoding: b"",
    };
    let mut room = [0; HEAD_BYTES_MAX];
    let len = head.write(&mut room);
    [&room[..len], value].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Compression;
    use crate::store::rocksdb::{RocksDbOptions, RocksDbStore};
    use crate::store::{Durability, Held as _, Snapshot as _, Store as _, Write};
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

    /// Bare values that look like anything, records that have ended included.
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
}

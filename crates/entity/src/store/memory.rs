//! The oracle: a sorted map behind the same trait, with a model of what a power loss leaves.
//!
//! Place: tests only; the same tests run against this store and RocksDB, and against both under
//! `faulty`.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    CachedRead, Disk, Durability, Engine, EngineGauges, EngineInfo, Held, Linkage, Snapshot, Store,
    StoreError, Visit, Write,
};
use crate::data_dir::DataDirError;
use crate::parts::{self, PartSets};
use std::path::Path;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Entities in memory. Invariant: `synced` is what `visible` was at some earlier commit.
#[derive(Debug, Default)]
pub struct MemoryStore {
    maps: Arc<Mutex<Maps>>,
}

#[derive(Debug, Default)]
struct Maps {
    visible: Map,
    synced: Map,
    /// Changes of `visible` since `synced` was last equal to it.
    unsynced: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Maps {
    fn sync(&mut self) {
        for (key, value) in self.unsynced.drain(..) {
            match value {
                Some(value) => self.synced.insert(key, value),
                None => self.synced.remove(&key),
            };
        }
        debug_assert_eq!(self.synced, self.visible);
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All entities, as a reader sees them now.
    #[must_use]
    pub fn contents(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.maps().visible.clone()
    }

    /// The state after a power loss at this moment, at worst: synced batches only.
    #[must_use]
    pub fn after_power_loss(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.maps().synced.clone()
    }

    fn maps(&self) -> MutexGuard<'_, Maps> {
        // A test that panicked while holding the lock has already failed.
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The maps, of which snapshots are copies.
#[derive(Debug)]
pub struct MemoryHeld(Arc<Mutex<Maps>>);

impl Held for MemoryHeld {
    type Snapshot<'a> = MemorySnapshot;

    fn snapshot(&self) -> MemorySnapshot {
        let maps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        MemorySnapshot(maps.visible.clone())
    }
}

/// A copy of all that was there.
#[derive(Debug)]
pub struct MemorySnapshot(Map);

impl Snapshot for MemorySnapshot {
    fn visit(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        if end.is_some_and(|end| end <= from) {
            return Ok(());
        }
        let end = end.map_or(Bound::Unbounded, Bound::Excluded);
        let mut entities = self.0.range::<[u8], _>((Bound::Included(from), end));
        // A visitor that breaks off wants no more; there is nothing to distinguish.
        let _ = entities.try_for_each(|(key, value)| visit(key, value));
        Ok(())
    }
}

impl Engine for MemoryStore {
    fn get_cached<R>(
        &self,
        key: &[u8],
        found: impl FnOnce(&[u8]) -> R,
    ) -> Result<CachedRead<R>, StoreError> {
        Ok(match self.get(key, found)? {
            Some(result) => CachedRead::Found(result),
            None => CachedRead::Absent,
        })
    }

    fn engine(&self) -> EngineInfo {
        EngineInfo {
            name: "memory",
            version: env!("CARGO_PKG_VERSION").to_owned(),
            linkage: Linkage::Bundled,
        }
    }

    fn gauges(&self) -> EngineGauges {
        EngineGauges::default()
    }

    fn checkpoint(&self, path: &Path) -> Result<(), DataDirError> {
        Err(DataDirError::Engine {
            path: path.to_owned(),
            cause: "a store in memory has no files".to_owned(),
        })
    }

    fn disk(&self) -> Option<Disk> {
        None
    }

    fn keeps_parts(&self) -> bool {
        true
    }

    fn find_dead_parts(&self, sets: &PartSets) -> Result<usize, StoreError> {
        parts::find_dead(self, sets)
    }
}

impl Store for MemoryStore {
    type Held = MemoryHeld;

    fn hold(&self) -> Result<MemoryHeld, StoreError> {
        Ok(MemoryHeld(Arc::clone(&self.maps)))
    }

    fn get<R>(&self, key: &[u8], found: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, StoreError> {
        Ok(self.maps().visible.get(key).map(|value| found(value)))
    }

    fn commit<'a>(
        &self,
        writes: impl Iterator<Item = Write<'a>>,
        _batch_bytes: usize,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let mut maps = self.maps();
        for write in writes {
            let (key, value) = match write {
                Write::Put { key, head, value } => (key.to_vec(), Some([head, value].concat())),
                Write::Delete { key } => (key.to_vec(), None),
            };
            match value.clone() {
                Some(value) => maps.visible.insert(key.clone(), value),
                None => maps.visible.remove(&key),
            };
            maps.unsynced.push((key, value));
        }
        if durability == Durability::Synced {
            maps.sync();
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.maps().sync();
        Ok(())
    }
}

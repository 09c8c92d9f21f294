//! Plants faults in any store: a failed sync, a broken disk, too few descriptors, a commit that is held, a cold cache.
//!
//! Place: tests only; wraps `memory` or `rocksdb` between the committer and the engine, so that the same fault is seen
//! on both. A test chooses the call that fails, from a seed of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{
    CachedRead, DataSizes, Disk, Durability, Engine, EngineGauges, EngineInfo, Failure, Held,
    Snapshot, Store, StoreError, Visit, Write,
};
use crate::data_dir::DataDirError;
use crate::monitor::Upkeep;
use crate::parts::PartSets;
use std::path::Path;

/// Which calls fail. The default plants nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// After this many commits each later one fails before anything is written, and for good.
    pub broken_after_commits: Option<u64>,
    /// The n-th sync (counted from 1, one per synced commit) fails after the batch was written.
    /// Only this one: the sync after it would succeed, which is what makes the fault dangerous.
    pub failed_sync: Option<u64>,
    /// No value is in memory: every inline read must go to a read thread.
    pub cold: bool,
    /// Every read fails.
    pub failed_reads: bool,
    /// The n-th commit (counted from 1) panics.
    pub panicking_commit: Option<u64>,
    /// Every read panics.
    pub panicking_reads: bool,
    /// The n-th visit of each snapshot (counted from 1) fails, and all later ones.
    pub failed_visit: Option<u64>,
    /// The same visits panic.
    pub panicking_visit: Option<u64>,
    /// Every checkpoint panics.
    pub panicking_checkpoints: bool,
}

/// A store with injected faults.
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    faults: Faults,
    commits: AtomicU64,
    syncs: AtomicU64,
    held: AtomicBool,
    stopped: AtomicBool,
    short: AtomicBool,
    recoveries: AtomicU64,
    disk: Mutex<Option<Disk>>,
    upkeeps: AtomicU64,
    upkeep_gate: Mutex<()>,
}

impl<S: Engine> FaultyStore<S> {
    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: S, faults: Faults) -> Self {
        Self {
            inner,
            faults,
            commits: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            held: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            short: AtomicBool::new(false),
            recoveries: AtomicU64::new(0),
            disk: Mutex::new(None),
            upkeeps: AtomicU64::new(0),
            upkeep_gate: Mutex::new(()),
        }
    }

    /// No flush and no compaction ends as long as this is kept.
    pub fn hold_upkeep(&self) -> MutexGuard<'_, ()> {
        self.upkeep_gate
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Flushes and compactions that reached this layer.
    #[must_use]
    pub fn upkeeps(&self) -> u64 {
        self.upkeeps.load(Ordering::SeqCst)
    }

    /// The store behind the faults.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Commits that reached this layer, failed ones included.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// Holds every commit that begins from now on, until [`release`](Self::release).
    pub fn hold(&self) {
        self.held.store(true, Ordering::SeqCst);
    }

    /// Lets held commits go on.
    pub fn release(&self) {
        self.held.store(false, Ordering::SeqCst);
    }

    /// Makes the engine report that it has stopped writes, or that it has not. Commits succeed either way.
    pub fn stop_writes(&self, is_stopped: bool) {
        self.stopped.store(is_stopped, Ordering::SeqCst);
    }

    /// Lets every commit fail for lack of descriptors, before anything is written, or no longer: then
    /// [`Store::recover`] succeeds.
    pub fn run_short(&self, is_short: bool) {
        self.short.store(is_short, Ordering::SeqCst);
    }

    /// How often [`Store::recover`] was tried.
    #[must_use]
    pub fn recoveries(&self) -> u64 {
        self.recoveries.load(Ordering::SeqCst)
    }

    /// Puts another disk under the data.
    pub fn set_disk(&self, disk: Disk) {
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = Some(disk);
    }

    fn read_fault(&self) -> Result<(), StoreError> {
        assert!(!self.faults.panicking_reads, "planted panic");
        if self.faults.failed_reads {
            return Err(planted("read", "planted fault"));
        }
        Ok(())
    }
}

/// Makes snapshots whose visits fail.
#[derive(Debug)]
pub struct FaultyHeld<T> {
    inner: T,
    faults: Faults,
}

impl<T: Held> Held for FaultyHeld<T> {
    type Snapshot<'a>
        = FaultySnapshot<T::Snapshot<'a>>
    where
        Self: 'a;

    fn snapshot(&self) -> Self::Snapshot<'_> {
        FaultySnapshot {
            inner: self.inner.snapshot(),
            faults: self.faults,
            visits: AtomicU64::new(0),
        }
    }
}

/// A snapshot whose visits fail on request.
#[derive(Debug)]
pub struct FaultySnapshot<T> {
    inner: T,
    faults: Faults,
    visits: AtomicU64,
}

impl<T: Snapshot> Snapshot for FaultySnapshot<T> {
    fn visit(
        &self,
        from: &[u8],
        end: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let number = self.visits.fetch_add(1, Ordering::SeqCst) + 1;
        let is_from = |first: Option<u64>| first.is_some_and(|first| number >= first);
        assert!(!is_from(self.faults.panicking_visit), "planted panic");
        let fails = is_from(self.faults.failed_visit);
        if fails || self.faults.failed_reads {
            return Err(planted("scan", "planted fault"));
        }
        self.inner.visit(from, end, visit)
    }
}

impl<S: Engine> Engine for FaultyStore<S> {
    fn get_cached<R>(
        &self,
        key: &[u8],
        found: impl FnOnce(&[u8]) -> R,
    ) -> Result<CachedRead<R>, StoreError> {
        if self.faults.cold {
            return Ok(CachedRead::NotCached);
        }
        self.read_fault()?;
        self.inner.get_cached(key, found)
    }

    fn engine(&self) -> EngineInfo {
        self.inner.engine()
    }

    fn thread_started(&self) {
        self.inner.thread_started();
    }

    fn gauges(&self) -> EngineGauges {
        EngineGauges {
            writes_are_stopped: self.stopped.load(Ordering::SeqCst),
            ..self.inner.gauges()
        }
    }

    fn checkpoint(&self, path: &Path) -> Result<(), DataDirError> {
        assert!(!self.faults.panicking_checkpoints, "planted panic");
        self.inner.checkpoint(path)
    }

    fn keeps_parts(&self) -> bool {
        self.inner.keeps_parts()
    }

    fn takes_writes(&self) -> bool {
        self.inner.takes_writes()
    }

    fn sizes(&self) -> DataSizes {
        self.inner.sizes()
    }

    fn keep_up(&self, asked: Upkeep) -> Result<(), StoreError> {
        self.upkeeps.fetch_add(1, Ordering::SeqCst);
        let _gate = self.hold_upkeep();
        self.inner.keep_up(asked)
    }

    fn find_dead_parts(&self, sets: &PartSets) -> Result<usize, StoreError> {
        self.read_fault()?;
        self.inner.find_dead_parts(sets)
    }

    fn versions_after_us(&self) -> u64 {
        self.inner.versions_after_us()
    }

    fn make_room(&self) {
        self.inner.make_room();
    }

    fn note_files(&self) {
        self.inner.note_files();
    }

    fn disk(&self) -> Option<Disk> {
        let planted = *self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        planted.or_else(|| self.inner.disk())
    }
}

impl<S: Store> Store for FaultyStore<S> {
    type Held = FaultyHeld<S::Held>;

    fn hold(&self) -> Result<Self::Held, StoreError> {
        Ok(FaultyHeld {
            inner: self.inner.hold()?,
            faults: self.faults,
        })
    }

    fn wants_release(&self) -> bool {
        self.inner.wants_release()
    }

    fn get<R>(&self, key: &[u8], found: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, StoreError> {
        self.read_fault()?;
        self.inner.get(key, found)
    }

    fn commit<'a>(
        &self,
        writes: impl Iterator<Item = Write<'a>>,
        batch_bytes: usize,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let commit_number = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(
            self.faults.panicking_commit != Some(commit_number),
            "planted panic"
        );
        while self.held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.short.load(Ordering::SeqCst) {
            return Err(StoreError {
                failure: Failure::Passing,
                ..planted("commit", "planted fault: Too many open files")
            });
        }
        if self
            .faults
            .broken_after_commits
            .is_some_and(|limit| commit_number > limit)
        {
            return Err(planted("commit", "planted fault: the disk is broken"));
        }
        if durability == Durability::Written {
            return self.inner.commit(writes, batch_bytes, durability);
        }
        let sync_number = self.syncs.fetch_add(1, Ordering::SeqCst) + 1;
        if self.faults.failed_sync == Some(sync_number) {
            self.inner
                .commit(writes, batch_bytes, Durability::Written)?;
            return Err(planted("commit", "planted fault: the sync failed"));
        }
        self.inner.commit(writes, batch_bytes, durability)
    }

    fn sync(&self) -> Result<(), StoreError> {
        let sync_number = self.syncs.fetch_add(1, Ordering::SeqCst) + 1;
        if self.faults.failed_sync == Some(sync_number) {
            return Err(planted("sync", "planted fault: the sync failed"));
        }
        self.inner.sync()
    }

    fn recover(&self, tries: u32) -> Result<bool, StoreError> {
        self.recoveries.fetch_add(1, Ordering::SeqCst);
        match self.short.load(Ordering::SeqCst) {
            true => Ok(false),
            false => self.inner.recover(tries),
        }
    }
}

fn planted(operation: &'static str, cause: &str) -> StoreError {
    StoreError {
        operation,
        cause: cause.to_owned(),
        failure: Failure::Lasting,
    }
}

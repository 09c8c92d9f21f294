//! A value that any thread reads and one thread may take away and replace, while it is read.
//!
//! Each thread reads through a slot of its own, so that a read costs one uncontended atomic operation where it
//! begins and one where it ends, and no thread waits for another. Taking the value away empties all slots,
//! then waits for the longer holders.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// More threads than that share slots, which costs them time and nothing else.
const SLOTS: usize = 64;

/// Interval of the checks whether the last holder has released it.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Two cache lines, the unit in which CPUs prefetch.
#[derive(Debug)]
#[repr(align(128))]
struct Slot<T>(RwLock<Option<Arc<T>>>);

/// A shared value that can be taken away from its readers and replaced.
#[derive(Debug)]
pub(super) struct Replaceable<T> {
    slots: Box<[Slot<T>]>,
    value: Mutex<Option<Arc<T>>>,
    wants_release: AtomicBool,
}

/// The value for the length of one call.
pub(super) struct ReadGuard<'a, T>(RwLockReadGuard<'a, Option<Arc<T>>>);

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &*self.0 {
            Some(value) => value,
            None => unreachable!("checked where it was made"),
        }
    }
}

impl<T> Replaceable<T> {
    pub(super) fn new(value: T) -> Self {
        let replaceable = Self {
            slots: (0..SLOTS).map(|_| Slot(RwLock::new(None))).collect(),
            value: Mutex::new(None),
            wants_release: AtomicBool::new(false),
        };
        replaceable.put(value);
        replaceable
    }

    /// The value, unless it is taken away now. Never waits.
    pub(super) fn read(&self) -> Option<ReadGuard<'_, T>> {
        let slot = &self.slots[slot_of_this_thread()].0;
        let guard = match slot.try_read() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        guard.is_some().then_some(ReadGuard(guard))
    }

    /// The value for as long as it is kept: let go of it when `wants_release`.
    pub(super) fn hold(&self) -> Option<Arc<T>> {
        self.value().clone()
    }

    pub(super) fn wants_release(&self) -> bool {
        self.wants_release.load(Ordering::Relaxed)
    }

    /// Takes it away from all readers. An error: a holder did not release it in time, and it is available again.
    pub(super) fn take(&self, wait_max: Duration) -> Result<Option<T>, StillHeld> {
        let Some(mut value) = self.value().take() else {
            return Ok(None);
        };
        self.wants_release.store(true, Ordering::Relaxed);
        self.fill_slots(None);
        let until = Instant::now() + wait_max;
        loop {
            value = match Arc::try_unwrap(value) {
                Ok(value) => return Ok(Some(value)),
                Err(value) => value,
            };
            if Instant::now() >= until {
                self.put_shared(value);
                return Err(StillHeld);
            }
            thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Gives it to all readers, instead of the one that was taken away.
    pub(super) fn put(&self, value: T) {
        self.put_shared(Arc::new(value));
    }

    fn put_shared(&self, value: Arc<T>) {
        self.fill_slots(Some(&value));
        *self.value() = Some(value);
        self.wants_release.store(false, Ordering::Relaxed);
    }

    fn fill_slots(&self, value: Option<&Arc<T>>) {
        for Slot(slot) in &self.slots {
            *slot.write().unwrap_or_else(PoisonError::into_inner) = value.cloned();
        }
    }

    fn value(&self) -> std::sync::MutexGuard<'_, Option<Arc<T>>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A holder keeps the value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct StillHeld;

fn slot_of_this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SLOT: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    SLOT.with(|slot| {
        if slot.get() == usize::MAX {
            slot.set(NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS);
        }
        slot.get()
    })
}

#[cfg(test)]
#[path = "tests/replaceable.rs"]
mod tests;

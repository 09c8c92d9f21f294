//! A value that any thread reads and one thread may take away and replace, while it is read.
//!
//! Each thread reads through a slot of its own, so that a read costs one uncontended atomic operation where it
//! begins and one where it ends, and no thread waits for another. Taking the value away empties all slots,
//! then waits for those who hold it for longer.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// More threads than that share slots, which costs them time and nothing else.
const SLOTS: usize = 64;

/// How often it is looked whether the last holder has let go.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Two cache lines, the unit in which CPUs prefetch.
#[derive(Debug)]
#[repr(align(128))]
struct Slot<T>(RwLock<Option<Arc<T>>>);

/// See the module.
#[derive(Debug)]
pub(super) struct Replaceable<T> {
    slots: Box<[Slot<T>]>,
    value: Mutex<Option<Arc<T>>>,
    wants_release: AtomicBool,
}

/// The value for the length of one call.
pub(super) struct Reading<'a, T>(RwLockReadGuard<'a, Option<Arc<T>>>);

impl<T> Deref for Reading<'_, T> {
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
    pub(super) fn read(&self) -> Option<Reading<'_, T>> {
        let slot = &self.slots[slot_of_this_thread()].0;
        let guard = match slot.try_read() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        guard.is_some().then_some(Reading(guard))
    }

    /// The value for as long as it is kept: let go of it when `wants_release`.
    pub(super) fn hold(&self) -> Option<Arc<T>> {
        self.value().clone()
    }

    pub(super) fn wants_release(&self) -> bool {
        self.wants_release.load(Ordering::Relaxed)
    }

    /// Takes it away from all readers. An error: somebody did not let go in time, and it is back in its place.
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

    /// Gives it to all readers, in place of the one that was taken away.
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

/// Somebody keeps the value.
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
mod tests {
    use super::*;

    /// Goal: readers see one value or none, never one that was dropped, however often it is replaced.
    #[test]
    fn readers_see_a_whole_value_or_none() {
        #[derive(Debug)]
        struct Value {
            number: u64,
            is_alive: Arc<AtomicBool>,
        }
        impl Drop for Value {
            fn drop(&mut self) {
                self.is_alive.store(false, Ordering::SeqCst);
            }
        }
        let value = |number| Value {
            number,
            is_alive: Arc::new(AtomicBool::new(true)),
        };
        let replaceable = Replaceable::new(value(0));
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !ends.load(Ordering::Relaxed) {
                        let Some(value) = replaceable.read() else {
                            continue;
                        };
                        assert!(value.is_alive.load(Ordering::SeqCst), "it is dropped");
                        assert!(value.number >= last);
                        last = value.number;
                    }
                });
            }
            for number in 1..200 {
                drop(replaceable.take(Duration::from_secs(60)).unwrap().unwrap());
                assert!(replaceable.read().is_none() && replaceable.hold().is_none());
                replaceable.put(value(number));
            }
            ends.store(true, Ordering::Relaxed);
        });
        assert_eq!(replaceable.read().unwrap().number, 199);
    }

    /// Goal: a holder is asked to let go, and keeps the value where it does not.
    #[test]
    fn a_holder_keeps_the_value() {
        let replaceable = Replaceable::new(7);
        let held = replaceable.hold().unwrap();
        assert_eq!(replaceable.take(Duration::from_millis(5)), Err(StillHeld));
        assert_eq!(*replaceable.read().unwrap(), 7, "it is back");
        assert!(!replaceable.wants_release());
        drop(held);
        assert_eq!(replaceable.take(Duration::ZERO), Ok(Some(7)));
        assert!(replaceable.wants_release());
        assert_eq!(replaceable.take(Duration::ZERO), Ok(None));
    }
}

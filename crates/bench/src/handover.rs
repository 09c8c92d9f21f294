//! A bounded ring that one thread fills with batches and another empties.
//!
//! On the path: `producer_consumer` hands objects over through it, the same for every candidate.
//! A batch is a vector that is swapped, never copied and never freed: handing over makes no heap
//! call. Each slot has a lock that is free whenever it is taken, since the two counts decide whose
//! turn a slot is; per batch that is two exchanges, shared by all its objects.
//! Absent on purpose: sleeping. Who has to wait yields, so that the ring works on one CPU too.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{hint, thread};

/// Batches that may wait.
const SLOT_COUNT: usize = 16;
/// Looks before a waiting thread gives up its CPU.
const SPIN_COUNT: u32 = 64;

/// Slots from `taken` to `given` are full. Each count has one writer.
pub(crate) struct Handover<T> {
    slots: [Mutex<Vec<T>>; SLOT_COUNT],
    given: Padded,
    taken: Padded,
}

/// Two cache lines, as processors fetch them in pairs.
#[repr(align(128))]
struct Padded(AtomicUsize);

impl<T> Handover<T> {
    pub(crate) fn new(batch_count: usize) -> Self {
        Self {
            slots: std::array::from_fn(|_| Mutex::new(Vec::with_capacity(batch_count))),
            given: Padded(AtomicUsize::new(0)),
            taken: Padded(AtomicUsize::new(0)),
        }
    }

    /// Swaps a full batch for an empty one; waits while all slots are full. One thread only.
    pub(crate) fn give(&self, batch: &mut Vec<T>) {
        let given = self.given.0.load(Ordering::Relaxed);
        let mut looks = 0;
        while given - self.taken.0.load(Ordering::Acquire) == SLOT_COUNT {
            wait(&mut looks);
        }
        std::mem::swap(&mut *self.slot(given), batch);
        self.given.0.store(given + 1, Ordering::Release);
    }

    /// Swaps an empty batch for a full one; `on_idle` is called each time there is none. One thread
    /// only.
    pub(crate) fn take(&self, batch: &mut Vec<T>, mut on_idle: impl FnMut()) {
        let taken = self.taken.0.load(Ordering::Relaxed);
        let mut looks = 0;
        while self.given.0.load(Ordering::Acquire) == taken {
            on_idle();
            wait(&mut looks);
        }
        std::mem::swap(&mut *self.slot(taken), batch);
        self.taken.0.store(taken + 1, Ordering::Release);
    }

    fn slot(&self, number: usize) -> MutexGuard<'_, Vec<T>> {
        let slot = &self.slots[number % SLOT_COUNT];
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait(looks: &mut u32) {
    *looks += 1;
    if looks.is_multiple_of(SPIN_COUNT) {
        thread::yield_now();
    } else {
        hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every batch arrives once and in order, more of them than there are slots.
    #[test]
    fn batches_arrive_in_order() {
        let ring = Handover::new(3);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut batch = Vec::new();
                for number in 0..100 * SLOT_COUNT {
                    batch.extend([number; 3]);
                    ring.give(&mut batch);
                    assert!(batch.is_empty());
                }
            });
            let mut batch = Vec::new();
            for number in 0..100 * SLOT_COUNT {
                ring.take(&mut batch, || {});
                assert_eq!(batch, [number; 3]);
                batch.clear();
            }
        });
    }
}

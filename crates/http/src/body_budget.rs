//! What large bodies that stand in memory as a whole may take together, all shards of a server counted.
//!
//! On the path: `gathering` takes a hold before the first byte of a body whose length is announced, and
//! more of it as one grows whose length is not. The hold goes with the body to the service, which may keep
//! both: memory is free again when the last who needs it lets go.
//! Absent on purpose: waiting. Those wait that have not begun (`server::body_queue`); one that has begun,
//! grows in chunks and finds nothing left is refused: bodies that wait for one another wait for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many bytes of bodies, and one alone whatever its length. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct BodyBudget(Arc<Bodies>);

#[derive(Debug)]
struct Bodies {
    held_bytes: AtomicU64,
    bytes_max: u64,
}

/// One body's part, until it is dropped.
#[derive(Debug)]
pub struct BodyHold {
    bodies: Arc<Bodies>,
    bytes: u64,
}

impl BodyBudget {
    /// Nobody holds any of it.
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Bodies {
            held_bytes: AtomicU64::new(0),
            bytes_max,
        }))
    }

    /// A hold on so many bytes; `None`: others have them.
    pub fn take(&self, bytes: u64) -> Option<BodyHold> {
        let mut hold = self.begin();
        hold.grow_to(bytes).then_some(hold)
    }

    /// A hold on nothing yet.
    pub(crate) fn begin(&self) -> BodyHold {
        BodyHold {
            bodies: Arc::clone(&self.0),
            bytes: 0,
        }
    }

    /// Whether so many bytes could be had at this moment.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        self.0
            .after(self.0.held_bytes.load(Ordering::Relaxed), 0, bytes)
            .is_some()
    }

    /// Bytes that are held.
    pub fn held_bytes(&self) -> u64 {
        self.0.held_bytes.load(Ordering::Relaxed)
    }

    /// Whether there is an end to it.
    pub(crate) fn is_limited(&self) -> bool {
        self.0.bytes_max < u64::MAX
    }
}

impl Bodies {
    /// What is held once one body has `bytes` in place of `before`.
    fn after(&self, held_bytes: u64, before: u64, bytes: u64) -> Option<u64> {
        let others = held_bytes - before;
        let after = others.saturating_add(bytes);
        (others == 0 || after <= self.bytes_max).then_some(after)
    }
}

impl BodyHold {
    /// How many bytes it is a hold on.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes it a hold on `bytes` in all, if there are so many. It never shrinks.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> bool {
        if bytes <= self.bytes {
            return true;
        }
        let grown = self.bodies.held_bytes.fetch_update(
            Ordering::Relaxed,
            Ordering::Relaxed,
            |held_bytes| self.bodies.after(held_bytes, self.bytes, bytes),
        );
        if grown.is_ok() {
            self.bytes = bytes;
        }
        grown.is_ok()
    }
}

impl Drop for BodyHold {
    fn drop(&mut self) {
        self.bodies
            .held_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: bodies have no more than there is, one alone apart, and leave it to others.
    #[test]
    fn bodies_leave_room_for_one_another() {
        const MAX: u64 = 100;
        let budget = BodyBudget::new(MAX);
        let mut growing = budget.begin();
        let alone = budget.take(10 * MAX).unwrap();
        assert!(!growing.grow_to(1) && !budget.has_room_for(1));
        assert!(budget.take(1).is_none());
        drop(alone);
        assert!(growing.grow_to(MAX / 2));
        let other = budget.take(MAX / 2).unwrap();
        assert!(!growing.grow_to(MAX / 2 + 1));
        assert_eq!(budget.held_bytes(), MAX);
        drop(other);
        assert!(growing.grow_to(10 * MAX), "it is alone");
        drop(growing);
        assert_eq!(budget.held_bytes(), 0);
    }

    /// Goal: whoever takes and lets go at the same time, the sum is kept, and is never more than there is.
    #[test]
    fn threads_share_one_budget() {
        const MAX: u64 = 64;
        let budget = BodyBudget::new(MAX);
        let granted: u64 = std::thread::scope(|scope| {
            let take_many = |seed: u64| {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut holds = Vec::new();
                let mut granted = 0;
                for _ in 0..10_000 {
                    holds.extend(budget.take(random.u64(1..=MAX / 2)));
                    assert!(budget.held_bytes() <= MAX);
                    if random.bool() {
                        granted += holds.drain(..).count() as u64;
                    }
                }
                granted
            };
            let threads = [1, 2, 3].map(|seed| scope.spawn(move || take_many(seed)));
            threads.map(|thread| thread.join().unwrap()).iter().sum()
        });
        assert!(granted > 0);
        assert_eq!(budget.held_bytes(), 0);
    }
}

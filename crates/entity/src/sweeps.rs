//! When a store thread gives back memory that nobody used.
//!
//! On the path: a read thread's `executor` loop sleeps until work comes or a sweep is due. A shard
//! has a timer for that; a thread that waits in a lane has the lane's deadline.
//! Absent on purpose: sweeping for ever. A thread without work and without idle memory sleeps until
//! there is work.

use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);
/// The first sweep after the last use ends the interval of that use; the next one ends one in which
/// nothing happened, and gives back.
const SWEEPS_AFTER_USE: u8 = 2;

/// When the next sweep is due, if any.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    due: Option<Instant>,
    left: u8,
}

impl Sweeps {
    /// When to call [`sweep_if_due`](Self::sweep_if_due) at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// The memory is being used.
    pub(crate) fn note_use(&mut self, now: Instant) {
        self.left = SWEEPS_AFTER_USE;
        self.due.get_or_insert(now + INTERVAL);
    }

    /// Calls `sweep` where its time has come; it returns how many bytes it gave back, and as long
    /// as that is any, the next sweep follows.
    pub(crate) fn sweep_if_due(&mut self, now: Instant, sweep: impl FnOnce() -> usize) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        self.left -= 1;
        if sweep() > 0 {
            self.left = self.left.max(1);
        }
        self.due = (self.left > 0).then(|| now + INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: one sweep a second while there is use, and after it until nothing comes back.
    #[test]
    fn sweeps_follow_use_until_nothing_is_left() {
        let mut sweeps = Sweeps::default();
        let mut now = Instant::now();
        let mut idle_bytes = vec![0, 8, 4, 0];
        let mut swept = Vec::new();
        sweeps.sweep_if_due(now, || panic!("nothing was used"));
        sweeps.note_use(now);
        sweeps.sweep_if_due(now, || panic!("too early"));
        while let Some(due) = sweeps.deadline() {
            assert_eq!(due - now, INTERVAL);
            now = due;
            sweeps.sweep_if_due(now, || {
                swept.push(idle_bytes.remove(0));
                swept[swept.len() - 1]
            });
        }
        assert_eq!(swept, [0, 8, 4, 0]);
        sweeps.note_use(now);
        assert_eq!(sweeps.deadline(), Some(now + INTERVAL));
    }
}

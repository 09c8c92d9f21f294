//! Times at which others kept a thread of the generator or the target from its CPU, and the answers outside of them.
//!
//! Another program that wakes, or a hypervisor, takes a CPU for 0.1 to 10 ms a few times a second. What was due in that
//! time leaves late, what arrived is seen late, and the target gets all of it at once afterwards. If that is more than
//! one request in a hundred, the p99 is that of the machine and says nothing of the target. So a generator thread
//! compares the clock with the last time it looked at it: awake it looks every few microseconds, and asleep it knows
//! when it wanted to wake. A target that pauses makes no such stall: the thread sleeps until an answer comes. Of the
//! target the kernel tells how long its threads waited for others ([`crate::TargetThreads`]).
//!
//! Only right where the target has other CPUs: on a common one, a stall is the target at work.

use millpond_measure::histogram::LatencyHistogram;

use crate::target_threads::TargetWatch;

/// A thread at work looks at the clock more often than this.
const STALL_NS_MIN: u64 = 50_000;
/// What was due meanwhile is sent at once and has to be worked off: at half load, that takes as long again. So many times
/// the stall's length is left out after it.
const RECOVERY: u64 = 2;

/// The clocks of the answers that no stall touched.
#[derive(Clone, Debug, Default)]
pub struct Undisturbed {
    /// From the intended start to the last byte.
    pub response: LatencyHistogram,
    /// From the actual write to the last byte.
    pub service: LatencyHistogram,
    /// From the intended start, or the moment from which a connection was free, to the actual write, of the requests that
    /// were due outside of stalls.
    pub lateness: LatencyHistogram,
    /// Right answers to requests that were on their way during a stall, or in the time after it.
    pub left_out: u64,
    /// Length of all stalls, of all threads together.
    pub stalled_ns: u64,
}

impl Undisturbed {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.lateness.merge(&other.lateness);
        self.left_out += other.left_out;
        self.stalled_ns += other.stalled_ns;
    }
}

/// One thread's watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct StallWatch {
    looked_ns: u64,
    /// The last one, with the time after it; before the first, none: both are 0.
    from_ns: u64,
    until_ns: u64,
    target: Option<TargetWatch>,
    pub(crate) undisturbed: Undisturbed,
}

impl StallWatch {
    pub(crate) fn of_target(target: Option<TargetWatch>) -> Self {
        Self {
            target,
            ..Self::default()
        }
    }

    /// The thread is awake at `now_ns`, having wanted to sleep until `due_ns` at most; `has_events`: something came.
    pub(crate) fn woke(&mut self, due_ns: Option<u64>, has_events: bool, now_ns: u64) {
        let by_design_ns = due_ns.unwrap_or(now_ns).min(now_ns);
        self.looked_ns = self.looked_ns.max(by_design_ns);
        self.look(now_ns);
        let kept = self
            .target
            .as_mut()
            .and_then(|target| target.look(has_events, now_ns));
        if let Some(kept) = kept {
            self.note(kept.from_ns, now_ns, kept.length_ns);
        }
    }

    /// The thread is at work at `now_ns`.
    #[inline]
    pub(crate) fn look(&mut self, now_ns: u64) {
        let gap_ns = now_ns.saturating_sub(self.looked_ns);
        if gap_ns >= STALL_NS_MIN && self.looked_ns > 0 {
            self.note(self.looked_ns, now_ns, gap_ns);
        }
        self.looked_ns = now_ns;
    }

    #[cold]
    fn note(&mut self, from_ns: u64, to_ns: u64, length_ns: u64) {
        self.from_ns = match from_ns > self.until_ns {
            true => from_ns,
            false => self.from_ns.min(from_ns),
        };
        self.until_ns = self.until_ns.max(to_ns + RECOVERY * length_ns);
        self.undisturbed.stalled_ns += length_ns;
    }

    /// Requests that were due at `intended_ns` leave `late_ns` after that, or after a connection was free.
    #[inline]
    pub(crate) fn sent(&mut self, intended_ns: u64, late_ns: u64, count: u64) {
        if intended_ns >= self.until_ns {
            self.undisturbed.lateness.record_many(late_ns, count);
        }
    }

    /// Answers are complete. A request that was due before the end of the last stall, and is answered after its begin,
    /// met it; an earlier stall is over for whoever did not.
    #[inline]
    pub(crate) fn answered(
        &mut self,
        (intended_ns, written_ns): (u64, u64),
        last_byte_ns: u64,
        count: u64,
    ) {
        if intended_ns < self.until_ns && last_byte_ns > self.from_ns {
            self.undisturbed.left_out += count;
            return;
        }
        let clocks = &mut self.undisturbed;
        clocks
            .response
            .record_many(last_byte_ns - intended_ns, count);
        clocks.service.record_many(last_byte_ns - written_ns, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// Goal: sleeping as long as was wanted is no stall and waking late is one; what was on its way then is left out, and
    /// so is what was due while the backlog was worked off, and nothing else.
    #[test]
    fn answers_of_a_stall_are_left_out() {
        let mut watch = StallWatch::default();
        let answer = |watch: &mut StallWatch, intended_ns: u64, last_byte_ns: u64| {
            let before = watch.undisturbed.left_out;
            watch.answered((intended_ns, intended_ns), last_byte_ns, 1);
            watch.undisturbed.left_out > before
        };
        watch.woke(None, false, 100 * US);
        // Half a millisecond asleep, as wanted, and a little late.
        watch.woke(Some(600 * US), false, 630 * US);
        watch.look(640 * US);
        assert!(!answer(&mut watch, 610 * US, 640 * US));
        // An event wakes it before it wanted to.
        watch.woke(Some(5_000 * US), false, 1_000 * US);
        assert!(!answer(&mut watch, 610 * US, 1_000 * US));
        // It wanted to wake at 1,010 and does at 1,310.
        watch.woke(Some(1_010 * US), false, 1_310 * US);
        assert_eq!(watch.undisturbed.stalled_ns, 300 * US);
        assert!(answer(&mut watch, 990 * US, 1_310 * US));
        assert!(answer(&mut watch, 1_200 * US, 1_350 * US));
        // The backlog takes until 1,910.
        assert!(answer(&mut watch, 1_900 * US, 1_950 * US));
        assert!(!answer(&mut watch, 1_911 * US, 1_960 * US));
        // At work it loses its CPU: what was sent before and is answered after met that.
        watch.woke(Some(1_955 * US), false, 1_960 * US);
        watch.look(2_100 * US);
        assert!(answer(&mut watch, 1_950 * US, 2_100 * US));
        assert_eq!(watch.undisturbed.stalled_ns, 440 * US);
        assert_eq!(watch.undisturbed.response.count(), 3);
        watch.sent(2_300 * US, 70 * US, 1);
        watch.sent(2_400 * US, 7 * US, 1);
        assert!(watch.undisturbed.lateness.max() < 8 * US);
        let mut both = watch.undisturbed.clone();
        both.merge(&watch.undisturbed);
        assert_eq!((both.left_out, both.service.count()), (8, 6));
    }
}

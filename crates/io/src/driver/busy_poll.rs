//! Whether a shard spins before it sleeps: on, for at most so long, and only while that pays.
//!
//! Waking a thread that sleeps costs more than a short request, most of all in a virtual machine,
//! where an idle CPU has to be fetched back from the hypervisor. A shard with few busy connections
//! saves that by looking at memory for a while. The price is a CPU that does nothing else
//! meanwhile, so it is off unless asked for, and a spin in vain puts the next one off: by one
//! sleep, by two, by four, up to [`SKIPS_MAX`]. A spin that pays, or a sleep that ended within the
//! time that a spin would have taken, brings the next one back at once. A shard whose waits are
//! long thus spins at one wait in 65.
//!
//! Absent on purpose: the looking itself, which each driver does in its own way.

/// Sleeps between two spins of a shard for which spinning does not pay.
const SKIPS_MAX: u32 = 64;

/// How often a spin looks for events for each look at the clock.
pub(super) const LOOKS_PER_CLOCK: u32 = 8;

/// When to spin, from what the last spins gave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BusyPoll {
    /// How long a spin may last; 0: never spin.
    limit_ns: u64,
    /// Sleeps until the next spin.
    skips_left: u32,
    /// How many it will be after the next spin in vain.
    skips_next: u32,
}

/// How a spin ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SpinEnd {
    /// Something came.
    Found,
    /// At the moment for which the wait was planned: neither a reason to spin nor one against it. A load generator that
    /// waits for its next request to be due would otherwise not spin for that request's answer.
    Deadline,
    /// Nothing came within the limit.
    Vain,
}

impl SpinEnd {
    pub(super) fn of(has_found: bool, is_time: bool) -> Self {
        match (has_found, is_time) {
            (true, _) => Self::Found,
            (false, true) => Self::Deadline,
            (false, false) => Self::Vain,
        }
    }
}

impl BusyPoll {
    pub(super) const fn new(limit_ns: u64) -> Self {
        Self {
            limit_ns,
            skips_left: 0,
            skips_next: 1,
        }
    }

    /// Whether it was asked for.
    #[inline]
    pub(super) const fn is_on(&self) -> bool {
        self.limit_ns > 0
    }

    /// Whether this wait begins with a spin; asked once for each wait that may sleep.
    pub(super) fn is_due(&mut self) -> bool {
        if self.skips_left > 0 {
            self.skips_left -= 1;
            return false;
        }
        self.is_on()
    }

    /// Until when a spin that begins now may last.
    pub(super) fn end_ns(&self, start_ns: u64, deadline_ns: Option<u64>) -> u64 {
        let limit_ns = start_ns.saturating_add(self.limit_ns);
        deadline_ns.map_or(limit_ns, |deadline_ns| limit_ns.min(deadline_ns))
    }

    /// A spin is over, and how it ended.
    pub(super) fn spun(&mut self, end: SpinEnd) {
        match end {
            SpinEnd::Found => *self = Self::new(self.limit_ns),
            SpinEnd::Deadline => {}
            SpinEnd::Vain => {
                self.skips_left = self.skips_next;
                self.skips_next = (self.skips_next * 2).min(SKIPS_MAX);
            }
        }
    }

    /// A sleep without a spin before it brought events after so long.
    pub(super) fn slept(&mut self, slept_ns: u64) {
        if slept_ns <= self.limit_ns {
            *self = Self::new(self.limit_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits that begin with a spin, of the next `count`, none of which pays.
    fn vain_spins(poll: &mut BusyPoll, count: u32) -> u32 {
        let spin = |poll: &mut BusyPoll| {
            let is_due = poll.is_due();
            if is_due {
                poll.spun(SpinEnd::Vain);
            }
            u32::from(is_due)
        };
        (0..count).map(|_| spin(poll)).sum()
    }

    /// Goal: where spinning never pays it is tried ever more seldom, down to one wait in 65, and
    /// one spin that pays brings it back at once.
    #[test]
    fn spins_in_vain_become_rare() {
        let mut poll = BusyPoll::new(50_000);
        assert_eq!(vain_spins(&mut poll, 128), 7, "at 0, 2, 5, 10, 19, 36, 69");
        assert_eq!(vain_spins(&mut poll, 65 * 100), 100);
        while !poll.is_due() {}
        poll.spun(SpinEnd::Found);
        assert!(poll.is_due() && poll.is_due(), "it pays: every wait");
        assert_eq!(vain_spins(&mut poll, 2), 1);
    }

    /// A spin up to a planned moment counted as one in vain: at 2,000 requests a second, `--busy-poll 500` slept through
    /// every answer.
    ///
    /// Goal: a spin that ends at its deadline changes nothing: neither the next spin nor how rare they have become.
    #[test]
    fn a_deadline_is_no_spin_in_vain() {
        let mut poll = BusyPoll::new(500_000);
        for _ in 0..10 {
            assert!(poll.is_due());
            poll.spun(SpinEnd::Deadline);
            assert!(poll.is_due());
            poll.spun(SpinEnd::Found);
        }
        poll.spun(SpinEnd::Vain);
        assert!(!poll.is_due() && poll.is_due());
        poll.spun(SpinEnd::Deadline);
        poll.spun(SpinEnd::Vain);
        assert!(!poll.is_due() && !poll.is_due() && poll.is_due());
    }

    /// Goal: a sleep shorter than a spin is a reason to spin again; a longer one is none.
    #[test]
    fn short_sleeps_bring_spinning_back() {
        let mut poll = BusyPoll::new(50_000);
        vain_spins(&mut poll, 1_000);
        poll.slept(50_001);
        assert!(!poll.is_due());
        poll.slept(50_000);
        assert!(poll.is_due());
    }

    /// Goal: a spin ends at its limit or at the deadline, whichever comes first; off is off.
    #[test]
    fn a_spin_respects_the_deadline() {
        let poll = BusyPoll::new(50_000);
        assert_eq!(poll.end_ns(1_000, None), 51_000);
        assert_eq!(poll.end_ns(1_000, Some(2_000)), 2_000);
        assert_eq!(poll.end_ns(1_000, Some(99_000)), 51_000);
        let mut off = BusyPoll::default();
        assert!(!off.is_on() && !off.is_due());
        off.slept(0);
        assert!(!off.is_due());
    }
}

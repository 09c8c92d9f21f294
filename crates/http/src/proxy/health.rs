//! Whether an upstream is worth a request: what probes found, and what requests met with.
//!
//! On the path: `upstreams` tells the outcome of every try and probe, and asks before each choice.
//!
//! ```text
//! probes:     Unprobed/Up --failures in a row--> Down --successes in a row, or no probes any more--> Up
//! requests:   in use --failures in a row--> ejected for base * 2^n --> in use, on probation
//!                                              ^                          | one failure
//!                                              +--------------------------+
//! ```
//!
//! A success on probation halves what the next ejection would last, so that one that fails every
//! other request does not start from the shortest ejection each time.
//!
//! Absent on purpose: clocks and sockets, and the rule that ejected ones are used where nobody else is
//! left: that is the set's, which knows the others.

use crate::head_text::RequestTarget;

/// When probes change what is thought of an upstream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProbePolicy {
    /// What is asked for, with GET; a status of 2xx or 3xx is a success.
    pub path: String,
    /// From one probe to the next.
    pub interval_ns: u64,
    /// For the whole probe.
    pub timeout_ns: u64,
    /// So many in a row bring it back.
    pub successes_min: u32,
    /// So many in a row take it out.
    pub failures_max: u32,
}

impl ProbePolicy {
    /// Every 2 s, 1 s each, two successes or three failures.
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            interval_ns: 2_000_000_000,
            timeout_ns: 1_000_000_000,
            successes_min: 2,
            failures_max: 3,
        }
    }

    /// What is asked for, of a policy that [`super::ProxyControl`] has taken.
    pub(super) fn target(&self) -> RequestTarget<'_> {
        RequestTarget::received(self.path.as_bytes())
    }
}

/// When failures of requests take an upstream out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EjectionPolicy {
    /// So many failures in a row; 0: never.
    pub failures_max: u32,
    /// How long the first time.
    pub base_ns: u64,
    /// How long at most.
    pub longest_ns: u64,
}

impl Default for EjectionPolicy {
    fn default() -> Self {
        Self {
            failures_max: 5,
            base_ns: 1_000_000_000,
            longest_ns: 60_000_000_000,
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Health {
    is_down: bool,
    /// Of probes that speak against what is thought.
    contrary_probes: u32,
    failures_in_row: u32,
    /// Ejections not yet forgiven: the exponent of the next one's length.
    ejections: u32,
    ejected_until_ns: u64,
    is_on_probation: bool,
}

/// Doublings after which any base has reached any sensible limit.
const EJECTIONS_MAX: u32 = 32;

impl Health {
    /// Probes found it, or nobody has looked; and it is not ejected.
    #[inline]
    pub(super) fn is_usable(&self, now_ns: u64) -> bool {
        !self.is_down && now_ns >= self.ejected_until_ns
    }

    /// What the probes say alone.
    pub(super) fn is_down(&self) -> bool {
        self.is_down
    }

    /// A probe ended; true when that changed what is thought of the upstream.
    pub(super) fn probed(&mut self, is_success: bool, policy: &ProbePolicy) -> bool {
        if is_success != self.is_down {
            self.contrary_probes = 0;
            return false;
        }
        self.contrary_probes += 1;
        let needed = match self.is_down {
            true => policy.successes_min,
            false => policy.failures_max,
        };
        if self.contrary_probes < needed {
            return false;
        }
        self.contrary_probes = 0;
        self.is_down = !self.is_down;
        if !self.is_down {
            // It answers: what requests met with earlier is history.
            self.failures_in_row = 0;
            self.ejected_until_ns = 0;
        }
        true
    }

    /// Nobody probes it any more, so that nobody could find that it is up again.
    pub(super) fn is_not_probed(&mut self) {
        self.is_down = false;
        self.contrary_probes = 0;
    }

    /// A request was answered, whatever the answer.
    #[inline]
    pub(super) fn succeeded(&mut self) {
        self.failures_in_row = 0;
        if self.is_on_probation {
            self.is_on_probation = false;
            self.ejections /= 2;
        }
    }

    /// A request met with no answer; true when the upstream should be ejected for it, if it can be
    /// spared: then [`Self::eject`]. While it is ejected only requests fail that were under way by then,
    /// or had nobody else: what they say of it is known.
    pub(super) fn failed(&mut self, now_ns: u64, policy: &EjectionPolicy) -> bool {
        if now_ns < self.ejected_until_ns {
            return false;
        }
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        policy.failures_max > 0
            && (self.is_on_probation || self.failures_in_row >= policy.failures_max)
    }

    /// Takes it out; returns until when.
    pub(super) fn eject(&mut self, now_ns: u64, policy: &EjectionPolicy) -> u64 {
        let factor = 1_u64 << self.ejections;
        let length_ns = policy.base_ns.saturating_mul(factor).min(policy.longest_ns);
        self.ejections = (self.ejections + 1).min(EJECTIONS_MAX);
        self.failures_in_row = 0;
        self.is_on_probation = true;
        self.ejected_until_ns = now_ns.saturating_add(length_ns);
        self.ejected_until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn policy() -> EjectionPolicy {
        EjectionPolicy {
            failures_max: 3,
            base_ns: SECOND_NS,
            longest_ns: 10 * SECOND_NS,
        }
    }

    /// Goal: as many failures in a row as the policy says, then twice as long each time, up to the
    /// limit; on probation one failure is enough, and success makes the next ejection shorter.
    #[test]
    fn ejections_grow_and_are_forgiven() {
        let (policy, mut health, mut now_ns) = (policy(), Health::default(), 0);
        assert!(!health.failed(now_ns, &policy) && !health.failed(now_ns, &policy));
        health.succeeded();
        assert!(!health.failed(now_ns, &policy) && !health.failed(now_ns, &policy));
        assert!(health.failed(now_ns, &policy));
        for seconds in [1, 2, 4, 8, 10, 10] {
            let until_ns = health.eject(now_ns, &policy);
            assert_eq!(until_ns - now_ns, seconds * SECOND_NS);
            assert!(!health.is_usable(until_ns - 1) && health.is_usable(until_ns));
            now_ns = until_ns;
            assert!(health.failed(now_ns, &policy), "on probation");
        }
        health.succeeded();
        assert!(!health.failed(now_ns, &policy), "its probation is over");
        assert_eq!(
            health.eject(0, &policy),
            8 * SECOND_NS,
            "6 ejections became 3"
        );
        let never = EjectionPolicy {
            failures_max: 0,
            ..policy
        };
        assert!((0..100).all(|_| !health.failed(now_ns, &never)));
    }

    /// An upstream that broke a hundred requests at once was ejected for each of them but the first few,
    /// twice as long each time: for a minute, in the place of a second. Goal: what was under way when it
    /// was ejected counts for one failure together, and the first request of its probation for the next.
    #[test]
    fn one_outage_is_one_ejection() {
        let (policy, mut health) = (policy(), Health::default());
        let mut until_ns = 0;
        for _ in 0..100 {
            if health.failed(0, &policy) {
                until_ns = health.eject(0, &policy);
            }
        }
        assert_eq!(until_ns, SECOND_NS);
        assert!(health.failed(until_ns, &policy), "on probation");
        assert_eq!(health.eject(until_ns, &policy) - until_ns, 2 * SECOND_NS);
    }

    /// Goal: probes need their number in a row in both directions, and a return clears an ejection.
    #[test]
    fn probes_change_their_mind_slowly() {
        let (probes, policy) = (ProbePolicy::new("/"), policy());
        let mut health = Health::default();
        for (is_success, is_change, is_down) in [
            (false, false, false),
            (false, false, false),
            (true, false, false),
            (false, false, false),
            (false, false, false),
            (false, true, true),
            (true, false, true),
            (false, false, true),
            (true, false, true),
        ] {
            assert_eq!(health.probed(is_success, &probes), is_change);
            assert_eq!(health.is_down(), is_down);
        }
        health.eject(0, &policy);
        assert!(health.probed(true, &probes));
        assert!(health.is_usable(1));
    }

    proptest! {
        /// Goal: whatever happens in whatever order, no ejection is shorter than the base or longer
        /// than the limit, and one that is not down is usable when its ejection is over.
        #[test]
        fn ejections_stay_in_bounds(steps in proptest::collection::vec((0..4_u8, 0..20_u64), 0..200)) {
            let (policy, probes) = (policy(), ProbePolicy::new("/"));
            let (mut health, mut now_ns) = (Health::default(), 0);
            for (step, seconds) in steps {
                now_ns += seconds * SECOND_NS / 4;
                match step {
                    0 => health.succeeded(),
                    1 => {
                        if health.failed(now_ns, &policy) {
                            let length_ns = health.eject(now_ns, &policy) - now_ns;
                            prop_assert!((policy.base_ns..=policy.longest_ns).contains(&length_ns));
                        }
                    }
                    step => {
                        health.probed(step == 2, &probes);
                    }
                }
                prop_assert_eq!(health.is_usable(health.ejected_until_ns), !health.is_down());
            }
        }
    }
}

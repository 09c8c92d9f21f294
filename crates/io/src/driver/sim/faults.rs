//! What goes wrong in a simulated network, and how often.
//!
//! Every probability is between 0 and 1 and is drawn for anew at each chance. A plan with all of
//! them at 0 is a well-behaved kernel on a calm day.
//!
//! Absent on purpose: faults of memory; the pools inject those themselves (`PoolMode::Checked`).

use fastrand::Rng;
use rustix::io::Errno;

/// What accept(2) answers when it cannot take a connection.
const ACCEPT_ERRORS: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];

/// Bytes on their way in one direction, by default: about what loopback holds.
const WINDOW_BYTES: usize = 256 << 10;

/// How often what happens to the driver. Peers do by themselves what their scripts say.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultPlan {
    /// A receive delivers only a part of what arrived, one byte at the least.
    pub split_receives: f64,
    /// A send takes only a part of its bytes, perhaps none; the rest drains in later ticks.
    pub short_sends: f64,
    /// A send counts as done and is made when the next tick begins, as with a ring.
    pub late_sends: f64,
    /// Something ready is not reported in this tick.
    pub delays: f64,
    /// A socket that was just reported is reported again in the same tick if it is ready again.
    pub bursts: f64,
    /// Completions of different sockets come in any order instead of by slot.
    pub reorders: bool,
    /// A wait ends early, with nothing to report.
    pub spurious_wakes: f64,
    /// No buffer is free for a receive; it is made later.
    pub buffers_missing: f64,
    /// The connection is reset by the network, each time its socket is looked at.
    pub resets: f64,
    /// Bytes that arrived before a reset are lost with it.
    pub resets_lose_input: f64,
    /// A waiting connection cannot be taken, for want of descriptors or kernel memory.
    pub accept_failures: f64,
    /// A connection asked for is refused or times out.
    pub connect_failures: f64,
    /// A closed socket's slot stays taken for some ticks, as with operations still in flight.
    pub delayed_closes: f64,
    /// Sockets alive at most: one more is `EMFILE`.
    pub descriptors_max: usize,
    /// Bytes that one direction of a new connection holds.
    pub window_bytes: usize,
    /// The longest that one tick takes.
    pub tick_ns_max: u64,
}

impl FaultPlan {
    /// No fault at all.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            split_receives: 0.0,
            short_sends: 0.0,
            late_sends: 0.0,
            delays: 0.0,
            bursts: 0.0,
            reorders: false,
            spurious_wakes: 0.0,
            buffers_missing: 0.0,
            resets: 0.0,
            resets_lose_input: 0.0,
            accept_failures: 0.0,
            connect_failures: 0.0,
            delayed_closes: 0.0,
            descriptors_max: usize::MAX,
            window_bytes: WINDOW_BYTES,
            tick_ns_max: 1_000,
        }
    }

    /// A plan of its own for each seed: about half of the faults, each rare, frequent or nearly
    /// always. A bug that needs one fault to be frequent and another absent is found that way,
    /// which a fixed mixture of all would hide.
    ///
    /// Resets are not among them: whoever draws a plan decides whether his oracle allows them.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        // Not the stream that a network with the same seed draws from.
        let mut rng = Rng::with_seed(seed ^ 0x5bd1_e995_7f4a_7c15);
        let mut often = |most: f64| match rng.u8(0..6) {
            0 => most,
            1 => most * 0.5,
            2 => most * 0.05,
            _ => 0.0,
        };
        Self {
            split_receives: often(1.0),
            short_sends: often(0.9),
            late_sends: often(1.0),
            delays: often(0.9),
            bursts: often(0.9),
            spurious_wakes: often(0.9),
            buffers_missing: often(0.8),
            resets_lose_input: often(1.0),
            accept_failures: often(0.8),
            connect_failures: often(0.5),
            delayed_closes: often(1.0),
            reorders: rng.bool(),
            window_bytes: [64, 1 << 10, 16 << 10, WINDOW_BYTES][rng.usize(0..4)],
            tick_ns_max: [1, 1_000, 100_000][rng.usize(0..3)],
            ..Self::none()
        }
    }

    pub(super) fn accept_error(rng: &mut Rng) -> Errno {
        ACCEPT_ERRORS[rng.usize(0..ACCEPT_ERRORS.len())]
    }

    pub(super) fn connect_error(rng: &mut Rng) -> Errno {
        if rng.bool() {
            Errno::CONNREFUSED
        } else {
            Errno::TIMEDOUT
        }
    }
}

/// Where the driver's receives of one connection end, for whoever wants to say it exactly.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Cuts {
    /// Wherever the plan's chances put them.
    #[default]
    ByChance,
    /// After every byte.
    EveryByte,
    /// After so many bytes from the connection's start, in rising order; not elsewhere.
    At(Vec<u64>),
}

impl Cuts {
    /// How many of `available` bytes the receive delivers that begins `offset` bytes into the
    /// connection.
    pub(super) fn take(
        &self,
        offset: u64,
        available: usize,
        plan: &FaultPlan,
        rng: &mut Rng,
    ) -> usize {
        match self {
            Self::EveryByte => 1,
            Self::At(offsets) => match offsets.iter().find(|&&cut| cut > offset) {
                Some(&cut) => available.min(usize::try_from(cut - offset).unwrap_or(usize::MAX)),
                None => available,
            },
            Self::ByChance if rng.f64() < plan.split_receives => part_of(available, rng),
            Self::ByChance => available,
        }
    }
}

/// From one byte to all of them; small parts as often as large ones.
fn part_of(available: usize, rng: &mut Rng) -> usize {
    let most = match rng.u8(0..3) {
        0 => 1,
        1 => 16,
        _ => available,
    };
    rng.usize(1..=available.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: one seed is one plan, different seeds differ, and each fault occurs in some plan and
    /// is absent from another.
    #[test]
    fn plans_come_from_their_seed_and_cover_all_faults() {
        let plans: Vec<FaultPlan> = (0..64).map(FaultPlan::drawn).collect();
        assert_eq!(plans[7], FaultPlan::drawn(7));
        for chance in [
            |plan: &FaultPlan| plan.split_receives,
            |plan: &FaultPlan| plan.short_sends,
            |plan: &FaultPlan| plan.late_sends,
            |plan: &FaultPlan| plan.delays,
            |plan: &FaultPlan| plan.bursts,
            |plan: &FaultPlan| plan.spurious_wakes,
            |plan: &FaultPlan| plan.buffers_missing,
            |plan: &FaultPlan| plan.resets_lose_input,
            |plan: &FaultPlan| plan.accept_failures,
            |plan: &FaultPlan| plan.connect_failures,
            |plan: &FaultPlan| plan.delayed_closes,
        ] {
            assert!(plans.iter().any(|plan| chance(plan) > 0.3));
            assert!(plans.iter().any(|plan| chance(plan) == 0.0));
            assert!(plans.iter().all(|plan| chance(plan) <= 1.0));
        }
        assert!(plans.iter().all(|plan| plan.resets == 0.0));
    }

    /// Goal: scripted cuts fall exactly where they were asked for, whatever arrives at once.
    #[test]
    fn scripted_cuts_are_exact() {
        let (plan, mut rng) = (FaultPlan::none(), Rng::with_seed(1));
        let cuts = Cuts::At(vec![3, 7]);
        let mut take = |offset, available| cuts.take(offset, available, &plan, &mut rng);
        assert_eq!((take(0, 10), take(3, 10), take(7, 10)), (3, 4, 10));
        assert_eq!((take(0, 2), take(2, 9)), (2, 1));
    }
}

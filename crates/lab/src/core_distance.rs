//! How far apart the CPUs of server and generator are right now.
//!
//! A request and its response are cache lines that one CPU writes and the other reads. Virtual CPUs do not say
//! where they are: a hypervisor moves them between cores and core complexes for seconds at a time, and then a
//! line takes 300 ns to cross and back in place of 50 ns, and a server that does little else answers 155,000
//! requests a second in place of 235,000. Neither the speed of each CPU alone nor the server's CPU share shows it. So
//! the time of a round trip is measured before and after each slice: two threads pass a number to and fro.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use millpond_measure::record::CORE_DISTANCE_CHANGE_MIN;

use crate::placement::Placement;

/// What a cache line takes from the server's CPU to the generator's and back; none where that cannot be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CoreDistance {
    ns: Option<f64>,
}

impl CoreDistance {
    pub(crate) fn now(placement: &Placement) -> Self {
        let ends = placement.server.first().zip(placement.generator.first());
        let ns = ends.and_then(|(&one, &other)| round_trip_ns(one, other));
        Self { ns }
    }

    /// For a record: 0 stands for none.
    pub(crate) fn ns(self) -> f64 {
        self.ns.unwrap_or(0.0)
    }

    pub(crate) fn mean(self, other: Self) -> Self {
        let ns = self.ns.zip(other.ns).map(|(one, two)| (one * two).sqrt());
        Self { ns }
    }

    /// This one, or `other` where there is none.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            ns: self.ns.or(other.ns),
        }
    }

    /// Whether the CPUs were moved from one to the other.
    pub(crate) fn differs(self, other: Self) -> bool {
        self.change_to(other)
            .is_some_and(|change| change.abs() > CORE_DISTANCE_CHANGE_MIN)
    }

    /// Whether the CPUs are farther apart than at `other`.
    pub(crate) fn is_beyond(self, other: Self) -> bool {
        other
            .change_to(self)
            .is_some_and(|change| change > CORE_DISTANCE_CHANGE_MIN)
    }

    /// Makes this the nearer one of both, and returns it.
    pub(crate) fn lower_to(&mut self, other: Self) -> Self {
        self.ns = self.ns.into_iter().chain(other.ns).reduce(f64::min);
        *self
    }

    fn change_to(self, other: Self) -> Option<f64> {
        self.ns.zip(other.ns).map(|(one, two)| (two / one).ln())
    }
}

/// Round trips in one run, and runs: the fastest counts, since an interrupt falls into a few of them.
const TRIPS: u32 = 200;
const RUNS: u32 = 10;
/// A thread that never gets its CPU must not hold up a comparison.
const PATIENCE: Duration = Duration::from_millis(50);
/// The clock is read after so many looks.
const LOOKS: u32 = 1_000;

/// Nanoseconds of a round trip between two CPUs; `None` if they are one, or a thread cannot run there in time.
fn round_trip_ns(one: usize, other: usize) -> Option<f64> {
    if one == other {
        return None;
    }
    let line = Line::default();
    std::thread::scope(|scope| {
        let thread = |cpu, place| {
            let line = &line;
            std::thread::Builder::new()
                .name("core-distance".to_owned())
                .spawn_scoped(scope, move || line.pass(cpu, place))
        };
        let first = thread(one, 0).ok()?;
        let second = thread(other, 1);
        if second.is_err() {
            line.is_given_up.store(true, Ordering::Relaxed);
        }
        first.join().ok()?
    })
    .filter(|ns| ns.is_finite())
}

/// What both look at. Nothing else lies beside it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line {
    /// Whose turn it is.
    turn: AtomicU32,
    is_given_up: AtomicBool,
}

impl Line {
    /// The fastest run of one side.
    fn pass(&self, cpu: usize, place: u32) -> Option<f64> {
        let mut only = CpuSet::new();
        only.set(cpu);
        if sched_setaffinity(None, &only).is_err() {
            self.is_given_up.store(true, Ordering::Relaxed);
            return None;
        }
        let end = Instant::now() + PATIENCE;
        let mut fastest = f64::INFINITY;
        for _ in 0..RUNS {
            let began = Instant::now();
            for _ in 0..TRIPS {
                self.await_turn(place, end)?;
                self.turn.store(1 - place, Ordering::Release);
            }
            let ns = began.elapsed().as_nanos() as f64 / f64::from(TRIPS);
            fastest = fastest.min(ns);
        }
        Some(fastest)
    }

    fn await_turn(&self, place: u32, end: Instant) -> Option<()> {
        let mut looks = 0;
        while self.turn.load(Ordering::Acquire) != place {
            looks += 1;
            if looks % LOOKS == 0 {
                if self.is_given_up.load(Ordering::Relaxed) || Instant::now() > end {
                    self.is_given_up.store(true, Ordering::Relaxed);
                    return None;
                }
                // Beside a busy thread the other one needs this CPU, if it is the only one.
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(ns: f64) -> CoreDistance {
        CoreDistance { ns: Some(ns) }
    }

    /// Goal: near and far are distinguished whatever the machine's distances are, and what is not known is neither.
    #[test]
    fn distances_are_compared() {
        let (near, far, none) = (distance(55.0), distance(300.0), CoreDistance::default());
        assert!(near.differs(far) && far.differs(near) && !near.differs(distance(64.0)));
        assert!(far.is_beyond(near) && !near.is_beyond(far) && !near.is_beyond(near));
        assert!(!none.differs(near) && !near.differs(none) && !near.is_beyond(none));
        let mut nearest = none;
        for (seen, expected) in [
            (none, none),
            (far, far),
            (near, near),
            (far, near),
            (none, near),
        ] {
            assert_eq!(nearest.lower_to(seen), expected);
        }
        assert_eq!((near.or(far), none.or(far)), (near, far));
        assert_eq!((none.ns(), near.mean(near).ns().round()), (0.0, 55.0));
    }

    /// Goal: a number between two CPUs, or none where one of them cannot be had; never a wait without end.
    #[test]
    fn a_round_trip_takes_time() {
        let cpus = millpond_io::allowed_cpus().unwrap();
        assert_eq!(round_trip_ns(cpus[0], cpus[0]), None);
        assert_eq!(round_trip_ns(cpus[0], 1_000), None);
        if let [one, other, ..] = cpus[..] {
            // A busy machine may have no time for it.
            assert!(round_trip_ns(one, other).is_none_or(|ns| ns > 1.0));
        }
    }
}

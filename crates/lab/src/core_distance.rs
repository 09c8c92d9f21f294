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

/// Round trips in one run, and runs: the fastest counts, since an interrupt falls into a few of them.
const TRIPS: u32 = 200;
const RUNS: u32 = 10;
/// A thread that never gets its CPU must not hold up a comparison.
const PATIENCE: Duration = Duration::from_millis(50);
/// The clock is read after so many looks.
const LOOKS: u32 = 1_000;

/// Nanoseconds of a round trip between two CPUs; `None` if they are one, or a thread cannot run there in time.
pub(crate) fn round_trip_ns(one: usize, other: usize) -> Option<f64> {
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

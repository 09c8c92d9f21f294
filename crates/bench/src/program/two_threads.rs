//! `mixed` in two threads at once, each with memory of its own: what an allocator shares shows.

use super::mixed::{Mixed, operations};
use super::{Outcome, Plan, WARM_UP_ITERATIONS};
use crate::cpus::Cpus;
use crate::memory::Memory;
use crate::stopwatch::Timed;
use std::sync::Barrier;
use std::thread;

const THREAD_COUNT: usize = 2;

pub(super) fn run<M: Memory>(plan: &Plan) -> Outcome {
    let cpus = Cpus::allowed();
    let start = Barrier::new(THREAD_COUNT);
    let work = |number: u64| {
        cpus.pin(number as usize);
        let mut mixed = Mixed::<M>::new(plan.seed.wrapping_add(number));
        mixed.iterate(WARM_UP_ITERATIONS);
        start.wait();
        let mut checksum = 0;
        let timed = Timed::of(|| checksum = mixed.iterate(plan.iterations));
        // Nobody tidies up while the other is still being timed.
        start.wait();
        (timed, checksum)
    };
    let (one, other) = thread::scope(|scope| {
        let other = scope.spawn(|| work(1));
        (work(0), other.join())
    });
    let other = other.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Outcome::new(
        THREAD_COUNT as u64 * operations(plan.iterations),
        one.0.beside(other.0),
        one.1.wrapping_add(other.1),
    )
}

//! The one clock of a shard: monotonic nanoseconds.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds in one second.
pub const NS_PER_S: u64 = 1_000_000_000;

/// Nanoseconds since an arbitrary start (boot), from `CLOCK_MONOTONIC` without a system call
/// where the kernel maps its clock into the process (vDSO).
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The monotonic clock is never negative and nanoseconds are below one second.
    now.tv_sec.cast_unsigned() * NS_PER_S + now.tv_nsec.cast_unsigned()
}

/// The earlier of two deadlines, where `None` is never.
#[inline]
pub(crate) fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        _ => one.or(other),
    }
}

/// A duration as the kernel's type; saturates at some 292 years.
pub(crate) fn timespec_of_ns(duration_ns: u64) -> Timespec {
    Timespec {
        tv_sec: (duration_ns / NS_PER_S).cast_signed(),
        tv_nsec: (duration_ns % NS_PER_S).cast_signed(),
    }
}

/// Goal: the clock never runs backwards and counts in nanoseconds, not in a coarser unit.
#[test]
fn the_clock_moves_forward_in_nanoseconds() {
    let first_ns = monotonic_ns();
    let system_start = std::time::Instant::now();
    std::thread::sleep(std::time::Duration::from_millis(3));
    let system_ns = u64::try_from(system_start.elapsed().as_nanos()).unwrap();
    let second_ns = monotonic_ns();
    assert!(
        second_ns - first_ns >= system_ns,
        "{first_ns} .. {second_ns}, {system_ns} inside"
    );
    assert!(second_ns - first_ns >= 3_000_000);
}

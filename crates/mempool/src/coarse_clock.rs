//! The time, as cheaply as it is to be had, for what is done once in a while.
//!
//! The malloc heap's sweeps and the store's purges ask whether it is time for them, on their slow
//! paths only. It is a few milliseconds late, for a tenth of the price.

/// Milliseconds since some start, a few of them too old. No system call, and no function that a
/// program may use instead of the C library's: that might allocate.
pub(crate) fn now_ms() -> u64 {
    #[cfg(not(miri))]
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    // Miri supports only the precise clock.
    #[cfg(miri)]
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
#[path = "tests/coarse_clock.rs"]
mod tests;

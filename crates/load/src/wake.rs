//! How much of service time is this machine's own: from an answer's arrival in the kernel, which
//! stamps it, to the moment its thread was awake for it.
//!
//! ```text
//! written ------ kernel service ------ stamp ------ wake delay ------ awake
//!     \---------------------------- service -----------------------------/
//! ```
//!
//! On the path: `worker` asks the driver for stamps of a sample of its receives and reports those
//! with one whole answer here; `run` merges the threads. A generator that lost its CPU lengthens
//! wake delay, and leaves the kernel's service time as it is.
//! Absent on purpose: stamps of every answer. A thousand a second of each thread tell percentiles
//! as well, and cost a fast run nothing that shows.
use crate::outcome::InFlight;
use millpond_measure::histogram::LatencyHistogram;

/// Stamps taken between two calls of [`Sampling::every`], which is 20 ms: about a thousand a second.
const STAMPS_PER_PERIOD: u64 = 20;

/// The two parts of service time, of the answers that were sampled.
#[derive(Debug, Default)]
pub(crate) struct WakeDelays {
    /// From the stamp to the thread being awake.
    pub(crate) delay: LatencyHistogram,
    /// From the write to the stamp.
    pub(crate) kernel_service: LatencyHistogram,
}

impl WakeDelays {
    /// A right answer to `request` was stamped by the kernel and taken in at `awake_ns`; its kernel
    /// service time in nanoseconds.
    pub(crate) fn record(&mut self, request: &InFlight, stamp_ns: u64, awake_ns: u64) -> u64 {
        let stamp_ns = stamp_ns.clamp(request.written_ns, awake_ns.max(request.written_ns));
        let kernel_service_ns = stamp_ns - request.written_ns;
        self.kernel_service.record(kernel_service_ns);
        self.delay.record(awake_ns.saturating_sub(stamp_ns));
        kernel_service_ns
    }

    /// Adds what another thread saw.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.delay.merge(&other.delay);
        self.kernel_service.merge(&other.kernel_service);
    }
}

/// Which receives are stamped: one in so many that a fast thread takes as many as a slow one. Counted
/// and not timed: after a stall the next receive is no more likely to be taken than any other.
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    receives: u64,
}

impl Sampling {
    /// One receive in so many from now on, judged by how many there were since the last call.
    pub(crate) fn every(&mut self, receives: u64) -> u32 {
        let fresh = receives.saturating_sub(self.receives);
        self.receives = receives;
        u32::try_from((fresh / STAMPS_PER_PERIOD).max(1)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Goal: whatever the kernel says, the two parts of an answer are its service time.
        #[test]
        fn the_parts_add_up_to_service(
            written_ns in 1_u64..1 << 30, service_ns in 0_u64..1 << 30, stamp_ns in 0_u64..1 << 32,
        ) {
            let request = InFlight { written_ns, ..InFlight::default() };
            let mut delays = WakeDelays::default();
            delays.record(&request, stamp_ns, written_ns + service_ns);
            let sum = delays.delay.mean() + delays.kernel_service.mean();
            prop_assert!((sum - service_ns as f64).abs() <= service_ns as f64 * 0.002 + 2.0);
        }
    }

    /// Goal: a slow thread samples every answer, a fast one a thousand a second.
    #[test]
    fn the_sample_is_bounded() {
        let mut sampling = Sampling::default();
        assert_eq!(sampling.every(10), 1);
        assert_eq!(sampling.every(10 + 2_000), 100);
        assert_eq!(sampling.every(2_010), 1);
    }
}

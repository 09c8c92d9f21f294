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

/// Stamps of a thread that answers faster: about a thousand a second.
const NS_PER_STAMP: u64 = 1_000_000;
/// One receive in so many until the rate is known: a fast thread must not take most of its sample in the first moment.
const EVERY_AT_FIRST: u32 = 16;

/// The two parts of service time, of the answers that were sampled.
#[derive(Debug, Default)]
pub(crate) struct WakeDelays {
    /// From the stamp to the thread being awake.
    pub(crate) delay: LatencyHistogram,
    /// From the write to the stamp.
    pub(crate) kernel_service: LatencyHistogram,
    /// Both together: service time of the same answers.
    pub(crate) service: LatencyHistogram,
}

impl WakeDelays {
    /// A right answer to `request` was stamped by the kernel and taken in at `awake_ns`; its kernel
    /// service time in nanoseconds.
    pub(crate) fn record(&mut self, request: &InFlight, stamp_ns: u64, awake_ns: u64) -> u64 {
        let stamp_ns = stamp_ns.clamp(request.written_ns, awake_ns.max(request.written_ns));
        let kernel_service_ns = stamp_ns - request.written_ns;
        self.kernel_service.record(kernel_service_ns);
        self.delay.record(awake_ns.saturating_sub(stamp_ns));
        self.service
            .record(awake_ns.saturating_sub(request.written_ns));
        kernel_service_ns
    }

    /// Adds what another thread saw.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.delay.merge(&other.delay);
        self.kernel_service.merge(&other.kernel_service);
        self.service.merge(&other.service);
    }
}

/// Which receives are stamped: one in so many that a fast thread takes as many as a slow one, by how many there were
/// since sending began. A number of the last moments would follow the stalls: few receives come in a stall, and then
/// each of them would be taken.
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    /// When sending begins, and the receives until then.
    began: Option<(u64, u64)>,
}

impl Sampling {
    /// One receive in so many from now on; there were `receives` until `now_ns`.
    pub(crate) fn every(&mut self, receives: u64, start_ns: u64, now_ns: u64) -> u32 {
        let (start_ns, before) = *self.began.get_or_insert((start_ns, receives));
        let stamps = now_ns.saturating_sub(start_ns) / NS_PER_STAMP;
        if stamps == 0 {
            return EVERY_AT_FIRST;
        }
        let every = receives.saturating_sub(before) / stamps;
        u32::try_from(every.max(1)).unwrap_or(u32::MAX)
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
            prop_assert!((sum - delays.service.mean()).abs() <= sum * 0.002 + 2.0);
        }
    }

    /// Goal: a slow thread samples every answer, a fast one a thousand a second, its first moment included.
    #[test]
    fn the_sample_is_bounded() {
        const MS_NS: u64 = 1_000_000;
        let mut slow = Sampling::default();
        assert_eq!(slow.every(5, 10 * MS_NS, 0), EVERY_AT_FIRST);
        assert_eq!(slow.every(6, 10 * MS_NS, 30 * MS_NS), 1);
        let mut fast = Sampling::default();
        assert_eq!(fast.every(5, 10 * MS_NS, 0), EVERY_AT_FIRST);
        assert_eq!(fast.every(2_005, 10 * MS_NS, 30 * MS_NS), 100);
        assert_eq!(fast.every(4_005, 10 * MS_NS, 50 * MS_NS), 100);
    }

    /// Each second a thread answers 100,000 requests in 20 us each and stalls for 300 ms, in which ten wait. With a
    /// rate that followed the stalls the sample's mean was 4.8 times that of all.
    ///
    /// Goal: the share of the sample that met a stall is that of all requests.
    #[test]
    fn stalls_are_not_sampled_more_often() {
        const MS_NS: u64 = 1_000_000;
        let mut sampling = Sampling::default();
        let (mut receives, mut every, mut since_stamp) = (0_u64, 0, 0);
        let (mut sampled, mut sampled_stalled) = (0_u64, 0_u64);
        let mut receive = |every: u32, is_stalled: bool| {
            since_stamp += 1;
            if since_stamp >= every {
                since_stamp = 0;
                sampled += 1;
                sampled_stalled += u64::from(is_stalled);
            }
        };
        for period in 0..3_000_u64 {
            // 20 ms each; fifteen of fifty lie in a stall.
            let is_stalled = period % 50 >= 35;
            let count = if is_stalled { 1 } else { 2_000 };
            for _ in 0..count {
                receive(every, is_stalled);
            }
            receives += count;
            every = sampling.every(receives, 0, (period + 1) * 20 * MS_NS);
        }
        let stalled_of_all = 900.0 / receives as f64;
        let stalled_of_sample = sampled_stalled as f64 / sampled as f64;
        assert!(sampled > 10_000, "{sampled}");
        assert!(
            stalled_of_sample < 3.0 * stalled_of_all,
            "{stalled_of_sample} {stalled_of_all}"
        );
    }
}

//! How early to wake for an arrival, learnt from how late wake-ups have been.
//!
//! On the path: `worker` sleeps until the window opens, then polls until the arrival is due. The
//! kernel wakes a sleeper tens of microseconds late; polling through that time costs CPU that the
//! server may need, so the window is as short as the lateness seen, and bounded.
//! Absent on purpose: the clock. Times come in, a width goes out.

/// Widest window: what is later than this is not a timer's lateness but a busy CPU.
const SPIN_NS_MAX: u64 = 100_000;
/// Share of the gap between two arrivals that may be spent polling.
const GAP_SHARE: u64 = 4;
/// Weight of a new observation is one over this.
const SMOOTHING: u64 = 16;
/// Before anything was observed: the median lateness of a sleeping thread on an idle machine.
const SPIN_NS_FIRST: u64 = 30_000;

/// Exponentially weighted mean and deviation of wake lateness.
#[derive(Debug)]
pub(crate) struct SpinWindow {
    mean_ns: u64,
    deviation_ns: u64,
    width_ns_max: u64,
}

impl SpinWindow {
    /// `gap_ns` lies between two arrivals of one thread. Where arrivals are dense they wake the
    /// thread by themselves, and the window closes.
    pub(crate) fn new(gap_ns: u64) -> Self {
        let width_ns_max = SPIN_NS_MAX.min(gap_ns / GAP_SHARE);
        Self {
            mean_ns: SPIN_NS_FIRST,
            deviation_ns: 0,
            width_ns_max,
        }
    }

    /// A sleep ended this much after it should have.
    pub(crate) fn observe(&mut self, late_ns: u64) {
        // One descheduled moment must not hold the window open for the next hundred arrivals.
        let late_ns = late_ns.min(2 * SPIN_NS_MAX);
        let error_ns = late_ns.abs_diff(self.mean_ns);
        self.mean_ns = (self.mean_ns * (SMOOTHING - 1) + late_ns) / SMOOTHING;
        self.deviation_ns = (self.deviation_ns * (SMOOTHING - 1) + error_ns) / SMOOTHING;
    }

    /// How long before an arrival to stop sleeping: covers all but the latest wake-ups.
    pub(crate) fn width_ns(&self) -> u64 {
        (self.mean_ns + 2 * self.deviation_ns).min(self.width_ns_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the window settles just above steady lateness and follows it down again.
    #[test]
    fn the_window_follows_the_lateness() {
        let mut window = SpinWindow::new(1_000_000);
        for _ in 0..200 {
            window.observe(20_000);
        }
        assert!(
            (19_000..25_000).contains(&window.width_ns()),
            "{}",
            window.width_ns()
        );
        for _ in 0..200 {
            window.observe(2_000);
        }
        assert!(window.width_ns() < 4_000, "{}", window.width_ns());
    }

    /// Goal: a busy machine cannot make the generator burn a whole CPU.
    #[test]
    fn the_window_is_bounded() {
        let mut window = SpinWindow::new(1_000_000);
        (0..100).for_each(|_| window.observe(50_000_000));
        assert_eq!(window.width_ns(), SPIN_NS_MAX);
        let mut dense = SpinWindow::new(40_000);
        (0..100).for_each(|_| dense.observe(50_000_000));
        assert_eq!(dense.width_ns(), 10_000);
    }
}

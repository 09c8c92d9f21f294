//! When requests are due: closed loop, or one arrival process fixed before the run.
//!
//! On the path: `run` makes one schedule when every connection is up; each `worker` claims the next
//! arrival from it while it has a free connection. All threads draw from the same process through
//! one atomic index, so a stalled connection or thread never keeps arrivals that others could send.
//! Absent on purpose: a catch-up limit and any look at completions. An arrival that could not be
//! sent in time stays due at its intended start, which is what makes a stall visible.
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// One request in a million seconds: the step in which rates are kept, so that arithmetic is exact.
const RATE_STEPS_PER_REQUEST: f64 = 1e6;
/// `1e9 ns/s * 1e6 steps/request`: an interval in ns is this over the rate in steps.
const STEP_NS: u128 = 1_000_000_000_000_000;
/// The highest rate that can be asked for; beyond it intervals fall under the clock's resolution.
pub const RATE_PER_S_MAX: f64 = 1e9;

/// An arrival rate held as an integer (millionths of a request per second).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rate {
    micro_per_s: NonZeroU64,
}

impl Rate {
    /// The nearest representable rate; `None` if it rounds to zero, is above
    /// [`RATE_PER_S_MAX`] or is not a number.
    pub fn from_per_s(per_s: f64) -> Option<Self> {
        if !(per_s > 0.0 && per_s <= RATE_PER_S_MAX) {
            return None;
        }
        // In range by the check above, so the cast cannot saturate.
        let micro_per_s = (per_s * RATE_STEPS_PER_REQUEST).round() as u64;
        NonZeroU64::new(micro_per_s).map(|micro_per_s| Self { micro_per_s })
    }

    /// Requests per second.
    pub fn per_s(self) -> f64 {
        self.micro_per_s.get() as f64 / RATE_STEPS_PER_REQUEST
    }

    /// Start of arrival `number` after the start of the process: `floor(number * 1e9 / rate)`.
    /// Computed from the number alone, so no error accumulates.
    pub fn offset_ns(self, number: u64) -> u64 {
        let offset_ns = u128::from(number) * STEP_NS / u128::from(self.micro_per_s.get());
        u64::try_from(offset_ns).unwrap_or(u64::MAX)
    }

    /// How many arrivals start before `span_ns`; the inverse of [`Rate::offset_ns`].
    pub fn arrivals_before(self, span_ns: u64) -> u64 {
        let arrivals = (u128::from(span_ns) * u128::from(self.micro_per_s.get())).div_ceil(STEP_NS);
        u64::try_from(arrivals).unwrap_or(u64::MAX)
    }
}

/// What makes a request due.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pace {
    /// The next request leaves as soon as a connection is free.
    Closed,
    /// Requests are due on a fixed grid, whatever the answers do.
    Constant(Rate),
}

/// One request that is due: now, or at its intended start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Arrival {
    /// Counts from 0 in each phase; a key or a body is derived from it.
    pub number: u64,
    /// When the schedule says it leaves. 0 in a closed loop: the write itself is the start.
    pub intended_ns: u64,
    /// False during warm-up.
    pub counted: bool,
}

/// Warm-up and window in absolute time, and the one index all threads share.
///
/// Invariant: an index is handed out at most once, and in a constant-rate run the intended start
/// is a pure function of it.
#[derive(Debug)]
pub struct Schedule {
    pace: Pace,
    start_ns: u64,
    window_start_ns: u64,
    /// `u64::MAX` when only a count ends the run.
    window_end_ns: u64,
    /// `u64::MAX` when only time ends the run.
    requests_max: u64,
    /// Constant rate: arrivals before the window. Closed loop: not used.
    warm_up_count: u64,
    next: AtomicU64,
    warm_up_next: AtomicU64,
}

impl Schedule {
    /// A schedule that begins at `start_ns` with `warm_up_ns` uncounted, then counts requests until
    /// `duration_ns` of window or `requests_max` requests, whichever is first.
    pub fn new(
        pace: Pace,
        start_ns: u64,
        warm_up_ns: u64,
        duration_ns: Option<u64>,
        requests_max: Option<u64>,
    ) -> Self {
        let window_start_ns = start_ns.saturating_add(warm_up_ns);
        let warm_up_count = match pace {
            Pace::Closed => 0,
            Pace::Constant(rate) => rate.arrivals_before(warm_up_ns),
        };
        Self {
            pace,
            start_ns,
            window_start_ns,
            window_end_ns: duration_ns
                .map_or(u64::MAX, |span| window_start_ns.saturating_add(span)),
            requests_max: requests_max.unwrap_or(u64::MAX),
            warm_up_count,
            next: AtomicU64::new(0),
            warm_up_next: AtomicU64::new(0),
        }
    }

    /// When warm-up begins.
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// When counting begins.
    pub fn window_start_ns(&self) -> u64 {
        self.window_start_ns
    }

    /// When the last arrival must have been due; `None` if only a count ends the run.
    pub fn window_end_ns(&self) -> Option<u64> {
        (self.window_end_ns != u64::MAX).then_some(self.window_end_ns)
    }

    /// The number of counted requests that end the run; `None` if only time ends it.
    pub fn requests_max(&self) -> Option<u64> {
        (self.requests_max != u64::MAX).then_some(self.requests_max)
    }

    /// What makes requests due.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Takes the next arrival, which the caller must send or account for. `None`: no more will
    /// come. A constant-rate arrival may lie in the future; the caller waits for it with a
    /// connection in hand, so idle threads do not all wake for the same arrival.
    pub fn claim(&self, now_ns: u64) -> Option<Arrival> {
        match self.pace {
            Pace::Closed => self.claim_closed(now_ns),
            Pace::Constant(rate) => self.claim_constant(rate),
        }
    }

    fn claim_closed(&self, now_ns: u64) -> Option<Arrival> {
        if now_ns < self.window_start_ns {
            let number = self.warm_up_next.fetch_add(1, Ordering::Relaxed);
            return Some(Arrival {
                number,
                intended_ns: 0,
                counted: false,
            });
        }
        if now_ns >= self.window_end_ns {
            return None;
        }
        let number = self.take(self.requests_max)?;
        Some(Arrival {
            number,
            intended_ns: 0,
            counted: true,
        })
    }

    fn claim_constant(&self, rate: Rate) -> Option<Arrival> {
        let index = self.take(self.constant_end(rate))?;
        if index < self.warm_up_count {
            let intended_ns = self.start_ns.saturating_add(rate.offset_ns(index));
            return Some(Arrival {
                number: index,
                intended_ns,
                counted: false,
            });
        }
        let number = index - self.warm_up_count;
        let intended_ns = self.window_start_ns.saturating_add(rate.offset_ns(number));
        Some(Arrival {
            number,
            intended_ns,
            counted: true,
        })
    }

    /// The first index that is never handed out.
    fn constant_end(&self, rate: Rate) -> u64 {
        let by_time = self.window_end_ns().map_or(u64::MAX, |end_ns| {
            rate.arrivals_before(end_ns - self.window_start_ns)
        });
        self.warm_up_count
            .saturating_add(by_time.min(self.requests_max))
    }

    /// The next index below `end`. The plain load keeps a finished run from counting on for ever.
    fn take(&self, end: u64) -> Option<u64> {
        if self.next.load(Ordering::Relaxed) >= end {
            return None;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < end).then_some(index)
    }

    /// Whether `now_ns` is inside the window.
    pub fn is_in_window(&self, now_ns: u64) -> bool {
        self.window_start_ns <= now_ns && now_ns < self.window_end_ns
    }

    /// Whether [`Schedule::claim`] has nothing more to give, now or later.
    pub fn is_exhausted(&self, now_ns: u64) -> bool {
        let claimed = self.next.load(Ordering::Relaxed);
        match self.pace {
            Pace::Closed => now_ns >= self.window_end_ns || claimed >= self.requests_max,
            Pace::Constant(rate) => claimed >= self.constant_end(rate),
        }
    }

    /// Counted arrivals that were due before `now_ns`: the offered load. `None` in a closed loop,
    /// where nothing is due by itself.
    pub fn offered_until(&self, now_ns: u64) -> Option<u64> {
        let Pace::Constant(rate) = self.pace else {
            return None;
        };
        let until_ns = now_ns.min(self.window_end_ns);
        let span_ns = until_ns.saturating_sub(self.window_start_ns);
        Some(rate.arrivals_before(span_ns).min(self.requests_max))
    }

    /// Counted arrivals due before `now_ns` that no thread has taken. Call it after the threads
    /// have ended: they may still be claiming otherwise.
    pub fn unclaimed_until(&self, now_ns: u64) -> impl Iterator<Item = Arrival> + '_ {
        let claimed = self
            .next
            .load(Ordering::Relaxed)
            .saturating_sub(self.warm_up_count);
        let offered = self.offered_until(now_ns).unwrap_or(0);
        (claimed..offered).map(move |number| {
            let offset_ns = match self.pace {
                Pace::Constant(rate) => rate.offset_ns(number),
                Pace::Closed => 0,
            };
            let intended_ns = self.window_start_ns.saturating_add(offset_ns);
            Arrival {
                number,
                intended_ns,
                counted: true,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn constant(
        per_s: f64,
        warm_up_ns: u64,
        duration_ns: Option<u64>,
        max: Option<u64>,
    ) -> Schedule {
        let rate = Rate::from_per_s(per_s).unwrap();
        Schedule::new(Pace::Constant(rate), 1_000, warm_up_ns, duration_ns, max)
    }

    /// Goal: the grid is exact at any distance from the start; no drift, no rounding pile-up.
    #[test]
    fn offsets_are_exact_after_a_year() {
        let rate = Rate::from_per_s(3.0).unwrap();
        assert_eq!(rate.offset_ns(1), 333_333_333);
        assert_eq!(rate.offset_ns(3), SECOND_NS);
        let year_s = 31_536_000;
        assert_eq!(rate.offset_ns(3 * year_s), year_s * SECOND_NS);
        let slow = Rate::from_per_s(0.5).unwrap();
        assert_eq!(slow.offset_ns(7), 14 * SECOND_NS);
    }

    #[test]
    fn rates_out_of_range_are_refused() {
        for per_s in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9, 2e9] {
            assert_eq!(Rate::from_per_s(per_s), None, "{per_s}");
        }
        assert!(Rate::from_per_s(0.01).is_some());
        assert!(Rate::from_per_s(5e6).is_some());
    }

    proptest! {
        /// Goal: counting arrivals before a moment agrees with asking each arrival for its start.
        #[test]
        fn arrivals_before_is_the_inverse_of_offset(
            per_s in 0.01f64..5e6, number in 0u64..10_000_000
        ) {
            let rate = Rate::from_per_s(per_s).unwrap();
            let offset_ns = rate.offset_ns(number);
            prop_assert!(rate.arrivals_before(offset_ns) <= number);
            prop_assert!(rate.arrivals_before(offset_ns + 1) > number);
            prop_assert!(rate.offset_ns(number + 1) >= offset_ns);
        }

        /// Goal: gaps differ by at most one nanosecond: the process is as even as integers allow.
        #[test]
        fn gaps_differ_by_one_nanosecond(per_s in 0.01f64..1e6, number in 0u64..1_000_000) {
            let rate = Rate::from_per_s(per_s).unwrap();
            let gap = rate.offset_ns(number + 1) - rate.offset_ns(number);
            let first = rate.offset_ns(1);
            prop_assert!(gap == first || gap == first + 1);
        }
    }

    /// Goal: threads share one process: every index once, none lost, none twice, the grid intact.
    #[test]
    fn threads_claim_each_arrival_exactly_once() {
        let schedule = constant(1e6, 0, None, Some(40_000));
        let mut claimed: Vec<Arrival> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| std::iter::from_fn(|| schedule.claim(0)).collect::<Vec<_>>())
                })
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        claimed.sort_by_key(|arrival| arrival.number);
        assert_eq!(claimed.len(), 40_000);
        for (number, arrival) in claimed.iter().enumerate() {
            assert_eq!(arrival.number, number as u64);
            assert_eq!(arrival.intended_ns, 1_000 + 1_000 * number as u64);
        }
        assert_eq!(schedule.claim(u64::MAX), None);
    }

    /// Goal: warm-up arrivals come before the window, and the window's own grid begins at its start.
    #[test]
    fn warm_up_precedes_the_window() {
        let schedule = constant(10.0, SECOND_NS, Some(SECOND_NS), None);
        let all: Vec<Arrival> = std::iter::from_fn(|| schedule.claim(0)).collect();
        let (warm, counted): (Vec<Arrival>, Vec<Arrival>) =
            all.into_iter().partition(|arrival| !arrival.counted);
        assert_eq!((warm.len(), counted.len()), (10, 10));
        assert!(
            warm.iter()
                .all(|arrival| arrival.intended_ns < schedule.window_start_ns())
        );
        assert_eq!(counted[0].number, 0);
        assert_eq!(counted[0].intended_ns, schedule.window_start_ns());
        assert_eq!(schedule.offered_until(u64::MAX), Some(10));
    }

    /// Goal: whichever of duration and count comes first ends the run.
    #[test]
    fn the_first_limit_ends_the_run() {
        let by_count = constant(10.0, 0, Some(100 * SECOND_NS), Some(3));
        assert_eq!(std::iter::from_fn(|| by_count.claim(0)).count(), 3);
        let by_time = constant(10.0, 0, Some(SECOND_NS / 2), Some(1_000));
        assert_eq!(std::iter::from_fn(|| by_time.claim(0)).count(), 5);
    }

    /// Goal: arrivals that were due but never taken are known with their intended starts.
    #[test]
    fn unclaimed_arrivals_are_the_rest_of_the_grid() {
        let schedule = constant(10.0, SECOND_NS, Some(SECOND_NS), None);
        for _ in 0..14 {
            schedule.claim(0).unwrap();
        }
        let rest: Vec<Arrival> = schedule.unclaimed_until(u64::MAX).collect();
        assert_eq!(rest.len(), 6);
        assert_eq!(rest[0].number, 4);
        assert_eq!(
            rest[0].intended_ns,
            schedule.window_start_ns() + 4 * SECOND_NS / 10
        );
        let soon = schedule.window_start_ns() + SECOND_NS / 2;
        assert_eq!(schedule.unclaimed_until(soon).count(), 1);
    }

    /// Goal: a closed loop counts warm-up and window apart and stops by time or by exact count.
    #[test]
    fn closed_loop_counts_exactly() {
        let schedule = Schedule::new(Pace::Closed, 100, 50, Some(1_000), Some(5));
        assert!(!schedule.claim(100).unwrap().counted);
        assert!(!schedule.claim(149).unwrap().counted);
        let numbers: Vec<u64> = std::iter::from_fn(|| schedule.claim(150))
            .map(|arrival| arrival.number)
            .collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        let by_time = Schedule::new(Pace::Closed, 100, 0, Some(1_000), None);
        assert!(by_time.claim(1_099).is_some());
        assert_eq!(by_time.claim(1_100), None);
        assert_eq!(by_time.offered_until(2_000), None);
    }
}

//! A rate that is kept exactly.
//!
//! On the path: the evenly spaced process of one rate, which is most runs, is computed in whole
//! numbers from the arrival's number alone. Absent on purpose: rates that change (`profile`).
use std::num::NonZeroU64;

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND_NS: u64 = 1_000_000_000;

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
}

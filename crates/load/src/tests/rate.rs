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

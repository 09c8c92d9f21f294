use super::*;
use proptest::prelude::*;

proptest! {
    /// Goal: whatever the kernel says, the two parts of a response are its service time.
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

/// Goal: a slow thread samples every response, a fast one a thousand a second, its first moment included.
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

/// Each second a thread completes 100,000 requests in 20 us each and stalls for 300 ms, in which ten wait. With a rate
/// that followed the stalls the sample's mean was 4.8 times that of all.
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

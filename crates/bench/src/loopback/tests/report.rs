use super::*;
use millpond_measure::record::LoadErrors;

/// Goal: a second reads as the earlier program's did, with its variance in square milliseconds, and
/// failures show.
#[test]
fn a_second_is_a_line() {
    let second = LoadSecond {
        second: 2,
        requests: 120_000,
        requests_per_s: 120_000.0,
        response_ns: LatencySummary {
            mean: 4_100_000,
            stdev: 500_000,
            min: 80_000,
            max: 11_000_000,
            p50: 4_000_000,
            p99: 6_000_000,
            ..LatencySummary::default()
        },
        ..LoadSecond::default()
    };
    let line = second_line(&second);
    assert_eq!(
        line,
        "   3 s: 120000.00/s, N=120000, latency ms mean=4.100, var=0.250, min=0.080, max=11.000, \
         p50=4.000, p99=6.000"
    );
    let failing = LoadSecond {
        errors: LoadErrors {
            timeout: 7,
            ..LoadErrors::default()
        },
        ..second
    };
    assert_eq!(second_line(&failing), format!("{line}, 7 failures"));
}

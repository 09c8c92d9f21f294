use super::*;

/// Goal: all requests belong to a wave.
#[test]
fn waves_are_a_hundred() {
    assert_eq!(WAVES.iter().map(|(_, share)| share).sum::<u64>(), 100);
}

/// Goal: both rates are read, and less than both is an error.
#[test]
fn rates_are_read() {
    let head = "\"test\",\"rps\",\"avg_latency_ms\"\n";
    let set = "\"SET\",\"816326.56\",\"0.2\"\n";
    let get = "\"GET\",\"754717.00\",\"0.2\"\n";
    assert_eq!(
        rates(&[head, set, get].concat()),
        Ok(vec![816_326.56, 754_717.0])
    );
    assert!(rates(&[head, set].concat()).is_err());
}

/// Goal: each target is compared with the best of the others.
#[test]
fn ours_is_held_against_the_best() {
    let runs = |name: &str, requests_per_s, rss_bytes| Runs {
        name: name.to_owned(),
        runs: vec![Run {
            requests_per_s,
            cpu_s_per_million: 1.0,
            rss_bytes,
        }],
    };
    let all = [
        runs(MEMPOOL, 90.0, 22.0),
        runs("fast", 100.0, 40.0),
        runs("small", 80.0, 20.0),
    ];
    let figures = figures(&all).unwrap();
    assert!((figures[0].value - 0.9).abs() < 1e-12);
    assert!((figures[2].value - 1.1).abs() < 1e-12);
    assert_eq!(figures.len(), 3 + 3 * 3);
}

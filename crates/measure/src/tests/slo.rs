use super::*;

fn times(values_ms: impl IntoIterator<Item = u64>) -> LatencyHistogram {
    let mut histogram = LatencyHistogram::new();
    values_ms
        .into_iter()
        .for_each(|value_ms| histogram.record(value_ms * 1_000_000));
    histogram
}

fn judged(slo: &str, unanswered: &LatencyHistogram, failed: u64) -> Vec<bool> {
    judged_of(SloPopulation::All, slo, unanswered, failed)
}

fn judged_of(
    population: SloPopulation,
    slo: &str,
    unanswered: &LatencyHistogram,
    failed: u64,
) -> Vec<bool> {
    let (response, service) = (times(1..=100), times(1..=50));
    let facts = SloFacts {
        response: &response,
        service: &service,
        slip: &times([]),
        unanswered,
        failed,
        requests_per_s: 1_000.0,
    };
    let slo = slo.parse::<Slo>().unwrap().of(population);
    let outcomes = slo.judge(&facts);
    outcomes.iter().map(|outcome| outcome.is_met).collect()
}

/// Goal: each measure is compared with its own limit, on the side that was asked for.
#[test]
fn objectives_are_judged_one_by_one() {
    let nobody = times([]);
    let slo = "p50<60ms,p50<40ms,p99.9<101ms,max<100ms,service.p99<51ms,mean>50ms,rate>999,rate>1k";
    let expected = [true, false, true, false, true, true, true, false];
    assert_eq!(judged(slo, &nobody, 0), expected);
    assert_eq!(judged("errors<1%, errors<0.5%", &nobody, 1), [true, false]);
    // There was no open loop: a promise about the send delay is not kept by silence.
    assert_eq!(judged("slip.p99<1s", &nobody, 0), [false]);
}

/// Goal: requests without a response do not make the tail of the successful ones look better.
#[test]
fn the_unanswered_count_with_their_age() {
    let judged = |slo, unanswered: &LatencyHistogram, failed| {
        judged_of(SloPopulation::Successful, slo, unanswered, failed)
    };
    assert_eq!(judged("p90<95ms", &times([]), 0), [true]);
    assert_eq!(judged("p90<95ms", &times([]), 20), [true]);
    assert_eq!(judged("p90<95ms", &times([500; 20]), 20), [false]);
    assert_eq!(judged("service.p90<95ms", &times([500; 20]), 20), [true]);
}

/// `p99<5ms` was met while 4 % of the responses were 503s after 20 ms.
///
/// Goal: each failed request takes a place among the slowest, of every clock that has an end; the figure beside
/// it is that of the successful ones.
#[test]
fn failed_requests_are_slower_than_any_objective() {
    let none = times([]);
    // 100 right responses of 1 to 100 ms, and as many failures as make 4 % of all.
    assert_eq!(
        judged("p99<1h,p96.2<1h,max<1h,mean<1h", &none, 4),
        [false; 4]
    );
    assert_eq!(
        judged("p96<101ms,p50<60ms,p50<51ms", &none, 4),
        [true, true, false]
    );
    assert_eq!(judged("service.p99<1h", &none, 4), [false]);
    assert_eq!(judged("p99<101ms,max<101ms", &none, 0), [true, true]);
    let response = times(1..=100);
    let facts = SloFacts {
        response: &response,
        service: &response,
        slip: &none,
        unanswered: &none,
        failed: 4,
        requests_per_s: 1.0,
    };
    let slo: Slo = "p99<1h".parse().unwrap();
    let measured = &slo.judge(&facts)[0].measured;
    for part in ["a failed request", "failed", "99", "of successful ones"] {
        assert!(measured.contains(part), "{part}: {measured}");
    }
    assert!(slo.counts_failures_as_slow());
    assert!(!slo.of(SloPopulation::Successful).counts_failures_as_slow());
    let slip: Slo = "slip.p99<1h,errors<1%".parse().unwrap();
    assert!(!slip.counts_failures_as_slow());
}

/// Goal: a rate may be less than one a second.
#[test]
fn rates_may_be_fractions() {
    assert_eq!(
        judged("rate>999.5,rate>1000.5", &times([]), 0),
        [true, false]
    );
    assert_eq!(judged("rate>0.9,rate<0.9", &times([]), 0), [true, false]);
    for text in ["rate>-1", "rate>nan", "rate>inf", "rate>"] {
        assert!(text.parse::<Slo>().is_err(), "{text}");
    }
}

/// Goal: a percentile asks for as many samples as lie beyond it, the strictest one decides.
#[test]
fn strict_percentiles_need_many_samples() {
    let samples = |slo: &str| slo.parse::<Slo>().unwrap().samples_min(10);
    assert_eq!(samples("errors<1%"), 10);
    assert_eq!(samples("p50<1s"), 20);
    assert!((999..=1001).contains(&samples("p50<1s,p99<1s")));
    assert!(samples("p100<1s") < 1_100_000);
}

#[test]
fn outcomes_can_be_read() {
    let slo: Slo = "p99.9<5ms,errors<0.1%,service.max<1s,rate>2k"
        .parse()
        .unwrap();
    let (empty, some) = (times([]), times([7]));
    let facts = SloFacts {
        response: &some,
        service: &empty,
        slip: &empty,
        unanswered: &empty,
        failed: 0,
        requests_per_s: 1.0,
    };
    let outcomes = slo.judge(&facts);
    let words: Vec<&str> = outcomes.iter().map(|one| one.objective.as_str()).collect();
    assert_eq!(words[0], "p99.9 < 5.00 ms");
    assert!(words[1].starts_with("errors < 0.1"), "{}", words[1]);
    assert!(words[2].starts_with("service max < 1"), "{}", words[2]);
    assert!(words[3].starts_with("rate > 2"), "{}", words[3]);
    assert!(outcomes[0].measured.contains("ms") && !outcomes[0].is_met);
    assert_eq!(outcomes[2].measured, "nothing was measured");
}

#[test]
fn wrong_objectives_are_refused_with_an_example() {
    for text in [
        "",
        "p99",
        "p99<",
        "p99<fast",
        "p101<1s",
        "px<1s",
        "errors<5ms",
        "errors<200%",
        "rate>fast",
        "other.p99<1s",
        "p99<1s,",
        "p-1<1s",
    ] {
        let parsed: Result<Slo, String> = text.parse();
        assert!(parsed.is_err(), "{text}");
    }
    let error = "p99=5ms".parse::<Slo>().unwrap_err();
    assert!(error.contains("p99<5ms"), "{error}");
}

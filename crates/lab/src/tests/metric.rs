use super::*;

const REDIS: &str = "SET: rps=0.0 (overall: nan) avg_msec=nan\rSET: 81,234.5 requests per second, \
    p50=0.311 msec\n";

fn read(metric: &str, output: &str) -> Result<f64, String> {
    Metric::parse(metric)?.read(output)
}

/// Goal: numbers come out in our units, from text for people and from JSON.
#[test]
fn numbers_are_found() {
    assert_eq!(
        read("throughput=regex:([0-9.,]+) requests per second", REDIS),
        Ok(81_234.5)
    );
    assert_eq!(
        read("p50[ms]=regex:p50=([0-9.]+) msec", REDIS),
        Ok(0.311 * 1e6)
    );
    let json = "progress\n{\"results\": [{\"rps\": \"12.5\", \"p99\": 7}]}\n";
    assert_eq!(read("throughput=json:results[0].rps", json), Ok(12.5));
    assert_eq!(read("p99[us]=json:.results.0.p99", json), Ok(7_000.0));
    assert_eq!(read("requests=1000", ""), Ok(1000.0));
    assert_eq!(read("requests=regex:^n=(\\d+)$", "a\nn=5\nn=6\n"), Ok(6.0));
}

/// Goal: a metric that is not there fails, whatever else was printed.
#[test]
fn what_is_not_there_is_no_number() {
    let why = |metric: &str, output: &str| read(metric, output).unwrap_err();
    assert!(why("throughput=regex:ops: (\\d+)", REDIS).contains("is not in what"));
    assert!(why("throughput=regex:overall: (\\w+)", REDIS).contains("no number"));
    assert!(why("throughput=json:a", "text").contains("wrote none"));
    assert!(why("throughput=json:a.b", "{\"a\": {}}").contains("no \"b\""));
    assert!(why("throughput=json:a", "{\"a\": [1]}").contains("no number"));
}

/// Goal: each wrong metric says what to write.
#[test]
fn wrong_metrics_are_named() {
    let why = |text: &str| Metric::parse(text).unwrap_err();
    assert!(why("throughput").contains(METRIC_FORM));
    assert!(why("p99=regex:x").contains("p99[ms]"));
    assert!(why("p95[ms]=regex:x").contains("p95[ms,lower]"));
    assert!(why("throughput[1/s,lower]=regex:x").contains("another name"));
    // Once the unit was passed over, and thousands a second were taken for ones.
    for unit in ["kreq/s", "k/s", "req/min", "MiB/s", "krps"] {
        assert!(
            why(&format!("throughput[{unit}]=regex:x")).contains("responses per second"),
            "{unit}"
        );
    }
    for unit in ["1/s", "/s", "req/s", "ops/sec", "rps", "qps"] {
        let metric = Metric::parse(&format!("throughput[{unit}]=regex:x"));
        let ones = Meaning::Measure(Quantity::Throughput, 1.0);
        assert_eq!(metric.map(|metric| metric.meaning), Ok(ones), "{unit}");
    }
    assert!(why("requests[k]=regex:x").contains("one by one"));
    assert!(why("throughput=regex:(").contains("is none"));
    assert!(why("throughput=1000").contains("only requests=N"));
    assert!(why("throughput=file:x").contains("neither"));
    assert!(why("requests=0").contains("neither"));
    let custom = Metric::parse("hit ratio[%,higher]=json:hits").unwrap();
    let Meaning::Measure(quantity, _) = custom.meaning else {
        unreachable!()
    };
    assert_eq!(quantity.label(), "hit ratio");
    assert_eq!(quantity.direction(), Direction::HigherIsBetter);
}

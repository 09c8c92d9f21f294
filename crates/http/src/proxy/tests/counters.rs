use super::*;
use millpond_mempool::{BlockPool, PoolMode};

/// Goal: shards are added up, an upstream that comes back finds its counts, and every cell is shown.
#[test]
fn shards_are_added_up() {
    let registry = UpstreamRegistry::default();
    registry.counters("a:1", 0).add(Cell::Tries, 2);
    registry.counters("a:1", 1).count(Cell::Tries);
    registry.counters("a:1", 0).count(Cell::Responses5xx);
    registry.counters("b:2", 0).set(Cell::Parked, 7);
    let refused = Failure::CertificateExpired;
    registry.counters("b:2", 0).count_failure(refused);
    registry.counters("b:2", 1).count_failure(refused);
    let blocks = BlockPool::new("test", PoolMode::Off);
    let mut text = MetricsText::new(&blocks);
    registry.write(&mut text, &UPSTREAMS);
    let text = String::from_utf8(text.finish().unwrap().to_vec()).unwrap();
    for line in [
        "millpond_upstream_tries_total{upstream=\"a:1\"} 3",
        "millpond_upstream_tries_total{upstream=\"b:2\"} 0",
        "millpond_upstream_responses_total{upstream=\"a:1\",class=\"5xx\"} 1",
        "millpond_upstream_connections{upstream=\"b:2\",state=\"idle\"} 7",
        "millpond_upstream_errors_total{upstream=\"b:2\",error=\"tls_certificate_error\",\
         cause=\"certificate_expired\"} 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let shown: usize = METRICS.iter().map(|metric| metric.cells.len()).sum();
    assert_eq!(shown, CELLS);
}

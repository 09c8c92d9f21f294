//! `/metrics` as a scraper reads it.

use crate::support::{MODES, PATIENCE, TestServer, config, driver, pool_mode};
use millpond_http::{
    Flow, Limits, MetricsText, Plaintext, Request, Response, ServeConfig, Service, ServiceContext,
};
use std::time::Instant;

const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

fn value(text: &str, start: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(start));
    let line = line.unwrap_or_else(|| panic!("no {start} in\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Goal: counts are those of what was done, the pools' identity holds, and the build is named.
#[test]
fn metrics_tell_what_happened() {
    for mode in MODES {
        let base = config(Limits::default(), mode);
        let build_labels = vec![("engine", "none \"yet\"".to_owned())];
        let server = TestServer::start(
            ServeConfig {
                build_labels,
                ..base
            },
            |_| Plaintext,
        );
        let mut client = server.connect();
        for _ in 0..3 {
            client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        client.ask("GET /no HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = client.ask(SCRAPE);
        assert_eq!(
            response.header("content-type").map(|t| &t[..25]),
            Some("text/plain; version=0.0.4")
        );
        let text = response.text();
        assert_eq!(
            value(&text, "millpond_http_requests_total{shard=\"0\"}"),
            5.0
        );
        let responses = "millpond_http_responses_total{shard=\"0\",status=";
        assert_eq!(value(&text, &format!("{responses}\"200\"}}")), 3.0);
        assert_eq!(value(&text, &format!("{responses}\"404\"}}")), 1.0);
        assert_eq!(value(&text, "millpond_http_connections{shard=\"0\"}"), 1.0);
        let driver = driver().choose().unwrap();
        let info = format!(
            "driver=\"{}\",driver_features=\"{}\",pools=\"{mode}\",shards=\"1\",tls=\"off\",\
             engine=\"none \\\"yet\\\"\"",
            driver.kind.name(),
            driver.features
        );
        assert!(text.contains(&info), "{info} in\n{text}");
        for pool in [
            "http_connections",
            "shard_blocks",
            "shard_arena",
            "shard_io_buffers",
        ] {
            let read = |what: &str| {
                value(
                    &text,
                    &format!("millpond_pool_{what}{{shard=\"0\",pool=\"{pool}\""),
                )
            };
            let sum = read("live_bytes") + read("cached_bytes") + read("waste_bytes");
            assert_eq!(read("reserved_bytes"), sum, "{pool}");
            assert!(read("high_water_bytes") >= read("live_bytes"), "{pool}");
        }
        assert_eq!(
            value(
                &text,
                "millpond_pool_live_objects{shard=\"0\",pool=\"http_connections\""
            ),
            1.0
        );
        assert_eq!(
            {
                client.send(SCRAPE.replace("GET", "HEAD"));
                client.response_to_head().status
            },
            200
        );
    }
}

/// Every sample belongs to a described metric, and no line is malformed.
fn assert_well_formed(text: &str) {
    let mut described = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            described.push(rest.split(' ').next().unwrap().to_owned());
        } else if !line.starts_with("# HELP ") {
            let name = line.split(['{', ' ']).next().unwrap();
            assert!(described.iter().any(|known| known == name), "{line}");
            assert!(
                line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(),
                "{line}"
            );
        }
    }
    let mut unique = described.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), described.len(), "a metric is described twice");
}

struct Counted;

impl Service for Counted {
    fn call(
        &mut self,
        _request: &mut Request<'_>,
        _response: &mut Response<'_>,
        _context: &mut ServiceContext<'_>,
    ) -> Flow {
        Flow::Done
    }

    fn write_metrics(&self, out: &mut MetricsText<'_>) {
        out.describe("counted_total", "counter", "Ours.");
        out.sample("counted_total", &[], 7);
    }
}

/// Goal: every shard is in the text of whichever shard is asked, with the service's own lines.
#[test]
fn one_scrape_shows_every_shard_and_the_service() {
    let base = config(Limits::default(), pool_mode());
    let server = TestServer::start(ServeConfig { shards: 3, ..base }, |_| Counted);
    // A shard shows its pools from its first tick on, and the three begin in any order.
    let begun = Instant::now();
    let text = loop {
        let text = server.connect().ask(SCRAPE).text();
        let pools_of = |shard| format!("millpond_pool_reserved_bytes{{shard=\"{shard}\"");
        if (0..3).all(|shard| text.contains(&pools_of(shard))) {
            break text;
        }
        assert!(begun.elapsed() < PATIENCE, "a shard is missing:\n{text}");
    };
    assert_well_formed(&text);
    for shard in 0..3 {
        value(
            &text,
            &format!("millpond_pool_reserved_bytes{{shard=\"{shard}\""),
        );
        value(
            &text,
            &format!("millpond_http_requests_total{{shard=\"{shard}\"}}"),
        );
    }
    assert_eq!(value(&text, "counted_total"), 7.0);
    let table = server.running.accounting_table();
    assert_eq!(
        table
            .lines()
            .filter(|line| line.contains(" shard_blocks "))
            .count(),
        3,
        "{table}"
    );
}

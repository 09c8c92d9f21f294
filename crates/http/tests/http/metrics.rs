//! `/metrics` as a scraper reads it.

use crate::support::{MODES, PATIENCE, RawClient, TestServer, config, driver, pool_mode};
use millpond_http::{
    Completions, Flow, LimitValues, Limits, MetricsAccess, MetricsText, Plaintext, Request,
    RequestToken, Response, ServeConfig, Service, ServiceContext, StatusCode,
};
use millpond_io::{Address, Waker};
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

fn with_access(metrics_access: MetricsAccess) -> ServeConfig {
    ServeConfig {
        metrics_access,
        ..config(Limits::default(), pool_mode())
    }
}

/// `/metrics` stood on every public listener, without a switch.
///
/// Goal: on the main listener a loopback peer reads the metrics, and no request that a proxy of this machine passes on
/// for others; `all` and `none` work. A refused request is a path of the service.
#[test]
fn the_main_listener_shows_metrics_to_this_machine_only() {
    const PASSED_ON: [&str; 6] = [
        "Forwarded: for=192.0.2.1",
        "X-Forwarded-For: 192.0.2.1",
        "x-forwarded-proto: https",
        "Via: 1.1 front",
        "vIa: 1.1 front",
        "X-Real-IP: 192.0.2.1",
    ];
    for (access, direct, passed_on) in [
        (MetricsAccess::Loopback, 200, 404),
        (MetricsAccess::All, 200, 200),
        (MetricsAccess::None, 404, 404),
    ] {
        let server = TestServer::start(with_access(access), |_| Plaintext);
        let mut client = server.connect();
        assert_eq!(client.ask(SCRAPE).status, direct, "{access:?}");
        for field in PASSED_ON {
            let request = format!("GET /metrics HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
            assert_eq!(client.ask(&request).status, passed_on, "{access:?} {field}");
            // The same in pieces, which goes another way.
            client.send(&request[..20]);
            std::thread::sleep(std::time::Duration::from_millis(5));
            client.send(&request[20..]);
            assert_eq!(client.response().status, passed_on, "{access:?} {field}");
        }
        let near = "GET /metrics HTTP/1.1\r\nHost: a\r\nX-Forwarding: 1\r\nViable: 1\r\n\r\n";
        assert_eq!(client.ask(near).status, direct, "{access:?}");
    }
}

/// Goal: a client whose address comes from a PROXY header is not local, though the balancer is.
#[test]
fn a_told_address_is_not_local() {
    let serve = ServeConfig {
        proxy_protocol: true,
        ..with_access(MetricsAccess::Loopback)
    };
    let server = TestServer::start(serve, |_| Plaintext);
    for (address, status) in [("192.0.2.7", 404), ("127.0.0.1", 200)] {
        let head = format!("PROXY TCP4 {address} 127.0.0.1 4711 80\r\n");
        assert_eq!(
            server.connect().ask(format!("{head}{SCRAPE}")).status,
            status
        );
    }
}

/// Goal: a listener of their own has the metrics and nothing else, for many at once and while the server has no room;
/// it ends with the server.
#[test]
fn metrics_have_a_listener_of_their_own() {
    let limits = LimitValues {
        connections_max: 1,
        idle_timeout_min_ns: 60_000_000_000,
        ..LimitValues::default()
    };
    let serve = ServeConfig {
        metrics_access: MetricsAccess::None,
        metrics_listen: Some(Address::Inet(([127, 0, 0, 1], 0).into())),
        ..config(limits.checked().unwrap(), pool_mode())
    };
    let server = TestServer::start(serve, |_| Plaintext);
    let mut only = server.connect();
    only.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(server.connect().response().status, 503, "there is no room");
    let metrics = server
        .running
        .metrics_address()
        .and_then(Address::inet)
        .unwrap();
    let ask = |request: &str| RawClient::connect(metrics).ask(request).status;
    assert_eq!(ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 404);
    assert_eq!(ask("DELETE /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
    // Its own connections are not among the server's, and no scrape is a request of it.
    let mut scrapers: Vec<RawClient> = (0..8).map(|_| RawClient::connect(metrics)).collect();
    for _ in 0..3 {
        scrapers.iter_mut().for_each(|client| client.send(SCRAPE));
        for client in &mut scrapers {
            let text = client.response().text();
            assert_eq!(
                value(&text, "millpond_http_requests_total{shard=\"0\"}"),
                1.0
            );
            assert_eq!(value(&text, "millpond_http_connections{shard=\"0\"}"), 1.0);
        }
    }
    // One that goes while it waits leaves nothing behind.
    let mut gone = RawClient::connect(metrics);
    gone.send(SCRAPE);
    drop(gone);
    assert_eq!(ask(SCRAPE), 200);
    drop(only);
    server.stop();
    assert!(
        std::net::TcpStream::connect(metrics).is_err(),
        "it ended with the server"
    );
}

/// A service with two routes, one of which responds late.
struct Routed {
    waiting: Vec<RequestToken>,
    waker: Waker,
}

impl Service for Routed {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        if request.path() == b"/late" {
            context.route = 1;
            self.waiting.push(context.token);
            self.waker.wake();
            return Flow::Pending;
        }
        let _ = response.send(StatusCode::NOT_FOUND, None, b"");
        Flow::Done
    }

    fn on_wake(&mut self, completions: &mut Completions<'_>) {
        for token in self.waiting.drain(..) {
            completions.respond(token, |response, _| {
                let _ = response.send(StatusCode::OK, None, b"late");
            });
        }
    }

    fn routes(&self) -> &'static [&'static str] {
        &["at once", "late"]
    }
}

/// Goal: durations of requests are a histogram as Prometheus reads it: cumulative buckets that end at the count, with the
/// route and the class of status; scrapes themselves are not in it.
#[test]
fn durations_are_histograms() {
    for mode in MODES {
        let server = TestServer::start(config(Limits::default(), mode), |start| Routed {
            waiting: Vec::new(),
            waker: start.waker,
        });
        let mut client = server.connect();
        for path in ["/late", "/no", "/late"] {
            client.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client.ask(SCRAPE);
        }
        let text = client.ask(SCRAPE).text();
        let name = "millpond_http_request_duration_seconds";
        assert!(
            text.contains(&format!("# TYPE {name} histogram\n")),
            "{text}"
        );
        for (labels, count) in [
            ("route=\"at once\",status_class=\"4xx\"", 1.0),
            ("route=\"late\",status_class=\"2xx\"", 2.0),
        ] {
            let found = value(&text, &format!("{name}_count{{{labels}}}"));
            assert_eq!(found, count, "{text}");
            let buckets: Vec<f64> = text
                .lines()
                .filter(|line| line.starts_with(&format!("{name}_bucket{{{labels},le=")))
                .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
                .collect();
            assert!(buckets.is_sorted(), "{buckets:?}");
            assert_eq!(buckets.len(), 18);
            assert_eq!(buckets.last(), Some(&count));
            let sum = value(&text, &format!("{name}_sum{{{labels}}}"));
            assert!(sum > 0.0, "{text}");
        }
        let counts = text
            .lines()
            .filter(|line| line.starts_with(&format!("{name}_count")));
        assert_eq!(counts.count(), 2, "{text}");
    }
}

//! Why a request got no response: the reports to client, access log and metrics, one cause at a time.

use super::{RawPeer, RawUpstream, secure, upstream};
use crate::access_log::{logging, objects};
use crate::support::TestServer;
use millpond_http::proxy::{Proxy, ProxyConfig, ProxyControl, UpstreamConfig};
use millpond_http::{AccessLogFormat, AccessLogTarget, Limits, ServeConfig};
use millpond_io::Address;
use millpond_io::connection_pool::Endpoint;
use millpond_io::resolver::{Resolver, ResolverConfig};
use std::sync::Arc;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// The expected report of one cause.
#[derive(Clone, Copy)]
struct Told {
    status: u16,
    error: &'static str,
    cause: &'static str,
    detail: &'static str,
}

fn check(proxied: &ProxyConfig, told: Told) {
    for is_quiet in [false, true] {
        let mut proxied = proxied.clone();
        proxied.quiet_errors = is_quiet;
        check_one(proxied, told);
    }
}

fn check_one(proxied: ProxyConfig, told: Told) {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("access.log");
    let (is_quiet, name) = (proxied.quiet_errors, proxied.upstreams[0].name.clone());
    let speaks_tls = proxied.upstreams[0].tls.is_some();
    let resolver = Resolver::start(ResolverConfig::default()).unwrap();
    let control = ProxyControl::new(proxied, false, Some(resolver)).unwrap();
    let limits = Limits::default();
    let serve = ServeConfig {
        speaks_tls_to_others: speaks_tls,
        metrics_listen: Some(Address::Inet(([127, 0, 0, 1], 0).into())),
        ..logging(
            limits,
            AccessLogTarget::File(log.clone()),
            AccessLogFormat::Json,
        )
    };
    let server = TestServer::start(serve, move |start| Proxy::new(&control, &start, limits));
    let answer = server.connect().ask(GET);
    let Told {
        error,
        cause,
        detail,
        ..
    } = told;
    assert_eq!(answer.status, told.status, "{cause}: {}", answer.text());
    let said = answer.header("proxy-status").map(str::to_owned);
    match is_quiet {
        true => {
            assert_eq!(said, None, "{cause}");
            assert_eq!(answer.text(), "the request cannot be answered\n");
        }
        false => {
            let expected = format!("millpond; error={error}; details=\"{detail}\"; fault=upstream");
            assert_eq!(said, Some(expected));
            assert_eq!(answer.text(), format!("{detail}\n"));
        }
    }
    let metrics = server.metrics_text();
    let line = format!(
        "millpond_upstream_errors_total{{upstream=\"{name}\",error=\"{error}\",cause=\"{cause}\"}} 1"
    );
    assert!(
        metrics.lines().any(|found| found == line),
        "{line}\n{metrics}"
    );
    let unresolved = u32::from(error == "dns_error");
    let line = format!("millpond_upstream_unresolved_shards{{upstream=\"{name}\"}} {unresolved}");
    assert!(
        metrics.lines().any(|found| found == line),
        "{line}\n{metrics}"
    );
    server.stop();
    let log = objects(&std::fs::read(log).unwrap());
    let found = ["fault", "error", "cause", "detail"].map(|key| log[0][key].as_str());
    assert_eq!(
        found,
        [Some("upstream"), Some(error), Some(cause), Some(detail)]
    );
}

fn configured(upstream: UpstreamConfig) -> ProxyConfig {
    let mut proxied = ProxyConfig::new(vec![upstream]);
    proxied.tries_max = 1;
    proxied
}

fn certificate_error(cause: &'static str, detail: &'static str) -> Told {
    Told {
        status: 502,
        error: "tls_certificate_error",
        cause,
        detail,
    }
}

const UNTIL_CLOSE: &str = "HTTP/1.1 200 OK\r\n\r\nall of it";

/// Goal: behind TLS a response that ends with its connection is whole if the upstream announced the end, and
/// cut, with its cause, if it did not; one that says how long it is is whole either way.
#[test]
fn the_end_of_tls_is_to_be_announced() {
    type Wrap = fn(std::net::TcpStream) -> Box<dyn secure::Stream>;
    for (wrap, answer, is_whole) in [
        (secure::accept as Wrap, UNTIL_CLOSE, true),
        (secure::accept_without_close_notify, UNTIL_CLOSE, false),
        (
            secure::accept_without_close_notify,
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nall of it",
            true,
        ),
    ] {
        let original = RawUpstream::start_with(wrap, move |peer, _| {
            if peer.head().is_some() {
                peer.send(answer);
            }
        });
        let (server, _) =
            super::proxy_between(&[original.address], Limits::default(), false, true, |_| {});
        let mut client = server.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let text = String::from_utf8(client.rest()).unwrap();
        assert!(text.contains("all of it"), "{text}");
        let is_ended = text.ends_with("0\r\n\r\n") || text.contains("Content-Length: 9");
        assert_eq!(is_ended, is_whole, "{text}");
        let metrics = server.metrics_text();
        let line = "error=\"http_response_incomplete\",cause=\"no_close_notify\"} 1";
        assert_eq!(metrics.contains(line), !is_whole, "{metrics}");
    }
}

/// Goal: a request that can go to no upstream has its cause in the access log and in the metrics, also where
/// the response says nothing.
#[test]
fn causes_without_an_upstream_are_told_too() {
    for is_quiet in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let log = home.path().join("access.log");
        let mut proxied = configured(upstream(super::refusing(&home)));
        proxied.quiet_errors = is_quiet;
        let control = ProxyControl::new(proxied, false, None).unwrap();
        let limits = Limits::default();
        let serve = ServeConfig {
            metrics_listen: Some(Address::Inet(([127, 0, 0, 1], 0).into())),
            ..logging(
                limits,
                AccessLogTarget::File(log.clone()),
                AccessLogFormat::Json,
            )
        };
        let server = TestServer::start(serve, move |start| Proxy::new(&control, &start, limits));
        let options = (0..17)
            .map(|index| format!("x-{index}"))
            .collect::<Vec<_>>();
        let request = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: {}\r\n\r\n",
            options.join(", ")
        );
        let answer = server.connect().ask(&request);
        assert_eq!(answer.status, 400);
        assert_eq!(answer.header("proxy-status").is_none(), is_quiet);
        let metrics = server.metrics_text();
        let line = "millpond_proxy_refused_total{error=\"http_request_denied\",cause=\"too_many_options\"} 1";
        assert!(metrics.lines().any(|found| found == line), "{metrics}");
        server.stop();
        let log = objects(&std::fs::read(log).unwrap());
        let found = ["fault", "error", "cause"].map(|key| log[0][key].as_str());
        let expected = ["client", "http_request_denied", "too_many_options"];
        assert_eq!(found, expected.map(Some), "{:?}", log[0]);
    }
}

/// Goal: a certificate for another name, one of an unknown authority and one that has expired are reported as such.
#[test]
fn certificates_are_refused_by_their_cause() {
    let good = secure::authority(|_| {});
    let old = secure::authority(|params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        // An authority of the same name would be the one, with a wrong signature.
        let name = &mut params.distinguished_name;
        name.push(rcgen::DnType::CommonName, "old");
    });
    for (shown, name, trusted, told) in [
        (
            &good,
            "other.test",
            &good,
            certificate_error(
                "certificate_name",
                "the certificate of the upstream is for another name",
            ),
        ),
        (
            &good,
            "mill.test",
            &old,
            certificate_error(
                "certificate_authority",
                "the certificate of the upstream is of an unknown authority",
            ),
        ),
        (
            &old,
            "mill.test",
            &old,
            certificate_error(
                "certificate_expired",
                "the certificate of the upstream has expired or is not valid yet",
            ),
        ),
    ] {
        let config = secure::server_config(shown);
        let accept = move |stream| secure::accept_with(Arc::clone(&config), stream);
        let raw = RawUpstream::start_with(accept, |peer: &mut RawPeer, _| drop(peer.rest()));
        let mut upstream = upstream(raw.address);
        upstream.tls = Some(secure::for_upstreams_of(name, trusted));
        check(&configured(upstream), told);
    }
}

/// Goal: an upstream that uses plaintext where TLS is expected is reported as such.
#[test]
fn plaintext_is_no_handshake() {
    let raw = RawUpstream::start(|peer, _| {
        peer.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        peer.rest();
    });
    let mut upstream = upstream(raw.address);
    upstream.tls = Some(secure::for_upstreams());
    let told = Told {
        status: 502,
        error: "tls_protocol_error",
        cause: "not_tls",
        detail: "the upstream does not speak TLS",
    };
    check(&configured(upstream), told);
}

/// Goal: a name without an address is reported as such, and is a state in /metrics.
#[test]
fn a_name_without_address_is_told() {
    let mut upstream = upstream(Address::Inet(([127, 0, 0, 1], 1).into()));
    upstream.name = "nothing.invalid:80".to_owned();
    upstream.place = Endpoint::Name {
        host: "nothing.invalid".to_owned(),
        port: 80,
    };
    let told = Told {
        status: 502,
        error: "dns_error",
        cause: "unresolved",
        detail: "the name of the upstream has no address",
    };
    check(&configured(upstream), told);
}

/// Goal: a connection that is refused is reported as such.
#[test]
fn a_refused_connection_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let told = Told {
        status: 502,
        error: "connection_refused",
        cause: "refused",
        detail: "the upstream refused the connection",
    };
    check(&configured(upstream(super::refusing(&directory))), told);
}

fn answering(head: String) -> RawUpstream {
    RawUpstream::start(move |peer, _| {
        while peer.head().is_some() {
            peer.send(format!("{head}Content-Length: 2\r\n\r\nok"));
        }
    })
}

/// A head of 16 KiB, or of 101 fields, was malformed, with the caps on requests.
///
/// Goal: heads of responses have caps of their own; up to these they pass, and one beyond is reported with its limit.
#[test]
fn heads_of_answers_have_limits_of_their_own() {
    let framing_bytes = "Content-Length: 2\r\n\r\n".len();
    let long = |bytes: usize| {
        let begin = "HTTP/1.1 200 OK\r\nX: ";
        let value = "a".repeat(bytes - begin.len() - 2 - framing_bytes);
        answering(format!("{begin}{value}\r\n"))
    };
    let many = |count: usize| {
        let fields: String = (1..count)
            .map(|number| format!("X{number}: 1\r\n"))
            .collect();
        answering(format!("HTTP/1.1 200 OK\r\n{fields}"))
    };
    for (raw, limits, told) in [
        (
            long(40 << 10),
            (40 << 10) - 1,
            (
                "head_too_long",
                "the header section of the response is longer than --upstream-max-head",
            ),
        ),
        (
            many(120),
            40 << 10,
            (
                "too_many_fields",
                "the response has more fields than --upstream-max-fields",
            ),
        ),
    ] {
        let mut proxied = configured(upstream(raw.address));
        proxied.response_head_bytes_max = limits;
        proxied.response_fields_max = 119;
        let (cause, detail) = told;
        let told = Told {
            status: 502,
            error: "http_response_header_section_size",
            cause,
            detail,
        };
        check(&proxied, told);
    }
    for (raw, name) in [(long(40 << 10), "x"), (many(120), "x119")] {
        let (server, control) = super::proxy(&[raw.address], Limits::default(), |config| {
            config.response_head_bytes_max = 1 << 10;
        });
        let mut client = server.connect();
        let ask = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(client.ask(ask).status, if name == "x" { 502 } else { 200 });
        // A reload changes them for upstreams that stay.
        let mut proxied = ProxyConfig::new(vec![upstream(raw.address)]);
        proxied.response_head_bytes_max = 40 << 10;
        proxied.response_fields_max = 120;
        control.replace(proxied).unwrap();
        let answer = server.connect().ask(ask);
        assert_eq!((answer.status, answer.text()), (200, "ok".to_owned()));
        assert!(answer.header(name).is_some());
    }
}

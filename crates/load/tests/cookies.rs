//! Cookies as seen by a server that sets some and expects them back.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod support;

use millpond_load::{CookiePlan, Stop};
use millpond_measure::record::{LoadCookies, LoadStatus};
use std::collections::BTreeMap;
use support::{Reply, Seen, TestServer, check_identities, get, run};

fn cookie_of(seen: &Seen) -> Option<&str> {
    let mut fields = seen
        .head
        .lines()
        .filter_map(|line| line.strip_prefix("Cookie: "));
    let cookie = fields.next();
    assert_eq!(fields.next(), None, "one field holds all cookies");
    cookie
}

fn setting(cookies: &[String]) -> Reply {
    let fields: String = cookies
        .iter()
        .map(|one| format!("Set-Cookie: {one}\r\n"))
        .collect();
    Reply::raw(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 2\r\n\r\nok").into_bytes())
}

/// Goal: each connection is a user of its own: it sends back exactly what it was given, replaced by
/// name and path, gone when the server removes it, and only where the path fits.
#[test]
fn each_connection_keeps_its_own_cookies() {
    let server = TestServer::start(|seen| {
        let user = seen.connection;
        match seen.in_connection {
            0 => setting(&[
                format!("user=u{user}; Path=/; HttpOnly"),
                "step=0; Path=/; Max-Age=1000".to_owned(),
                "elsewhere=1; Path=/other".to_owned(),
                "secret=1; Path=/; Secure".to_owned(),
            ]),
            9 => setting(&["step=; Path=/; Max-Age=0".to_owned()]),
            number => setting(&[format!("step={number}; Path=/; Domain=example.org")]),
        }
    });
    let mut config = get(server.address);
    config.connections = 4;
    config.pipeline = 1;
    config.stop = Stop::after_requests(80);
    config.cookies = Some(CookiePlan::default());
    let record = run(&config);
    check_identities(&record);
    assert_eq!((record.requests, record.errors.total()), (80, 0));
    let mut users: BTreeMap<usize, usize> = BTreeMap::new();
    for seen in server.seen() {
        let (user, number) = (seen.connection, seen.in_connection);
        let expected = match number {
            0 => None,
            10 => Some(format!("user=u{user}")),
            11.. => Some(format!("user=u{user}; step={}", number - 1)),
            _ => Some(format!("user=u{user}; step={}", number - 1)),
        };
        assert_eq!(cookie_of(&seen).map(str::to_owned), expected, "{number}");
        *users.entry(user).or_default() += 1;
    }
    let counts = record.cookies.unwrap();
    let answers_of = |place: usize| users.values().filter(|&&count| count > place).count() as u64;
    let expected = LoadCookies {
        set: 80 + 2 * answers_of(0) - answers_of(9),
        deleted: answers_of(9),
        overflowed: 0,
        unusable: answers_of(0),
    };
    assert_eq!(counts, expected);
    assert_eq!(record.to_report().cookies, Some(expected));
}

/// Goal: a user outlives its connection, and what it was given by the command is among its cookies.
#[test]
fn cookies_outlive_their_connection() {
    let server = TestServer::start(|seen| {
        let count = cookie_of(seen)
            .and_then(|text| text.split("; ").find_map(|one| one.strip_prefix("count=")));
        let count: u64 = count.map_or(0, |text| text.parse().unwrap());
        setting(&[format!("count={}", count + 1)])
    });
    let mut config = get(server.address);
    config.target.path = "/deep/er?a=/b".to_owned();
    config.plan.requests_max = Some(1);
    config.stop = Stop::after_requests(12);
    let given = vec![("token".to_owned(), "x=y".to_owned())];
    config.cookies = Some(CookiePlan { given });
    let record = run(&config);
    assert_eq!(
        (record.requests, server.connections() >= 12),
        (12, true),
        "{record:?}"
    );
    let last = server.seen().last().cloned().unwrap();
    assert_eq!(cookie_of(&last), Some("count=11; token=x=y"));
}

/// Goal: bodies and pipelines keep their shape with cookies in their heads, and a server that sets
/// without end is bounded, counted, and named in the verdict.
#[test]
fn too_many_cookies_are_counted() {
    let server = TestServer::start(|seen| {
        assert_eq!(seen.body, b"r\r\n\r\nx");
        setting(&[format!("n{}=v", seen.number)])
    });
    let mut config = get(server.address);
    config.pipeline = 4;
    config.stop = Stop::after_requests(100);
    config.workload = millpond_load::Workload::Static {
        method: millpond_http::Method::Post,
        fields: vec![],
        body: b"r\r\n\r\nx".to_vec(),
    };
    config.cookies = Some(CookiePlan::default());
    let record = run(&config);
    check_identities(&record);
    assert_eq!((record.requests, record.errors.total()), (100, 0));
    let counts = record.cookies.unwrap();
    assert_eq!((counts.set, counts.overflowed), (50, 50));
    assert!(record.verdict.status >= LoadStatus::Suspect);
    let reasons = record.verdict.reasons.join("; ");
    assert!(reasons.contains("50 cookies found no room"), "{reasons}");
    let last = server.seen().last().cloned().unwrap();
    assert_eq!(cookie_of(&last).unwrap().split("; ").count(), 50);
}

/// Goal: without the plan nothing is kept.
#[test]
fn nobody_keeps_cookies_unasked() {
    let server = TestServer::start(|_| setting(&["a=b".to_owned()]));
    let mut config = get(server.address);
    config.stop = Stop::after_requests(10);
    let record = run(&config);
    assert_eq!((record.requests, record.cookies), (10, None));
    assert!(server.seen().iter().all(|seen| cookie_of(seen).is_none()));
}

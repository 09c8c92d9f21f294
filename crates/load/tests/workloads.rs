//! The requests: templates, keys and classes as a server sees them.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod support;

use millpond_http::Method;
use millpond_load::{
    BodyCheck, Checksum, KeyDistribution, KeySpace, LoadConfig, RequestBody, RequestClass,
    RequestMix, Stop, Validation, Workload,
};
use support::{Reply, TestServer, check_identities, run};

fn config(server: &TestServer, mix: RequestMix, requests: u64) -> LoadConfig {
    LoadConfig {
        workload: Workload::Mix(mix),
        stop: Stop::after_requests(requests),
        ..support::get(server.address)
    }
}

fn seen(server: &TestServer) -> Vec<String> {
    let mut seen: Vec<String> = server
        .seen()
        .iter()
        .map(|seen| format!("{}{}", seen.head, String::from_utf8_lossy(&seen.body)))
        .collect();
    seen.sort_unstable();
    seen
}

fn posts() -> RequestMix {
    let class = RequestClass {
        method: Method::Post,
        fields: vec![("X-Id".into(), "{uuid}".into())],
        body: RequestBody::Template(b"{\"n\":{seq},\"r\":{rand:1:1000000}}".to_vec()),
        ..RequestClass::get("post", "/things/{key}?n={seq}")
    };
    RequestMix {
        keys: Some(KeySpace {
            distribution: KeyDistribution::Zipfian { exponent: 0.99 },
            ..KeySpace::uniform(1_000)
        }),
        seed: 5,
        ..RequestMix::of(vec![class])
    }
}

/// Goal: the same seed asks for the same things whatever threads, connections and pipelining are,
/// and another seed for others.
#[test]
fn a_seed_asks_the_same_on_any_number_of_threads() {
    let ask = |threads, connections, pipeline, seed| {
        let server = TestServer::start(|_| Reply::ok(b"fine"));
        let mix = RequestMix { seed, ..posts() };
        let record = run(&LoadConfig {
            threads,
            connections,
            pipeline,
            ..config(&server, mix, 400)
        });
        check_identities(&record);
        assert_eq!((record.requests, record.errors.total()), (400, 0));
        let host = format!("{}", server.address);
        let seen = seen(&server).into_iter();
        seen.map(|text| text.replace(&host, "HOST"))
            .collect::<Vec<_>>()
    };
    let one = ask(1, 1, 1, 5);
    assert_eq!(one, ask(2, 8, 1, 5));
    assert_eq!(one, ask(1, 3, 16, 5));
    assert_ne!(one, ask(1, 1, 1, 6));
    // Numbers of any length are announced correctly, or the server would have read nonsense.
    assert!(one.iter().any(|text| text.contains("\"n\":9,")), "{one:?}");
    assert!(
        one.iter().any(|text| text.contains("\"n\":399,")),
        "{one:?}"
    );
}

fn get(name: &str, weight: u64, target: &str) -> RequestClass {
    RequestClass {
        weight,
        ..RequestClass::get(name, target)
    }
}

/// Goal: classes are asked for by weight and counted apart, and the parts add up to the whole.
#[test]
fn classes_are_counted_apart() {
    let server = TestServer::start(|seen| match seen.target() {
        "/slow" => Reply::ok(b"fine").after(std::time::Duration::from_millis(5)),
        "/gone" => Reply::status(404, b"gone"),
        _ => Reply::ok(b"fine"),
    });
    let mix = RequestMix::of(vec![
        get("fast", 8, "/fast"),
        get("slow", 1, "/slow"),
        get("gone", 1, "/gone"),
    ]);
    let record = run(&LoadConfig {
        connections: 4,
        threads: 2,
        ..config(&server, mix, 1_000)
    });
    check_identities(&record);
    let [fast, slow, gone] = &record.classes[..] else {
        panic!("{:?}", record.classes)
    };
    assert_eq!((&fast.name[..], &slow.name[..]), ("fast", "slow"));
    assert_eq!((fast.response.count(), fast.errors.total()), (800, 0));
    assert_eq!((slow.response.count(), slow.errors.total()), (100, 0));
    assert_eq!((gone.response.count(), gone.errors.status), (0, 100));
    assert_eq!(record.requests, 900);
    assert!(slow.service.min() >= 5_000_000);
    assert_eq!(record.wrong_answers.status, 100);
    let report = record.to_report();
    assert_eq!(report.classes.len(), 3);
    assert_eq!(report.classes[1].requests, 100);
}

/// Goal: the rates of the classes add up to that of the whole, though responses come after the window.
#[test]
fn rates_of_classes_add_up() {
    let slow = std::time::Duration::from_millis(300);
    let server = TestServer::start(move |_| Reply::ok(b"fine").after(slow));
    let mix = RequestMix::of(vec![get("one", 1, "/one"), get("two", 1, "/two")]);
    let record = run(&LoadConfig {
        connections: 4,
        stop: Stop::after_ns(400_000_000),
        ..config(&server, mix, 1)
    });
    check_identities(&record);
    let report = record.to_report();
    let rates = report.classes.iter().map(|class| class.requests_per_s);
    let sum: f64 = rates.sum();
    assert!(
        (sum - record.requests_per_s).abs() < 0.001,
        "{sum} {}",
        record.requests_per_s
    );
    let requests: u64 = report.classes.iter().map(|class| class.requests).sum();
    assert_eq!(requests, record.requests);
    assert_eq!(requests + record.abandoned, server.requests());
}

/// Goal: each kind of wrong response is counted as what it is, and none of them as a request.
#[test]
fn wrong_answers_are_told_apart() {
    let server = TestServer::start(|seen| match (seen.target(), seen.number % 2) {
        ("/length", 1) => Reply::ok(b"too long"),
        ("/checksum", 1) => Reply::ok(b"123456780"),
        ("/checksum", _) => Reply::ok(b"123456789"),
        ("/same", 1) => Reply::ok(b"other"),
        (target, 0) if target.starts_with("/echo") => Reply::ok(target.as_bytes()),
        _ => Reply::ok(b"five!"),
    });
    let any = RequestClass::get("", "/").validation;
    let kinds = [
        (
            "/length",
            Validation {
                length: Some(5),
                ..any
            },
        ),
        (
            "/checksum",
            Validation {
                checksum: Some(Checksum::Crc32(0xcbf4_3926)),
                ..any
            },
        ),
        (
            "/same",
            Validation {
                body: BodyCheck::Exact,
                ..any
            },
        ),
        (
            "/echo/{key}",
            Validation {
                has_echo: true,
                ..any
            },
        ),
    ];
    for (target, validation) in kinds {
        let class = RequestClass {
            validation,
            ..RequestClass::get(target, target)
        };
        let mix = RequestMix {
            keys: Some(KeySpace::uniform(10)),
            ..RequestMix::of(vec![class])
        };
        // One connection, so that good and bad responses alternate.
        let first = server.requests();
        assert_eq!(first % 2, 0);
        let record = run(&config(&server, mix, 20));
        check_identities(&record);
        assert_eq!(
            (record.requests, record.errors.validation),
            (10, 10),
            "{target}"
        );
        let wrong = record.wrong_answers;
        let counts = [wrong.length, wrong.checksum, wrong.content, wrong.echo];
        let expected = kinds.map(|(kind, _)| if kind == target { 10 } else { 0 });
        assert_eq!(counts, expected, "{target}");
    }
}

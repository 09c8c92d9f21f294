//! What is asked: templates, keys and classes as a server sees them.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod support;

use millpond_http::Method;
use millpond_load::{
    KeyDistribution, KeySpace, LoadConfig, RequestBody, RequestClass, RequestMix, Stop, Workload,
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
    // Numbers of any length are announced rightly, or the server would have read nonsense.
    assert!(one.iter().any(|text| text.contains("\"n\":9,")), "{one:?}");
    assert!(
        one.iter().any(|text| text.contains("\"n\":399,")),
        "{one:?}"
    );
}

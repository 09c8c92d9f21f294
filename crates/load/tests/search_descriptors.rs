//! A step that could not be made took the results of all steps before it with it. Goal: what was measured is
//! reported, with what ended the search. Alone in its process, whose limit it lowers.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]
mod support;

use millpond_load::{SearchNews, SearchPlan, Spacing, Stop, find_max};
use millpond_measure::record::SearchEnd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::atomic::AtomicBool;
use support::{Reply, TestServer};

#[test]
fn a_failed_step_leaves_those_before_it() {
    let server = TestServer::start(|_| Reply::ok(b"x"));
    let mut config = support::get(server.address);
    config.connections = 1;
    config.stop = Stop::after_ns(50_000_000);
    let plan = SearchPlan {
        slo: "p99<10s".parse().unwrap(),
        first_per_s: Some(100.0),
        spacing: Spacing::Even,
        seed: 1,
        precision: 0.1,
    };
    let lower = |news: &SearchNews<'_>| {
        if matches!(news, SearchNews::Step(_)) {
            let limit = Rlimit {
                current: Some(3),
                ..getrlimit(Resource::Nofile)
            };
            setrlimit(Resource::Nofile, limit).unwrap();
        }
    };
    let report = find_max(&config, &plan, &lower, &AtomicBool::new(false)).unwrap();
    assert_eq!(report.ended, SearchEnd::Failed, "{report:?}");
    assert_eq!(report.steps.len(), 1);
    assert!(report.steps[0].requests > 0, "{report:?}");
    assert!(report.failure.is_some_and(|failure| !failure.is_empty()));
}

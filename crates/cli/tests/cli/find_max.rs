//! The search for the highest rate, as a process.

use crate::load::metric;
use crate::support::{Running, Server, eventually, millpond, refusing_address, run};
use serde_json::Value;
use std::path::Path;

fn record(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Goal: a search prints the curve and a result, and its record has every step of it.
#[test]
fn the_curve_is_printed_and_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("search.json");
    let server = Server::start(&["plaintext"]);
    let words = [
        "load",
        "--find-max",
        "p99<10s,errors<1%",
        "-c",
        "2",
        "-d",
        "50ms",
        "--precision",
        "50%",
        "-R",
        "200",
        "--json",
    ];
    let finished = run(millpond(&words).arg(&file).arg(server.url("/plaintext")));
    // 4: the generator was the limit, as is to be expected of so loose an objective; on a busy machine
    // perhaps at every rate.
    assert!([0, 3, 4].contains(&finished.code()), "{finished:?}");
    assert!(
        finished.stdout.contains("Finding the highest rate"),
        "{finished:?}"
    );
    assert!(finished.stdout.contains("Outcome"), "{finished:?}");
    assert!(finished.stdout.contains("Maximum: "), "{finished:?}");
    let record = record(&file);
    assert_eq!(record["connections"], 2);
    let steps = record["steps"].as_array().unwrap();
    let curve = record["curve"].as_array().unwrap();
    assert!(!steps.is_empty() && steps.len() >= curve.len(), "{record}");
    assert_eq!(steps[0]["rate_per_s"], 200.0);
    assert!(steps[0]["response_ns"]["p99"].as_u64().unwrap() > 0);
    let rates: Vec<f64> = curve
        .iter()
        .map(|point| point["rate_per_s"].as_f64().unwrap())
        .collect();
    assert!(rates.is_sorted(), "{rates:?}");
    match record["rate_per_s"].as_f64() {
        Some(best) => assert!(rates.contains(&best), "{record}"),
        None => assert!(finished.stdout.contains("no rate is known"), "{finished:?}"),
    }
}

/// Goal: objectives that nothing keeps end the search with a status of their own.
#[test]
fn impossible_objectives_are_a_miss() {
    let server = Server::start(&["plaintext"]);
    let words = [
        "load",
        "--find-max",
        "p50<1ns",
        "-c",
        "1",
        "-d",
        "20ms",
        "-R",
        "500",
    ];
    let finished = run(millpond(&words).arg(server.url("/plaintext")));
    assert_eq!(finished.code(), 3, "{finished:?}");
    assert!(finished.stdout.contains("no rate is known"), "{finished:?}");
}

/// Goal: Ctrl-C ends a search with the steps it has made.
#[test]
fn an_interrupted_search_tells_what_it_knows() {
    let server = Server::start(&["plaintext"]);
    let words = [
        "load",
        "--find-max",
        "p99<10s",
        "-c",
        "1",
        "-d",
        "500ms",
        "-R",
        "100",
        "--precision",
        "1%",
    ];
    let search = Running::start(millpond(&words).arg(server.url("/plaintext")));
    // The first step asks 63 times: the second is under way.
    eventually("the second step", || {
        metric(&server, "millpond_http_requests_total") >= 90.0
    });
    search.signal("INT");
    let finished = search.finish();
    assert_eq!(finished.code(), 130, "{finished:?}");
    assert!(finished.stdout.contains("interrupted"), "{finished:?}");
    assert!(finished.stdout.contains("Outcome"), "{finished:?}");
}

/// Goal: a search that cannot begin says why.
#[test]
fn a_search_needs_a_target() {
    let (address, _kept) = refusing_address();
    let url = format!("http://{address}/");
    let finished = run(&mut millpond(&["load", "--find-max", "p99<1s", &url]));
    assert_eq!(finished.code(), 1, "{finished:?}");
    let sentence = format!("cannot connect to {address}");
    assert!(finished.stderr.contains(&sentence), "{finished:?}");
    let ramp = run(&mut millpond(&[
        "load",
        "--find-max",
        "p99<1s",
        "-R",
        "1..2@1s",
        &url,
    ]));
    assert_eq!(ramp.code(), 2, "{ramp:?}");
}

//! The load generator as a process.

use crate::support::{Running, Server, eventually, millpond, refusing_address, run};
use serde_json::Value;
use std::path::Path;

fn record(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Goal: the server of a URL may be reached over a unix socket or at another address; what has no effect is refused.
#[test]
fn a_server_may_be_reached_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let listen = format!("unix:{}", socket.display());
    let mut over_unix = Running::start(&mut millpond(&["serve", "plaintext", "--listen", &listen]));
    assert_eq!(over_unix.first_line(), format!("listening on {listen}\n"));
    let server = Server::start(&["plaintext"]);
    let other = format!("example.invalid:80:{}", server.address);
    let socket = socket.display().to_string();
    for words in [["--unix", &socket], ["--connect-to", &other]] {
        let words = [&["load", "-c", "2", "-n", "20"][..], &words].concat();
        let finished = run(millpond(&words).arg("http://example.invalid/plaintext"));
        assert!([0, 4].contains(&finished.code()), "{finished:?}");
        assert!(finished.stdout.contains("20 requests in"), "{finished:?}");
    }
    for (words, part) in [
        (["--connect-to", "other:80:127.0.0.1"], "leave both empty"),
        (["--sni", "name"], "https://"),
    ] {
        let finished = run(millpond(&["load"])
            .args(words)
            .arg("http://example.invalid/"));
        assert_eq!(finished.code(), 2, "{finished:?}");
        assert!(finished.stderr.contains(part), "{finished:?}");
    }
    over_unix.signal("TERM");
    over_unix.finish();
}

/// Goal: sets of connections are compared in text and record, exactly the requests asked for are sent on them, and
/// closing them is no failure.
#[test]
fn sets_of_connections_are_compared() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json");
    let server = Server::start(&["plaintext"]);
    for (words, requests, opened) in [
        (["--repeat", "2"], 400, 2),
        (["--reconnect-every", "60"], 200, 4),
    ] {
        let finished = run(millpond(&["load", "-c", "4", "-n", "200", "--json"])
            .arg(&file)
            .args(words)
            .arg(server.url("/plaintext")));
        assert!([0, 4].contains(&finished.code()), "{finished:?}");
        let record = record(&file);
        assert_eq!(record["requests"], requests);
        assert!(
            record["errors"]
                .as_object()
                .unwrap()
                .values()
                .all(|count| count == 0)
        );
        let sets = &record["connection_sets"];
        assert_eq!(sets["opened"], opened);
        let whole = sets["sets"].as_array().unwrap().len();
        assert!(sets["response_p99_ns"]["stdev_share"].is_number());
        let open = &record["connections_open"];
        assert_eq!(
            (&open["at_start"], &record["connections"]),
            (&4.into(), &4.into())
        );
        let (window, rate) = (
            &record["rate_window"],
            record["requests_per_s"].as_f64().unwrap(),
        );
        assert_eq!(window["end"], "no_request_left");
        let seconds = window["duration_ns"].as_f64().unwrap() / 1e9;
        assert!((window["answers"].as_f64().unwrap() / seconds / rate - 1.0).abs() < 1e-6);
        for part in [
            "  Rate: of ",
            "  Connections: 4 asked for, 4 open at the start",
            &format!("  Sets of connections: {opened}, compared {whole}"),
        ] {
            assert!(finished.stdout.contains(part), "{part}: {finished:?}");
        }
        let note = record["verdict"]["notes"][0].as_str().unwrap();
        assert!(note.contains("one set of connections to another"), "{note}");
    }
}

/// Goal: the record has every field that other tools rely on, and counts what was asked for.
#[test]
fn the_record_has_its_fields() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json");
    let server = Server::start(&["plaintext"]);
    let words = [
        "load",
        "-c",
        "4",
        "--requests",
        "500",
        "--pipeline",
        "3",
        "--latency",
        "--json",
    ];
    let finished = run(millpond(&words).arg(&file).arg(server.url("/plaintext")));
    assert!([0, 4].contains(&finished.code()), "{finished:?}");
    assert!(finished.stdout.contains("Requests/sec:"), "{finished:?}");
    assert!(
        finished.stdout.contains("Latency Distribution"),
        "{finished:?}"
    );
    assert!(
        !finished.stdout.contains("measuring"),
        "progress went to stdout: {finished:?}"
    );

    let record = record(&file);
    assert_eq!(record["requests"], 500);
    assert!(record["requests_per_s"].as_f64().unwrap() > 0.0);
    assert!(record["duration_ns"].as_u64().unwrap() > 0);
    for phase in [
        "connect",
        "read",
        "write",
        "timeout",
        "status",
        "validation",
    ] {
        assert_eq!(record["errors"][phase], 0, "{phase}");
    }
    for clock in ["response_ns", "service_ns", "slip_ns"] {
        for figure in ["min", "mean", "stdev", "p50", "p90", "p99", "p999", "max"] {
            assert!(record[clock][figure].is_number(), "{clock}.{figure}");
        }
    }
    assert!(record["verdict"]["status"].is_string() && record["verdict"]["reasons"].is_array());
    // 4 says that the generator does not trust its own figures, which a busy machine can cause.
    let invalid = record["verdict"]["status"] == "INVALID";
    assert_eq!(finished.code(), if invalid { 4 } else { 0 });
}

/// Goal: Ctrl-C ends a run with what it measured, on paper and in the record.
#[test]
fn an_interrupted_run_tells_what_it_measured() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json");
    let server = Server::start(&["plaintext"]);
    let words = ["load", "-c", "4", "-d", "10m", "--json"];
    let load = Running::start(millpond(&words).arg(&file).arg(server.url("/plaintext")));
    // Until it has certainly begun: the server has seen requests.
    eventually("requests", || {
        metric(&server, "millpond_http_requests_total") >= 100.0
    });
    load.signal("INT");
    let finished = load.finish();
    assert_eq!(finished.code(), 130, "{finished:?}");
    assert!(finished.stdout.contains("Requests/sec:"), "{finished:?}");
    let record = record(&file);
    assert_eq!(record["interrupted"], true);
    assert!(record["requests"].as_u64().unwrap() > 0);
}

pub(crate) fn metric(server: &Server, name: &str) -> f64 {
    let text = server.metrics_text();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Goal: a target that is not there is one sentence with its address.
#[test]
fn an_unreachable_target_is_named() {
    let (address, _kept) = refusing_address();
    let address = address.to_string();
    let finished = run(&mut millpond(&[
        "load",
        "-d",
        "1s",
        &format!("http://{address}/"),
    ]));
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.sentence().contains(&address), "{finished:?}");
}

/// Goal: values written by --put are read back and checked by --get; a key that was not written is an error.
#[test]
fn values_are_written_and_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data").display().to_string();
    let server = Server::start(&["entity", "--data", &data]);
    let url = server.url("");
    let load = |words: &[&str]| {
        let file = directory.path().join("run.json");
        let finished = run(millpond(&["load", "-c", "4", "--value-size", "100"])
            .args(words)
            .arg("--json")
            .arg(&file)
            .arg(&url));
        (finished, record(&file))
    };
    let (put, put_record) = load(&["--put", "--keys", "300", "--requests", "300"]);
    assert_eq!(put_record["statuses"]["201"], 300, "{put:?}");
    let (get, get_record) = load(&["--get", "--keys", "300", "--requests", "600"]);
    assert_eq!(get_record["requests"], 600, "{get:?}");
    assert_eq!(get_record["errors"]["validation"], 0, "{get:?}");
    let (wrong, wrong_record) =
        load(&["--get", "--keys", "300", "--requests", "60", "--seed", "2"]);
    assert_eq!(
        wrong_record["errors"]["validation"], 60,
        "other values expected: {wrong:?}"
    );
}

/// Goal: the method, the body and the header fields arrive as they were given.
#[test]
fn a_request_of_one_s_own_arrives() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data").display().to_string();
    let server = Server::start(&["entity", "--data", &data]);
    let words = [
        "load",
        "-c",
        "2",
        "--requests",
        "20",
        "--method",
        "PUT",
        "--body",
        "by hand",
    ];
    let url = server.url("/v0/entity?id=k");
    let finished = run(millpond(&words).args(["-H", "X-Note: one"]).arg(&url));
    assert!([0, 4].contains(&finished.code()), "{finished:?}");
    assert_eq!(crate::support::curl(&[&url]), (200, b"by hand".to_vec()));
}

/// Goal: both ends poll for events on request, on either driver, and report how that went.
#[test]
fn busy_polling_is_recorded() {
    let directory = tempfile::tempdir().unwrap();
    for driver in ["auto", "epoll"] {
        let file = directory.path().join(driver);
        let asked = ["--driver", driver, "--busy-poll", "1000"];
        let server = Server::start(&[&["plaintext"][..], &asked].concat());
        let words = ["load", "-c", "1", "--requests", "1k", "--json"];
        let finished = run(millpond(&words).arg(&file).args(asked).arg(server.url("/")));
        assert!([0, 4].contains(&finished.code()), "{finished:?}");
        let record = record(&file);
        assert_eq!(record["requests"], 1_000, "{finished:?}");
        assert_eq!(record["busy_poll_ns"], 1_000_000);
        let found = record["driver"].as_str().unwrap();
        assert!(
            [driver, "uring", "epoll"].contains(&found) && found != "auto",
            "{record}"
        );
        let count = |name: &str| record[name].as_u64().unwrap();
        assert!(count("spins_paid") + count("spins_vain") > 0, "{record}");
        assert!(count("spun_ns") > 0, "{record}");
        // The shard publishes its numbers a moment later.
        let polls = |name: &str| metric(&server, &format!("millpond_driver_{name}_polls_total"));
        eventually("polls", || {
            polls("productive") + polls("unproductive") > 0.0
        });
    }
}

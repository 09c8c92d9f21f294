//! Upkeep of a data directory, as an operator does it.

use crate::support::{Server, curl, millpond, run};
use serde_json::Value;

/// Goal: what a server wrote is counted, checked, compacted and copied, and a server on the copy answers
/// with it; while a server runs, and on anything else, each is one sentence and status 1.
#[test]
fn a_data_directory_is_looked_after() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name).display().to_string();
    let (data, backup, copy, json) = (at("data"), at("backup"), at("copy"), at("check.json"));
    let server = Server::start(&["entity", "--data", &data]);
    for id in ["a", "b", "c"] {
        let url = server.url(&format!("/v0/entity?id={id}"));
        assert_eq!(curl(&["-X", "PUT", "--data-binary", "value", &url]).0, 201);
    }
    let busy = run(&mut millpond(&["entity", "stats", "--data", &data]));
    assert_eq!(busy.code(), 1, "{busy:?}");
    assert!(busy.sentence().contains("another process"), "{busy:?}");
    server.process.signal("TERM");
    assert_eq!(server.process.finish().code(), 0);

    for words in [
        &["entity", "stats", "--data", &data][..],
        &["entity", "compact", "--data", &data],
        &["entity", "check", "--data", &data, "--json", &json],
        &["entity", "backup", "--data", &data, &backup],
        &["entity", "restore", &backup, "--data", &copy],
    ] {
        let finished = run(&mut millpond(words));
        assert_eq!(finished.code(), 0, "{words:?}: {finished:?}");
        assert_ne!(finished.stdout, "", "{words:?}");
    }
    let figures: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(figures["entities"], 3);
    assert_eq!(figures["unreadable"], 0);

    for words in [
        &["entity", "stats", "--data", &at("mistyped")][..],
        &["entity", "backup", "--data", &data, &backup],
        &["entity", "restore", &data, "--data", &at("new")],
        &["entity", "check", "--data", &backup],
    ] {
        let finished = run(&mut millpond(words));
        assert_eq!(finished.code(), 1, "{words:?}: {finished:?}");
        assert!(!finished.sentence().is_empty());
    }
    let server = Server::start(&["entity", "--data", &copy]);
    let url = server.url("/v0/entity?id=b");
    assert_eq!(curl(&[&url]), (200, b"value".to_vec()));
}

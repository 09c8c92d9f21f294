//! Upkeep of a data directory, as an operator does it.

use crate::support::{Server, curl, millpond, peer, run};
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
        &["entity", "check", "--data", &backup],
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
    ] {
        let finished = run(&mut millpond(words));
        assert_eq!(finished.code(), 1, "{words:?}: {finished:?}");
        assert!(!finished.sentence().is_empty());
    }
    let server = Server::start(&["entity", "--data", &copy]);
    let url = server.url("/v0/entity?id=b");
    assert_eq!(curl(&[&url]), (200, b"value".to_vec()));
}

/// Goal: with tokens only their holders get in, each as far as theirs goes, and a large body of anybody
/// else is refused before it is sent; a file without tokens is named with its line, and never repeated.
#[test]
fn tokens_decide_who_reads_and_writes() {
    const READER: &str = "reader-0123456789";
    const WRITER: &str = "writer-0123456789";
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name).display().to_string();
    let (data, readers, writers, body) = (at("data"), at("readers"), at("writers"), at("body"));
    std::fs::write(&readers, format!("# of the dashboard\n{READER}\n")).unwrap();
    std::fs::write(&writers, WRITER).unwrap();
    std::fs::write(&body, vec![b'v'; 32 << 20]).unwrap();
    let tokens = ["--write-tokens", &writers, "--read-tokens", &readers];
    let server = Server::start(&[&["entity", "--data", &data][..], &tokens].concat());
    let url = server.url("/v0/entity?id=a");
    let ask = |token: &str, words: &[&str]| {
        let field = format!("Authorization: Bearer {token}");
        curl(&[&["-H", &field], words, &[&url]].concat()).0
    };
    let put = ["-X", "PUT", "--data-binary", "value"];
    assert_eq!(ask("guess-0123456789", &put), 401);
    assert_eq!(ask(READER, &put), 403);
    assert_eq!(ask(WRITER, &put), 201);
    assert_eq!((ask(READER, &[]), ask(WRITER, &[])), (200, 200));
    assert_eq!(curl(&[&url]).0, 401);
    let upload = format!("@{body}");
    let waits = ["-H", "Expect: 100-continue", "--expect100-timeout", "300"];
    let told = ["-s", "-o", "/dev/null", "-w", "%{http_code} %{size_upload}"];
    let large = ["-X", "PUT", "--data-binary", &upload, &url];
    let answered = peer("curl", &[&waits[..], &told, &large].concat());
    assert_eq!(String::from_utf8_lossy(&answered.stdout), "401 0");
    assert_eq!(curl(&[&server.url("/v0/status")]).0, 200);

    std::fs::write(&writers, "# mine\nguess me").unwrap();
    for (words, part) in [
        (&["--write-tokens", &writers][..], "writers: line 2: "),
        (&["--write-tokens", &at("none")], "none cannot be read"),
        (&["--read-tokens", &readers], "--write-tokens"),
    ] {
        let all = [&["serve", "entity", "--data", &data][..], words].concat();
        let finished = run(&mut millpond(&all));
        assert_eq!(finished.code(), 2, "{finished:?}");
        assert!(finished.stderr.contains(part), "{part}: {finished:?}");
        assert!(!finished.stderr.contains("guess me"), "{finished:?}");
    }
}

//! The logs of servers: a line for each request, and lines about themselves.

use crate::support::{Server, curl, eventually, millpond, run};
use serde_json::Value;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line:?}: {e}")))
        .collect()
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Goal: each request is a line of the file; SIGHUP after a rename begins a new one, as logrotate
/// does it, and reports that; the last lines are there when the server has ended.
#[test]
fn an_access_log_is_rotated_by_sighup() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("access.log");
    let server = Server::start(&["plaintext", "--access-log", path.to_str().unwrap()]);
    assert_eq!(curl(&["-A", "one", &server.url("/")]).0, 200);
    eventually("the first line", || !text(&path).is_empty());
    let old = home.path().join("access.log.1");
    std::fs::rename(&path, &old).unwrap();
    server.process.signal("HUP");
    eventually("a new file", || path.exists());
    assert_eq!(curl(&["-A", "two", &server.url("/absent")]).0, 404);
    server.process.signal("TERM");
    let finished = server.process.finish();
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert!(finished.stderr.contains("was opened anew"), "{finished:?}");
    let (old, new) = (text(&old), text(&path));
    assert!(
        old.contains("\"GET / HTTP/1.1\" 200 13 \"-\" \"one\"\n"),
        "{old}"
    );
    assert!(new.contains("\"GET /absent HTTP/1.1\" 404 "), "{new}");
    assert_eq!((old.lines().count(), new.lines().count()), (1, 1));
}

/// Goal: on stdout the log follows the line with the port, and every line is JSON.
#[test]
fn an_access_log_goes_to_stdout() {
    let words = [
        "plaintext",
        "--access-log",
        "-",
        "--access-log-format",
        "json",
    ];
    let server = Server::start(&words);
    for _ in 0..3 {
        assert_eq!(curl(&[&server.url("/plaintext")]).0, 200);
    }
    server.process.signal("TERM");
    let finished = server.process.finish();
    assert_eq!(finished.code(), 0, "{finished:?}");
    let entries = objects(&finished.stdout);
    assert_eq!(entries.len(), 3);
    for entry in entries {
        assert_eq!(entry["request"], "GET /plaintext HTTP/1.1");
        assert_eq!(
            (&entry["status"], &entry["body_bytes"]),
            (&200.into(), &13.into())
        );
    }
}

/// Goal: a log that cannot be opened is one sentence with its name and status 1.
#[test]
fn a_log_without_a_directory_is_named() {
    let words = ["--listen", "127.0.0.1:0", "--access-log", "/absent/a.log"];
    let finished = run(millpond(&["serve", "plaintext"]).args(words));
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(
        finished.sentence().contains("/absent/a.log"),
        "{finished:?}"
    );
    assert_eq!(finished.stdout, "");
}

/// Goal: without a log SIGHUP ends the server, as it ends any program whose terminal closes.
#[test]
fn sighup_without_a_log_is_the_end() {
    let server = Server::start_at_a_terminal(&["plaintext"]);
    server.process.signal("HUP");
    let finished = server.process.finish();
    assert_eq!(finished.status.code(), None, "{finished:?}");
}

/// How many connections are refused.
const CROWD: usize = 20;

/// Opens connections that are refused: one more than there may be, some times.
fn crowd(server: &Server) {
    let mut held = TcpStream::connect(&server.address).unwrap();
    held.write_all(b"GET / HT").unwrap();
    for _ in 0..CROWD {
        let status = curl(&[&server.url("/")]).0;
        assert_eq!(status, 503);
    }
}

/// Goal: a repeated event is reported when it begins, with its count, and not each time; as text
/// with its level, as JSON with its name.
#[test]
fn what_is_refused_is_told_once() {
    for format in ["text", "json"] {
        let words = [
            "plaintext",
            "--max-connections",
            "1",
            "--log-format",
            format,
            "--head-timeout",
            "10m",
        ];
        let server = Server::start(&words);
        crowd(&server);
        // The shard's counts are read once a second.
        eventually("the line", || {
            server.process.stderr_so_far().contains("refused with 503")
        });
        server.process.signal("TERM");
        let finished = server.process.finish();
        assert_eq!(finished.code(), 0, "{finished:?}");
        let stderr = &finished.stderr;
        let refused: Vec<_> = stderr
            .lines()
            .filter(|l| l.contains("refused with 503"))
            .collect();
        // Not one for each. (Once a minute, as long as it continues: shown in simulated time.)
        assert!((1..CROWD).contains(&refused.len()), "{stderr}");
        if format == "json" {
            let entries = objects(stderr);
            assert!(entries.len() > 2, "{stderr}");
            for entry in &entries {
                assert!(entry["time"].as_str().unwrap().ends_with('Z'), "{entry}");
                assert!(entry["message"].is_string(), "{entry}");
            }
            let entry: Value = serde_json::from_str(refused[0]).unwrap();
            assert_eq!(
                (&entry["level"], &entry["event"]),
                (&"warn".into(), &"connections_refused".into())
            );
            assert!(entry["count"].as_u64().unwrap() >= 1, "{entry}");
        } else {
            assert!(refused[0].starts_with("millpond: warning: connections refused"));
            assert!(
                stderr.lines().all(|line| line.starts_with("millpond: ")),
                "{stderr}"
            );
        }
    }
}

/// Goal: the level leaves out what matters less; what ends the program is reported at any level,
/// and in the requested format. The requested accounting of the pools is printed.
#[test]
fn the_level_is_obeyed() {
    let server = Server::start(&["plaintext", "--log-level", "error"]);
    server.process.signal("TERM");
    assert_eq!(server.process.finish().stderr, "");
    let server = Server::start(&["plaintext", "--log-level", "error", "--log-format", "json"]);
    let words = [
        "serve",
        "plaintext",
        "--log-level",
        "error",
        "--log-format",
        "json",
    ];
    let second = run(millpond(&words).args(["--listen", &server.address]));
    assert_eq!(second.code(), 1, "{second:?}");
    let [entry] = &objects(&second.stderr)[..] else {
        panic!("{second:?}")
    };
    assert_eq!(entry["level"], "error");
    assert!(
        entry["message"].as_str().unwrap().contains(&server.address),
        "{entry}"
    );
    server.process.signal("USR1");
    assert_eq!(curl(&[&server.url("/")]).0, 200);
    server.process.signal("TERM");
    let finished = server.process.finish();
    let [table] = &objects(&finished.stderr)[..] else {
        panic!("{finished:?}")
    };
    let table = table["message"].as_str().unwrap();
    assert!(
        table.lines().count() > 5 && table.contains("shard_blocks"),
        "{table}"
    );
}

//! The requests of `millpond load`, as servers see them: ours, and a third-party one.

use crate::support::{Server, millpond, run};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A run whose record is JSON on the standard output; the generator's own verdict is not the
/// matter here.
fn load(words: &[&str], stdin: &[u8]) -> Value {
    let mut command = millpond(&["load", "-c", "4", "--print", "json"]);
    let mut child = command
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        [0, 1, 4].contains(&output.status.code().unwrap()),
        "{output:?}"
    );
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Python's own server over a directory, with a line on stderr for each request.
struct Python {
    child: Child,
    url: String,
}

impl Python {
    fn start(directory: &Path) -> Self {
        let program = "import http.server, functools, sys\n\
            class Handler(http.server.SimpleHTTPRequestHandler):\n\
            \x20   protocol_version = 'HTTP/1.1'\n\
            \x20   def do_POST(self):\n\
            \x20       body = self.rfile.read(int(self.headers['Content-Length']))\n\
            \x20       self.send_response(200)\n\
            \x20       self.send_header('Content-Length', str(len(body)))\n\
            \x20       self.end_headers()\n\
            \x20       self.wfile.write(body)\n\
            \x20   def log_message(self, *rest): pass\n\
            handler = functools.partial(Handler, directory=sys.argv[1])\n\
            server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)\n\
            print(server.server_address[1], flush=True)\n\
            server.serve_forever()";
        let mut child = Command::new("python3")
            .args(["-c", program])
            .arg(directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut port)
            .unwrap();
        let url = format!("http://127.0.0.1:{}", port.trim());
        Self { child, url }
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Goal: a template names files of a server that is not ours; what is there is right, and what is
/// not is counted as such.
#[test]
fn templates_and_expectations_hold_against_another_server() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..5 {
        std::fs::write(directory.path().join(format!("{number}.txt")), "hello").unwrap();
    }
    let names = directory.path().join("names");
    std::fs::write(&names, "0.txt\n3.txt\nabsent.txt\n").unwrap();
    let server = Python::start(directory.path());
    let url = |path: &str| format!("{}{path}", server.url);
    let sum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let drawn = url("/{rand:0:4}.txt?n={seq}");
    let record = load(
        &[
            "--requests",
            "60",
            "--expect-length",
            "5",
            "--expect-body-sha256",
            sum,
            &drawn,
        ],
        b"",
    );
    assert_eq!(
        (&record["requests"], &record["errors"]["validation"]),
        (&60.into(), &0.into()),
        "{record}"
    );
    let record = load(
        &[
            "--requests",
            "60",
            "--expect-body-crc32",
            "00000000",
            &drawn,
        ],
        b"",
    );
    assert_eq!(record["wrong_answers"]["checksum"], 60, "{record}");
    let lines = url(&format!("/{{file:{}}}", names.display()));
    let record = load(&["--requests", "60", &lines], b"");
    assert_eq!(
        (&record["requests"], &record["statuses"]["404"]),
        (&40.into(), &20.into()),
        "{record}"
    );
    let record = load(
        &["--requests", "60", "--expect-status", "200,404", &lines],
        b"",
    );
    assert_eq!(record["requests"], 60, "{record}");
}

/// Goal: a body from the standard input is a template too; this server echoes it.
#[test]
fn bodies_come_from_the_standard_input() {
    let directory = tempfile::tempdir().unwrap();
    let server = Python::start(directory.path());
    let echo = [
        "--requests",
        "60",
        "--method",
        "POST",
        "--keys",
        "9",
        "--expect-echo",
        "--body",
        "@-",
    ];
    let post = format!("{}/", server.url);
    let record = load(
        &[&echo[..], &[&post]].concat(),
        b"{\"id\":\"{key}\",\"n\":{seq}}",
    );
    assert_eq!(
        (&record["requests"], &record["wrong_answers"]["echo"]),
        (&60.into(), &0.into()),
        "{record}"
    );
}

/// Goal: several URLs are asked by weight and counted separately.
#[test]
fn several_urls_have_figures_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("there"), "hello").unwrap();
    let list = directory.path().join("urls");
    std::fs::write(&list, "# weights\n3 /there\n/absent\nPOST /there\n").unwrap();
    let server = Python::start(directory.path());
    let list = list.display().to_string();
    let record = load(&["--requests", "1000", "--urls", &list, &server.url], b"");
    let classes = record["classes"].as_array().unwrap();
    let figures: Vec<_> = classes
        .iter()
        .map(|class| {
            (
                class["name"].as_str().unwrap(),
                class["requests"].as_u64().unwrap(),
                class["errors"]["status"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        figures,
        [
            ("/there", 600, 0),
            ("/absent", 0, 200),
            ("POST /there", 200, 0)
        ],
        "{record}"
    );
    assert!(classes[0]["response_ns"]["p99"].as_u64().unwrap() > 0);
}

/// Goal: YCSB's workloads run on the entity server: loaded once, every read is the value written,
/// and the operations are in YCSB's proportions.
#[test]
fn ycsb_runs_on_the_entity_server() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data").display().to_string();
    let server = Server::start(&["entity", "--data", &data, "--sync", "off"]);
    let url = server.url("");
    let size = ["--value-size", "50..200", "--keys", "1000"];
    let put = load(
        &[&["--put", "--requests", "1000"], &size[..], &[&url]].concat(),
        b"",
    );
    assert_eq!(
        (&put["requests"], &put["statuses"]["201"]),
        (&1_000.into(), &1_000.into()),
        "{put}"
    );
    for (letter, expected) in [
        ("a", vec![("read", 1_000), ("update", 1_000)]),
        ("b", vec![("read", 1_900), ("update", 100)]),
        ("c", vec![]),
        (
            "f",
            vec![("read", 666), ("rmw-read", 667), ("rmw-update", 667)],
        ),
    ] {
        let words = [
            &["--ycsb", letter, "--requests", "2000"],
            &size[..],
            &[&url],
        ]
        .concat();
        let record = load(&words, b"");
        assert_eq!(
            (&record["requests"], &record["errors"]["validation"]),
            (&2_000.into(), &0.into()),
            "{record}"
        );
        let none = Vec::new();
        let classes = record["classes"].as_array().unwrap_or(&none);
        assert_eq!(classes.len(), expected.len(), "{record}");
        for (class, (name, count)) in classes.iter().zip(&expected) {
            assert_eq!(class["name"], *name);
            // A whole number of blocks is exact; here the last one is not whole.
            let seen = class["requests"].as_u64().unwrap();
            assert!(seen.abs_diff(*count) <= 60, "{name}: {seen} of {count}");
        }
    }
}

/// Goal: the core workloads' operations beside reads and updates: inserts, scans, deletes.
#[test]
fn keys_come_and_go_on_the_entity_server() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data").display().to_string();
    let server = Server::start(&["entity", "--data", &data, "--sync", "off"]);
    let url = server.url("");
    let size = ["--value-size", "50", "--keys", "1000"];
    load(
        &[&["--put", "--requests", "1000"], &size[..], &[&url]].concat(),
        b"",
    );
    // Newest keys are read only once they must have been written; scans are sent and counted,
    // whether the server supports them or not.
    let words = [&["--ycsb", "d", "--requests", "4000"], &size[..], &[&url]].concat();
    let newest = load(&words, b"");
    assert_eq!(
        (&newest["requests"], &newest["classes"][1]["requests"]),
        (&4_000.into(), &200.into()),
        "{newest}"
    );
    let scans = load(
        &[&["--ycsb", "e", "--requests", "1000"], &size[..], &[&url]].concat(),
        b"",
    );
    let counted = &scans["classes"][0];
    let sent =
        counted["requests"].as_u64().unwrap() + counted["errors"]["status"].as_u64().unwrap();
    assert_eq!((&counted["name"], sent), (&"scan".into(), 950), "{scans}");
    // Deleted keys are correctly absent.
    let words = [
        &["--mix", "read=50,delete=50", "--requests", "500"],
        &size[..],
        &[&url],
    ]
    .concat();
    let deleted = load(&words, b"");
    assert_eq!(deleted["requests"], 500, "{deleted}");
    assert!(
        deleted["statuses"]["404"].as_u64().unwrap() > 0,
        "{deleted}"
    );
}

/// Goal: the text has the classes and the kinds of wrong responses.
#[test]
fn the_text_tells_classes_and_wrong_answers() {
    let server = Server::start(&["plaintext"]);
    let (one, two) = (server.url("/plaintext"), server.url("/absent"));
    let words = [
        "load",
        "-c",
        "2",
        "--requests",
        "200",
        "--expect-length",
        "3",
        "--expect-status",
        "200-499",
    ];
    let finished = run(millpond(&words).args([&one, &two]));
    assert!(finished.stdout.contains("  Classes "), "{finished:?}");
    assert!(
        finished
            .stdout
            .contains("Wrong content in responses: 200 (length 200)"),
        "{finished:?}"
    );
}

/// Goal: connections end after their requests, use the given source addresses, and their times to
/// connect are counted separately.
#[test]
fn connections_come_and_go() {
    let server = Server::start(&["plaintext"]);
    let url = server.url("/plaintext");
    let words = [
        "--requests",
        "100",
        "--requests-per-connection",
        "5",
        "--source",
        "127.0.0.2..127.0.0.9",
    ];
    let record = load(&[&words[..], &[&url]].concat(), b"");
    assert_eq!(
        (&record["requests"], &record["errors"]["connect"]),
        (&100.into(), &0.into()),
        "{record}"
    );
    assert!(
        record["opening_ns"]["count"].as_u64().unwrap() >= 20,
        "{record}"
    );
    let words = [
        "load",
        "-c",
        "2",
        "--requests",
        "20",
        "--requests-per-connection",
        "1",
        "--connection-ramp",
        "10ms",
    ];
    let finished = run(millpond(&words).arg(&url));
    assert!(finished.stdout.contains("    Connect "), "{finished:?}");
}

/// Goal: an impossible request is refused with the reason.
#[test]
fn impossible_requests_are_refused() {
    let url = "http://127.0.0.1:9";
    let path = format!("{url}/{{key}}");
    let misspelt = format!("{url}/{{sequence}}");
    for (words, part) in [
        (vec![&path[..]], "--keys"),
        (vec![&misspelt[..]], "{sequence} is no placeholder"),
        (vec!["--expect-echo", url], "{key}"),
        (vec!["--expect-length", "x", url], "--expect-length"),
        (vec!["--source", "127.0.0.9..127.0.0.1", url], "--source"),
        (
            vec!["--requests-per-connection", "0", url],
            "--requests-per-connection",
        ),
        (vec!["--ycsb", "g", url], "a, b, c, d, e and f"),
        (vec!["--mix", "read=1", url], "--keys"),
        (
            vec!["--mix", "read=1", "--keys", "5", "--body", "x", url],
            "--body",
        ),
        (vec!["--key-distribution", "normal", url], "zipfian"),
        (vec![url, "http://127.0.0.1:10"], "two servers"),
        (vec!["--urls", "/nowhere/at/all"], "cannot be read"),
    ] {
        let finished = run(millpond(&["load"]).args(&words));
        assert!([1, 2].contains(&finished.code()), "{words:?}: {finished:?}");
        assert!(finished.stderr.contains(part), "{words:?}: {finished:?}");
    }
}

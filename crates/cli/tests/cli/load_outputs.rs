//! The output and the files of `millpond load`, read as its readers read them.

use crate::schema_check;
use crate::support::{Finished, Running, Server, millpond, run};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// A run against a server of its own, with these words.
fn load(server: &Server, directory: &Path, words: &[&str]) -> Finished {
    let url = server.url("/plaintext");
    let finished = run(millpond(&["load", "-c", "4"])
        .current_dir(directory)
        .args(words)
        .arg(url));
    // 4 says that the generator does not trust its own figures, which a busy machine can cause.
    assert!([0, 4].contains(&finished.code()), "{finished:?}");
    finished
}

fn text(directory: &Path, name: &str) -> String {
    std::fs::read_to_string(directory.join(name)).unwrap()
}

fn json_lines(text: &str) -> Vec<Value> {
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

/// Goal: every second is a line of JSON, the window's add up to the summary, which is the last.
#[test]
fn seconds_are_lines_of_json() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&["plaintext"]);
    let words = ["-d", "1200ms", "-t", "2", "--print", "ndjson"];
    let lines = json_lines(&load(&server, directory.path(), &words).stdout);
    let (summary, seconds) = lines.split_last().unwrap();
    assert_eq!(summary["type"], "summary");
    assert!(summary["verdict"]["status"].is_string());
    assert!(summary.get("histograms").is_none(), "a line stays readable");
    let mut requests = 0;
    for second in seconds {
        assert_eq!(second["type"], "second");
        assert!(["window", "drain"].contains(&second["part"].as_str().unwrap()));
        assert!(second["response_ns"]["p99"].is_number());
        requests += second["requests"].as_u64().unwrap();
    }
    assert_eq!(summary["requests"], requests);
    // One in which the machine let no thread of the generator run is not shown.
    let cuts = |second: &Value| match second["part"] == "window" {
        true => Some((
            second["start_ns"].as_u64()?,
            second["duration_ns"].as_u64()?,
        )),
        false => None,
    };
    let planned = [(0, 1_000_000_000), (1_000_000_000, 200_000_000)];
    assert!(
        seconds
            .iter()
            .filter_map(cuts)
            .all(|cut| planned.contains(&cut))
    );
}

/// Goal: several outputs of one run come at once, each in its own file, and say the same.
#[test]
fn files_of_one_run_agree() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = Server::start(&["plaintext"]);
    let words = [
        "-R",
        "500",
        "-d",
        "1100ms",
        "--print",
        "wrk",
        "--print",
        "ndjson=run.ndjson",
        "--print",
        "hlog=run.hlog",
        "--print",
        "v2=run.v2",
        "--json",
        "run.json",
    ];
    let finished = load(&server, at, &words);
    assert!(finished.stdout.contains("Requests/sec:"), "{finished:?}");
    let record: Value = serde_json::from_str(&text(at, "run.json")).unwrap();
    let mut seconds = json_lines(&text(at, "run.ndjson"));
    let summary = seconds.pop().unwrap();
    assert_eq!(summary["requests"], record["requests"]);
    let hlog = text(at, "run.hlog");
    assert!(hlog.starts_with("#[Logged with millpond "), "{hlog}");
    for second in seconds.iter().filter(|one| one["part"] == "window") {
        let seconds = |name: &str| second[name].as_u64().unwrap() as f64 / 1e9;
        let (start, length) = (seconds("start_ns"), seconds("duration_ns"));
        for tag in ["response", "slip"] {
            let line = format!("\nTag={tag},{start:.3},{length:.3},");
            assert!(hlog.contains(&line), "{line}: {hlog}");
        }
    }
    let v2 = text(at, "run.v2");
    let blob = record["histograms"]["response"].as_str().unwrap();
    assert!(blob.starts_with("HISTFAAA"), "{blob}");
    assert!(v2.starts_with(&format!("response {blob}\n")), "{v2}");
}

/// Goal: records of several runs make one, from each kind of file that holds samples, and print in
/// every format.
#[test]
fn records_are_merged() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = Server::start(&["plaintext"]);
    let mut requests = 0;
    for name in ["a", "b"] {
        let [json, hlog, v2] = ["json", "hlog", "v2"].map(|form| format!("{form}={name}.{form}"));
        let words = [
            "--requests",
            "300",
            "--print",
            &json,
            "--print",
            &hlog,
            "--print",
            &v2,
        ];
        load(&server, at, &words);
        let record: Value = serde_json::from_str(&text(at, &format!("{name}.json"))).unwrap();
        requests += record["requests"].as_u64().unwrap();
    }
    let mut merged = Vec::new();
    for kind in ["json", "hlog", "v2"] {
        let files = [format!("a.{kind}"), format!("b.{kind}")];
        let finished = run(millpond(&["load", "merge", "--print", "json"])
            .current_dir(at)
            .args(&files));
        let record: Value = serde_json::from_str(&finished.stdout).unwrap();
        assert_eq!(record["requests"], requests, "{finished:?}");
        assert_eq!(record["connections"], 8);
        merged.push((
            record["response_ns"].clone(),
            record["histograms"]["service"].clone(),
            record["requests_per_s"].clone(),
        ));
    }
    assert!(merged.iter().all(|one| *one == merged[0]), "{merged:?}");

    for (format, beginning) in [
        ("wrk", "Running "),
        ("wrk2", "Running "),
        ("csv", "url,"),
        ("hgrm", "       Value"),
        ("v2", "response HISTFAAA"),
        ("ndjson", "{\"type\":\"summary\""),
        ("hlog", "#[Logged with millpond"),
    ] {
        let words = ["load", "merge", "a.json", "b.json", "--print", format];
        let finished = run(millpond(&words).current_dir(at));
        assert!(finished.stdout.starts_with(beginning), "{finished:?}");
    }
}

/// Goal: a file that cannot be merged is named, with what is wrong with it.
#[test]
fn files_that_cannot_be_merged_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("bare.json"), "{\"requests\": 3}").unwrap();
    std::fs::write(at.join("cut.hlog"), "#[Logged with millpond 1]\n").unwrap();
    for (file, part) in [
        ("absent.json", "cannot be read"),
        ("bare.json", "no samples"),
        ("cut.hlog", "without the counts"),
    ] {
        let finished = run(millpond(&["load", "merge", file]).current_dir(at));
        assert_eq!(finished.code(), 1, "{finished:?}");
        let sentence = finished.sentence();
        assert!(
            sentence.contains(file) && sentence.contains(part),
            "{sentence}"
        );
    }
    assert_eq!(run(&mut millpond(&["load", "merge"])).code(), 2);
}

/// Goal: ab's text comes from a real run with its numbers: what the server is, how long its document,
/// how many responses, the time to connect charged to the first request of each connection.
#[test]
fn ab_s_text_has_its_facts() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = Server::start(&["plaintext"]);
    let words = [
        "--requests",
        "200",
        "-k",
        "--print",
        "ab",
        "--print",
        "ab-csv=e.csv",
        "--print",
        "json=run.json",
    ];
    let finished = load(&server, at, &words);
    let lines: Vec<&str> = finished.stdout.lines().collect();
    for expected in [
        "Server Software:        millpond",
        "Server Hostname:        127.0.0.1",
        "Document Path:          /plaintext",
        "Document Length:        13 bytes",
        "Concurrency Level:      4",
        "Complete requests:      200",
        "Failed requests:        0",
        "Keep-Alive requests:    200",
        "HTML transferred:       2600 bytes",
    ] {
        assert!(lines.contains(&expected), "{expected}: {finished:?}");
    }
    assert_eq!(text(at, "e.csv").lines().count(), 102);
    let record: Value = serde_json::from_str(&text(at, "run.json")).unwrap();
    assert_eq!(record["connect_ns"]["count"], 200);
    assert_eq!(
        (&record["connect_ns"]["min"], &record["connect_ns"]["p90"]),
        (&0.into(), &0.into())
    );
    assert!(record["connect_ns"]["max"].as_u64().unwrap() > 0);
    assert_eq!(record["waiting_ns"]["count"], 200);
}

/// Goal: the schema of the record describes it whole, and the record of a real run is valid by it.
#[test]
fn the_record_is_valid_by_its_schema() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = Server::start(&["plaintext"]);
    load(
        &server,
        at,
        &[
            "-R",
            "300",
            "--requests",
            "100",
            "--cookies",
            "--warm-up",
            "auto:500ms",
            "--json",
            "run.json",
        ],
    );
    let schema_file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/load.schema.json");
    let record: Value = serde_json::from_str(&text(at, "run.json")).unwrap();
    assert_eq!(schema_check::problems(schema_file, &record), [""; 0]);
    let another = schema_check::ask_another(schema_file, &at.join("run.json"));
    assert_eq!(another, Ok(()));
}

/// Goal: Ctrl-C does not wait for responses that do not come: a silent server, and a timeout of minutes.
#[test]
fn an_interrupted_run_waits_for_nobody() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let words = [
        "load",
        "-c",
        "2",
        "-d",
        "10m",
        "--timeout",
        "10m",
        "--print",
        "ndjson",
        "--json",
    ];
    let load = Running::start(
        millpond(&words)
            .arg(directory.path().join("run.json"))
            .arg(url),
    );
    let peers: Vec<_> = (0..2).map(|_| listener.accept().unwrap()).collect();
    for (peer, _) in &peers {
        // Until the request is on its way.
        assert!(peer.peek(&mut [0; 16]).unwrap() > 0);
    }
    load.signal("INT");
    let finished = load.finish();
    assert_eq!(finished.code(), 130, "{finished:?}");
    let summary = json_lines(&finished.stdout).pop().unwrap();
    assert_eq!(
        (&summary["interrupted"], &summary["abandoned"]),
        (&true.into(), &2.into())
    );
}

/// Goal: the page of a run has its course, that of merged records is a page without one.
#[test]
fn pages_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = Server::start(&["plaintext"]);
    let words = [
        "-R",
        "200",
        "-d",
        "2200ms",
        "--no-live",
        "--report",
        "run.html",
        "--json",
        "a.json",
    ];
    load(&server, at, &words);
    let page = text(at, "run.html");
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(page.contains("Right responses per second") && page.contains("Verdict: "));
    run(millpond(&[
        "load",
        "merge",
        "a.json",
        "a.json",
        "--report",
        "merged.html",
    ])
    .current_dir(at));
    let page = text(at, "merged.html");
    assert!(page.contains("Time over percentile") && !page.contains("Right responses per second"));
}

/// What a terminal of its own receives of a run that is ended by Ctrl-C as soon as all of `until` were
/// there; `None` where there is no `script` to make a terminal.
fn on_a_terminal(server: &Server, words: &str, no_colour: &str, until: &[&str]) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_millpond");
    let url = server.url("/plaintext");
    let line = format!("{program} load -c 4 -d 1h {words} {url}");
    let mut child = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("TERM", "xterm")
        .env("NO_COLOR", no_colour)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let (mut keyboard, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut seen, mut room) = (Vec::new(), [0; 4096]);
    let mut is_ended = false;
    while let count @ 1.. = screen.read(&mut room).unwrap() {
        seen.extend_from_slice(&room[..count]);
        let text = String::from_utf8_lossy(&seen);
        if !is_ended && until.iter().all(|part| text.contains(part)) {
            keyboard.write_all(b"\x03").unwrap();
            is_ended = true;
        }
    }
    child.wait().unwrap();
    Some(String::from_utf8(seen).unwrap())
}

/// Goal: on a terminal the view is drawn over in place, with nothing left of it in front of the
/// results; without colours where those are refused; and --no-live keeps to one line.
#[test]
fn a_terminal_gets_the_live_view() {
    let server = Server::start(&["plaintext"]);
    // Seven lines are drawn over.
    let drawn = ["measuring, ", "p50 ", "\x1b[7A"];
    let Some(text) = on_a_terminal(&server, "", "", &drawn) else {
        return;
    };
    let (view, results) = text.rsplit_once("\x1b[J").unwrap();
    assert!(
        view.contains("\x1b[38;5;243mhttp://"),
        "the title is quiet: {text:?}"
    );
    assert!(
        results.contains("Requests/sec:") && !results.contains('\x1b'),
        "{text:?}"
    );

    let plain = on_a_terminal(&server, "", "1", &drawn).unwrap();
    assert!(!plain.contains("\x1b[38;5"), "{plain:?}");
    let line = on_a_terminal(&server, "--no-live", "", &["measuring: "]).unwrap();
    assert!(!line.contains("\x1b[7A"), "{line:?}");
}

/// Goal: a line for each request in the order of writing, whose parts fit in one another; at a rate
/// the send delay is shown, and the kernel's service time of some.
#[test]
fn each_request_has_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = Server::start(&["plaintext"]);
    let flags = ["-n", "50", "-R", "200", "--driver", "epoll"];
    load(
        &server,
        at,
        &[&flags[..], &["--print", "requests=rows.csv"]].concat(),
    );
    let rows = text(at, "rows.csv");
    let mut lines = rows.lines();
    let names = "written_unix_ns,slip_ns,connect_ns,waiting_ns,service_ns,kernel_service_ns";
    assert_eq!(lines.next(), Some(names));
    let rows: Vec<Vec<Option<u64>>> = lines
        .map(|line| line.split(',').map(|field| field.parse().ok()).collect())
        .collect();
    assert_eq!(rows.len(), 50);
    assert!(rows.is_sorted_by_key(|row| row[0]));
    for row in &rows {
        let [_, Some(_), Some(_), waiting, service, kernel] = row[..] else {
            panic!("{row:?}");
        };
        assert!(waiting.is_some() && waiting <= service, "{row:?}");
        assert!(kernel <= service, "{row:?}");
    }
    assert!(rows.iter().any(|row| row[5].is_some()));
    let since_ns = rows[49][0].unwrap() - rows[0][0].unwrap();
    let slip_ns: u64 = rows.iter().filter_map(|row| row[1]).sum();
    // 49 intervals of 5 ms, from the first one's own delay on.
    assert!(since_ns + slip_ns >= 245_000_000, "{since_ns} {slip_ns}");
}

/// Goal: ab's files by ab's letters: a line for each request, the fastest first, and the table of
/// percentages; both say the same of the slowest.
#[test]
fn ab_s_files_have_ab_s_letters() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = Server::start(&["plaintext"]);
    load(
        &server,
        at,
        &["-n", "50", "-g", "rows.tsv", "-e", "shares.csv"],
    );
    let rows = text(at, "rows.tsv");
    let mut lines = rows.lines();
    let names = "starttime\tseconds\tctime\tdtime\tttime\twait";
    assert_eq!(lines.next(), Some(names));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), 50);
    let number = |row: &[&str], place: usize| -> u64 { row[place].parse().unwrap() };
    for row in &rows {
        assert_eq!(row.len(), 6);
        let sum = number(row, 2) + number(row, 3);
        assert!(sum.abs_diff(number(row, 4)) <= 1, "rounded apart: {row:?}");
        assert!(number(row, 5) <= number(row, 3) + 1, "{row:?}");
    }
    assert!(rows.is_sorted_by_key(|row| number(row, 4)));
    let shares = text(at, "shares.csv");
    assert!(
        shares.starts_with("Percentage served,Time in ms\n0,"),
        "{shares}"
    );
    let (_, slowest) = shares.lines().last().unwrap().split_once(',').unwrap();
    let slowest: f64 = slowest.parse().unwrap();
    let last = number(&rows[49], 4) as f64;
    assert!(
        (slowest - last).abs() <= 0.5 + slowest / 100.0,
        "{slowest} {last}"
    );
    let finished = run(millpond(&["load", "merge", "a.json", "-g", "rows.tsv"]).current_dir(at));
    assert_eq!(finished.code(), 2, "{finished:?}");
    assert!(
        finished.sentence().contains("no single requests"),
        "{finished:?}"
    );
}

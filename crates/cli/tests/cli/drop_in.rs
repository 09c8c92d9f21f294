//! `--print wrk|wrk2|ab` instead of those programs: the same lines, the same exit status, and what reads their
//! output reads ours. wrk and ab are run beside ours where they are installed.

use crate::support::{Finished, Server, millpond, refusing_address, run};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

/// What a line is made of, whatever its figures: a word with a digit in it, or a figure that is none, stands for a figure.
fn shape(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        let is_figure = word.bytes().any(|byte| byte.is_ascii_digit())
            || word.trim_start_matches('-').eq_ignore_ascii_case("nan%");
        if is_figure { "#" } else { word }
    });
    let indent = line.len() - line.trim_start().len();
    let shape: Vec<&str> = words.collect();
    // Figures are right-aligned: only the indent of words is compared.
    match shape.first() {
        Some(&"#") | None => shape.join(" "),
        Some(_) => format!("{}{}", " ".repeat(indent), shape.join(" ")),
    }
}

/// The lines of a text, without those that name the program and the doubts that hang on figures.
fn shapes(text: &str) -> Vec<String> {
    let begin = text.find("Benchmarking").unwrap_or(0);
    let mut is_doubt = false;
    let lines = text[begin..].lines().filter(|line| {
        let is_behind_doubt = is_doubt && line.starts_with("       ");
        is_doubt = line.starts_with("WARNING: ") || line.starts_with("ERROR: ");
        !is_doubt && !is_behind_doubt && !line.starts_with("Server Software:")
    });
    lines.map(shape).collect()
}

/// `None`: it is not installed.
fn real(program: &str, words: &[&str], url: &str) -> Option<Finished> {
    let is_here = Command::new("which").arg(program).output();
    if !is_here.is_ok_and(|output| output.status.success()) {
        eprintln!("not compared: {program} is not installed");
        return None;
    }
    Some(run(Command::new(program).args(words).arg(url)))
}

fn ours(tool: &str, words: &[&str], url: &str) -> Finished {
    run(millpond(&["load", "--print", tool]).args(words).arg(url))
}

fn compare(program: &str, theirs: &[&str], extra: &[&str], url: &str) {
    let ours = ours(program, &[theirs, extra].concat(), url);
    let Some(real) = real(program, theirs, url) else {
        return;
    };
    assert_eq!(
        shapes(&ours.stdout),
        shapes(&real.stdout),
        "{theirs:?}\n{}\n{}",
        ours.stdout,
        real.stdout
    );
    assert_eq!(ours.code(), real.code(), "{theirs:?}: {ours:?} {real:?}");
}

/// Goal: line for line and to the exit status what wrk does, also where every response is wrong.
#[test]
fn wrk_is_replaced() {
    let server = Server::start(&["plaintext"]);
    let (right, wrong) = (server.url("/plaintext"), server.url("/nothing"));
    compare("wrk", &["-t2", "-c4", "-d1s"], &[], &right);
    compare("wrk", &["-t1", "-c2", "-d1s", "--latency"], &[], &right);
    compare("wrk", &["-t1", "-c2", "-d1s"], &[], &wrong);
    let (refusing, _kept) = refusing_address();
    compare(
        "wrk",
        &["-t1", "-c1", "-d1s"],
        &[],
        &format!("http://{refusing}/"),
    );
    // It takes connections and closes them. A server that never responds is not compared: wrk reports nothing of such
    // requests.
    let closing = TcpListener::bind("127.0.0.1:0").unwrap();
    let closing_url = format!("http://{}/", closing.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in closing.incoming().flatten() {
            let _ = stream.read(&mut [0; 4_096]);
        }
    });
    compare("wrk", &["-t1", "-c2", "-d1s"], &[], &closing_url);
}

/// Goal: the same of ab, with its own flags.
#[test]
fn ab_is_replaced() {
    let server = Server::start(&["plaintext"]);
    let (right, wrong) = (server.url("/plaintext"), server.url("/nothing"));
    let directory = tempfile::tempdir().unwrap();
    let body = directory.path().join("body.json");
    std::fs::write(&body, r#"{"a": "{seq}"}"#).unwrap();
    let body = body.to_str().unwrap();
    compare("ab", &["-q", "-n", "20", "-c", "2"], &[], &right);
    compare("ab", &["-q", "-k", "-n", "20", "-c", "2"], &[], &right);
    compare("ab", &["-q", "-k", "-n", "20", "-c", "2"], &[], &wrong);
    compare(
        "ab",
        &["-q", "-k", "-l", "-r", "-n", "20", "-c", "1"],
        &[],
        &right,
    );
    compare(
        "ab",
        &["-q", "-k", "-i", "-n", "20", "-c", "1"],
        &[],
        &right,
    );
    let post = [
        "-q",
        "-k",
        "-n",
        "20",
        "-c",
        "1",
        "-p",
        body,
        "-T",
        "application/json",
    ];
    compare("ab", &post, &[], &wrong);
    let (refusing, _kept) = refusing_address();
    compare(
        "ab",
        &["-q", "-n", "1", "-c", "1"],
        &[],
        &format!("http://{refusing}/"),
    );
}

/// Responses of two lengths in turn, one to each connection.
fn two_lengths() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4_096]);
            let body = if number % 2 == 0 { "two" } else { "lengths" };
            let length = body.len();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    url
}

/// Goal: without -k each request has a connection of its own, and without -l a body of another length than the first is
/// a failed request, as in ab.
#[test]
fn ab_closes_and_compares_lengths() {
    let number = |text: &str, name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    for (words, failed) in [
        (&["-q", "-n", "6", "-c", "1"][..], Some(3)),
        (&["-q", "-l", "-n", "6", "-c", "1"], Some(0)),
    ] {
        let ours = ours("ab", words, &two_lengths());
        assert_eq!(number(&ours.stdout, "Failed requests:"), failed, "{ours:?}");
        assert_eq!(number(&ours.stdout, "Complete requests:"), Some(6));
        assert_eq!(number(&ours.stdout, "Keep-Alive requests:"), None);
        let Some(real) = real("ab", words, &two_lengths()) else {
            continue;
        };
        assert_eq!(number(&real.stdout, "Failed requests:"), failed, "{real:?}");
    }
}

/// Goal: a histogram is drawn on request, below what is printed without it.
#[test]
fn a_histogram_is_drawn_on_request() {
    let server = Server::start(&["plaintext"]);
    let url = server.url("/plaintext");
    let drawn = |words: &[&str]| {
        let finished = run(millpond(&["load", "-n", "100", "-c", "2"])
            .args(words)
            .arg(&url));
        assert_eq!(finished.code(), 0, "{finished:?}");
        finished
            .stdout
            .contains("  Histogram of response times\n  <= ")
    };
    assert!(drawn(&["--histogram"]) && !drawn(&[]));
}

/// Goal: ab's flags have ab's meaning, and without its text they are refused by name, except for wrk's -T.
#[test]
fn ab_s_flags_ask_as_ab_does() {
    let server = Server::start(&["plaintext"]);
    let url = server.url("/plaintext");
    for (flag, value) in [
        ("-p", Some("/etc/hostname")),
        ("-A", Some("a:b")),
        ("-i", None),
        ("-q", None),
    ] {
        let words: Vec<&str> = [flag].into_iter().chain(value).collect();
        let refused = run(millpond(&["load", "-n", "1"]).args(&words).arg(&url));
        assert_eq!(refused.code(), 2, "{refused:?}");
        assert!(
            refused.sentence().contains("give --print ab"),
            "{refused:?}"
        );
    }
    let refused = ours("ab", &["-n", "1", "-A", "nobody"], &url);
    assert!(refused.sentence().contains("USER:PASSWORD"), "{refused:?}");
    let timed = run(millpond(&["load", "-n", "1", "-c", "1", "-T", "5s"]).arg(&url));
    assert!([0, 4].contains(&timed.code()), "{timed:?}");
}

/// A reader of wrk's text as scripts have it: words behind names.
fn read_wrk(text: &str) -> (f64, Vec<String>, u64) {
    let behind = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}: {text}"))
            .split_whitespace()
            .map(str::to_owned)
    };
    let rate = behind("Requests/sec:").next().unwrap().parse().unwrap();
    let count = text
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "));
    (
        rate,
        behind("Latency").collect(),
        count.unwrap().0.parse().unwrap(),
    )
}

/// A reader of wrk2's spectrum: rows of four numbers, and the summary in brackets.
fn read_wrk2(text: &str) -> (Vec<[f64; 4]>, Vec<(String, f64)>) {
    let rows = text.lines().filter_map(|line| {
        let numbers = line.split_whitespace().map(|word| word.parse().ok());
        numbers.collect::<Option<Vec<f64>>>()?.try_into().ok()
    });
    let summary = text
        .lines()
        .filter_map(|line| line.strip_prefix("#[")?.strip_suffix(']'));
    let pairs = summary.flat_map(|inside| inside.split(',')).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap();
        (name.trim().to_owned(), value.trim().parse().unwrap())
    });
    (rows.collect(), pairs.collect())
}

/// A reader of ab's text: what stands behind the colon of each name.
fn read_ab(text: &str, name: &str) -> f64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let word = line.and_then(|rest| rest.split_whitespace().next());
    word.and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no {name}: {text}"))
}

/// Goal: readers of the three programs' output find what they search for, wrk2's spectrum also with -R and -L alone.
#[test]
fn readers_of_the_texts_are_served() {
    let server = Server::start(&["plaintext"]);
    let url = server.url("/plaintext");
    let wrk = ours("wrk", &["-t1", "-c2", "-d1s", "--latency"], &url);
    let (rate, latency, count) = read_wrk(&wrk.stdout);
    assert!(rate > 0.0 && count > 0 && latency.len() == 4 && latency[3].ends_with('%'));
    for words in [&["--print", "wrk2"][..], &[]] {
        let finished = run(millpond(&["load", "-t1", "-c2", "-d1s", "-R", "200", "-L"])
            .args(words)
            .arg(&url));
        let (rows, summary) = read_wrk2(&finished.stdout);
        assert!(rows.len() > 5, "{finished:?}");
        assert_eq!(rows.last().unwrap()[1], 1.0);
        let names: Vec<&str> = summary.iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "Mean",
            "StdDeviation",
            "Max",
            "Total count",
            "Buckets",
            "SubBuckets",
        ];
        assert_eq!(names, expected);
        assert_eq!(summary[3].1, rows.last().unwrap()[2]);
        assert_eq!(read_wrk(&finished.stdout).1.len(), 4);
        assert_eq!(finished.stdout.contains("Verdict:"), words.is_empty());
    }
    let ab = ours("ab", &["-n", "20", "-c", "2"], &url);
    assert_eq!(read_ab(&ab.stdout, "Complete requests"), 20.0);
    assert_eq!(read_ab(&ab.stdout, "Failed requests"), 0.0);
    assert!(read_ab(&ab.stdout, "Requests per second") > 0.0);
    assert_eq!(ab.code(), 0);
}

//! Exports and imports of directories and servers, as they are typed.

use crate::support::{Server, curl, millpond, run};
use crate::tls::{Files, https};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

/// More lines than one response has entities, among them ids and values that are no text, a large one, and one with an end.
fn many_lines() -> String {
    let mut text = String::new();
    for n in 0..1500 {
        writeln!(
            text,
            "{{\"id\":\"user:{n:05}\",\"type\":\"text/plain\",\"value\":\"line\\n{n}\"}}"
        )
        .unwrap();
    }
    let large = "QUJD".repeat(1_000_000);
    writeln!(
        text,
        "{{\"id_base64\":\"/wA=\",\"value_base64\":\"{large}\"}}"
    )
    .unwrap();
    text += "{\"id\":\"a&b=c %\",\"type\":\"application/json\",\"expires\":4102444800.000,\"value\":\"{}\"}\n";
    text += "{\"id\":\"ended\",\"expires\":1.5,\"value\":\"\"}\n";
    text + "{\"end\":true}\n"
}

fn without_tags(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let without = |line: &str| match line.split_once(",\"etag\":\"\\\"") {
        Some((before, after)) => format!("{before}{}", &after[19..]),
        None => line.to_owned(),
    };
    text.lines().map(without).collect()
}

/// Goal: entities that go into a server by lines come out of it by lines, over several responses; into another server
/// they are the same except for tags, into a directory with them.
#[test]
fn servers_and_directories_are_filled_from_exports() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let text = |name: &str| at(name).display().to_string();
    fs::write(at("lines"), many_lines()).unwrap();
    let server = Server::start(&["entity", "--data", &text("data")]);
    let done = |words: &[&str]| {
        let finished = run(&mut millpond(words));
        assert_eq!(finished.code(), 0, "{words:?}: {finished:?}");
        finished.stdout
    };
    let url = server.url("");
    let said = done(&["entity", "import", &url, &text("lines")]);
    assert_eq!(said, "1502 entities are imported; 1 have ended\n");
    done(&["entity", "export", &url, "--output", &text("first")]);

    let other = Server::start(&["entity", "--data", &text("other")]);
    done(&["entity", "import", &other.url("/"), &text("first")]);
    done(&[
        "entity",
        "export",
        &other.url("/"),
        "--output",
        &text("second"),
    ]);
    assert!(without_tags(&at("first")) == without_tags(&at("second")));
    assert_eq!(without_tags(&at("first")).len(), 1503);

    server.process.signal("TERM");
    assert_eq!(server.process.finish().code(), 0);
    done(&[
        "entity",
        "export",
        &text("data"),
        "--output",
        &text("stopped"),
    ]);
    assert!(fs::read(at("stopped")).unwrap() == fs::read(at("first")).unwrap());
    done(&["entity", "import", &text("copy"), &text("first")]);
    let exported = done(&["entity", "export", &text("copy")]);
    assert!(exported.as_bytes() == fs::read(at("first")).unwrap());
    done(&["entity", "check", "--data", &text("copy")]);
}

/// Goal: tokens are sent where they are asked for; what a server refuses is reported by line with its sentence; typing
/// errors are status 2.
#[test]
fn refusals_of_servers_are_told() {
    let home = tempfile::tempdir().unwrap();
    let text = |name: &str| home.path().join(name).display().to_string();
    fs::write(text("writers"), "# mine\nwriter-0123456789\n").unwrap();
    let long = format!("{{\"id\":\"b\",\"value\":\"{}\"}}\n", "v".repeat(3000));
    fs::write(
        text("lines"),
        "{\"id\":\"a\",\"value\":\"1\"}\n".to_owned() + &long + "{\"end\":true}\n",
    )
    .unwrap();
    let guarded = [
        "--write-tokens",
        &text("writers"),
        "--read-tokens",
        &text("writers"),
    ];
    let flags = ["entity", "--data", &text("data"), "--max-value", "2048"];
    let server = Server::start(&[&flags[..], &guarded].concat());
    let url = server.url("");
    for (words, code, part) in [
        (&["export", &url][..], 1, "401"),
        (&["export", &url, "--token-file", &text("writers")], 0, ""),
        (&["import", &url, &text("lines")], 1, "--token-file"),
        (
            &[
                "import",
                &url,
                &text("lines"),
                "--token-file",
                &text("writers"),
            ],
            1,
            "line 2 is not imported, 1 other",
        ),
        (&["import", &url, &text("none")], 2, "cannot be read"),
        (&["export", &text("mistyped")], 1, "no data directory"),
        (
            &["export", &text("data"), "--token-file", &text("writers")],
            2,
            "URL",
        ),
        (
            &["export", "https://127.0.0.1:1"],
            1,
            "cannot be connected to",
        ),
        (&["export", &url, "--ca", &text("writers")], 2, "https://"),
        (&["import", &text("data"), "--ca", "x"], 2, "https://"),
        (&["export", "http://127.0.0.1:1/?a=b"], 2, "query"),
    ] {
        let finished = run(&mut millpond(&[&["entity"][..], words].concat()));
        assert_eq!(finished.code(), code, "{words:?}: {finished:?}");
        assert!(finished.stderr.contains(part), "{words:?}: {finished:?}");
    }
    let field = "Authorization: Bearer writer-0123456789";
    assert_eq!(curl(&["-H", field, &server.url("/v0/entity?id=a")]).0, 200);
}

/// Goal: of a directory whose table is damaged the rest is exported, with status 1 and a line about what is skipped;
/// the lines can be imported.
#[test]
fn damage_is_skipped_and_told() {
    let home = tempfile::tempdir().unwrap();
    let text = |name: &str| home.path().join(name).display().to_string();
    // Without the long one, which lies in parts behind all others.
    let lines: Vec<_> = many_lines()
        .lines()
        .filter(|line| !line.contains("id_base64"))
        .map(|line| line.to_owned() + "\n")
        .collect();
    fs::write(text("lines"), lines.concat()).unwrap();
    for words in [
        &["entity", "import", &text("data"), &text("lines")][..],
        &["entity", "compact", "--data", &text("data")],
    ] {
        assert_eq!(run(&mut millpond(words)).code(), 0, "{words:?}");
    }
    let tables = fs::read_dir(text("data"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let table = tables
        .filter(|path| path.extension().is_some_and(|kind| kind == "sst"))
        .max_by_key(|path| path.metadata().unwrap().len());
    let table = table.unwrap();
    let mut bytes = fs::read(&table).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    fs::write(&table, bytes).unwrap();
    let finished = run(&mut millpond(&[
        "entity",
        "export",
        &text("data"),
        "--output",
        &text("rest"),
    ]));
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(
        finished.stderr.contains("skipped: entities from \"user:"),
        "{finished:?}"
    );
    assert!(finished.stderr.contains("(skipped: 1)"), "{finished:?}");
    let rest = fs::read_to_string(text("rest")).unwrap();
    assert!(rest.ends_with("{\"end\":true,\"skipped\":1}\n"));
    assert!((1300..1501).contains(&rest.lines().count()));
    let finished = run(&mut millpond(&[
        "entity",
        "import",
        &text("again"),
        &text("rest"),
    ]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert!(finished.stderr.contains("(skipped: 1)"), "{finished:?}");
}

/// Goal: exports and imports speak TLS, and trust only the named authorities.
#[test]
fn servers_are_reached_by_https() {
    let files = Files::new();
    let authority = files.text("server.crt");
    let at = |name: &str| files.text(name);
    fs::write(at("lines"), many_lines()).unwrap();
    let server = files.serve(&["server"], &["entity", "--data", &at("data")]);
    let url = https(&server, "");
    let finished = run(&mut millpond(&[
        "entity",
        "import",
        &url,
        &at("lines"),
        "--ca",
        &authority,
    ]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    let finished = run(&mut millpond(&[
        "entity",
        "export",
        &url,
        "--ca",
        &authority,
        "--output",
        &at("export"),
    ]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    let exported = fs::read_to_string(at("export")).unwrap();
    assert_eq!(exported.lines().count(), 1503);
    assert!(exported.len() > 4_000_000);
    let other = Files::new().text("server.crt");
    fs::copy(files.text("server.key"), at("no.crt")).unwrap();
    for (words, part) in [
        (&["export", &url][..], "--ca"),
        (&["import", &url, &at("lines")], "--ca"),
        (&["export", &url, "--ca", &other], "cannot read"),
        (&["export", &url, "--ca", &at("no.crt")], "no certificate"),
    ] {
        let finished = run(&mut millpond(&[&["entity"][..], words].concat()));
        assert_eq!(finished.code(), 1, "{words:?}: {finished:?}");
        assert!(finished.stderr.contains(part), "{words:?}: {finished:?}");
    }
}

/// A server that gives each connection the next of these responses and closes it; its address, and what it was asked for.
fn answers_of(answers: Vec<String>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, asked) = channel();
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            sender
                .send(head.split(' ').nth(1).unwrap().to_owned())
                .unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (url, asked)
}

const LINES: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n";
const FULL: &str = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 5\r\n\r\nfull\n";

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// A connection that broke, or a server that stopped, ended the export of millions of entities.
///
/// Goal: an export that is cut goes on behind the last whole line, each entity once, and reports that.
#[test]
fn a_cut_export_goes_on() {
    let lines = [
        "{\"id\":\"a\",\"value\":\"1\"}\n",
        "{\"id\":\"b\\\"\\\\\",\"value\":\"2\"}\n",
        "{\"id_base64\":\"/wA=\",\"value\":\"3\"}\n",
        "{\"id_base64\":\"/wE=\",\"value\":\"4\"}\n",
    ];
    let end = "{\"end\":true}\n";
    let (url, asked) = answers_of(vec![
        format!(
            "{LINES}{}{}",
            chunk(lines[0]),
            chunk(&(lines[1].to_owned() + "{\"id\":\"c"))
        ),
        FULL.to_owned(),
        format!("{LINES}{}", chunk(lines[2])),
        format!("{LINES}{}0\r\n\r\n", chunk(&(lines[3].to_owned() + end))),
    ]);
    let finished = run(&mut millpond(&["entity", "export", &url]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert_eq!(finished.stdout, lines.concat() + end);
    let goes_on = finished.stderr.matches("goes on there").count();
    assert_eq!(goes_on, 3, "{finished:?}");
    let asked: Vec<String> = asked.iter().collect();
    for (asked, first) in asked.iter().zip([
        "start=%00",
        "after=b%22%5C",
        "after=b%22%5C",
        "after=%FF%00",
    ]) {
        assert!(asked.contains(&format!("?{first}&")), "{asked}");
    }
    assert_eq!(asked.len(), 4);
}

/// Goal: an export that gets no further ends with status 1 after a few tries.
#[test]
fn an_export_that_gets_no_further_ends() {
    let first = format!("{LINES}{}", chunk("{\"id\":\"a\",\"value\":\"1\"}\n"));
    let answers = std::iter::once(first).chain(std::iter::repeat_n(LINES.to_owned(), 9));
    let (url, asked) = answers_of(answers.collect());
    let finished = run(&mut millpond(&["entity", "export", &url]));
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(
        finished.stderr.contains("cut behind 1 entities"),
        "{finished:?}"
    );
    assert_eq!(asked.try_iter().count(), 6);
}

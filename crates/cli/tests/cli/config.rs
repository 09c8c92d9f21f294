//! `--config` and `millpond config`: files of servers, from the example to the running server.

use crate::support::{Running, curl, millpond, run};
use std::path::Path;

fn write(directory: &Path, text: &str) -> String {
    let file = directory.join("millpond.toml");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// Goal: a server does what its file says, a flag wins over it, and stderr says that there is a file.
#[test]
fn a_server_takes_its_file() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("hello.txt"), "hello").unwrap();
    let text = format!(
        "server = \"files\"\ndirectory = \"{}\"\nlisten = \"127.0.0.1:0\"\nshards = 2\n\
         driver = \"epoll\"\ncache-control = \"max-age=7\"\n",
        directory.path().display()
    );
    let file = write(directory.path(), &text);
    for (words, shards) in [
        (&["serve", "--config", &file][..], "2"),
        (&["serve", "files", "--config", &file, "--shards", "1"], "1"),
    ] {
        let mut process = Running::start(&mut millpond(words));
        let line = process.first_line();
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .unwrap()
            .to_owned();
        let (status, body) = curl(&[&format!("http://{address}/hello.txt")]);
        assert_eq!((status, body.as_slice()), (200, &b"hello"[..]));
        let (_, head) = curl(&["-I", &format!("http://{address}/hello.txt")]);
        assert!(String::from_utf8_lossy(&head).contains("max-age=7"));
        let (_, metrics) = curl(&[&format!("http://{address}/metrics")]);
        let metrics = String::from_utf8(metrics).unwrap();
        assert!(metrics.contains("driver=\"epoll\""), "{metrics}");
        assert!(
            metrics.contains(&format!("shards=\"{shards}\"")),
            "{metrics}"
        );
        process.signal("TERM");
        let finished = process.finish();
        assert_eq!(finished.code(), 0, "{finished:?}");
        assert!(
            finished.stderr.contains("millpond.toml has settings"),
            "{finished:?}"
        );
    }
}

/// Goal: a proxy's file has the server's settings beside its upstreams, and `check` shows both.
#[test]
fn a_proxy_takes_both_from_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let origin = crate::support::Server::start(&["plaintext"]);
    let text = format!(
        "server = \"proxy\"\nlisten = \"127.0.0.1:0\"\nshards = 1\nbalance = \"two-choices\"\n\
         [[upstream]]\naddress = \"{}\"\n",
        origin.address
    );
    let file = write(directory.path(), &text);
    let checked = run(&mut millpond(&["config", "check", &file]));
    assert_eq!(checked.code(), 0, "{checked:?}");
    for part in [
        "balance two-choices",
        &origin.address,
        "# line 3",
        "server = \"proxy\"",
    ] {
        assert!(checked.stdout.contains(part), "{part}: {checked:?}");
    }
    let mut process = Running::start(&mut millpond(&["proxy", "--config", &file]));
    let line = process.first_line();
    let address = line.trim().strip_prefix("listening on ").unwrap();
    let (status, body) = curl(&[&format!("http://{address}/plaintext")]);
    assert_eq!((status, body.as_slice()), (200, &b"Hello, World!"[..]));
    process.signal("TERM");
    assert_eq!(process.finish().code(), 0);
}

/// Goal: the example of every server passes its own check once what it needs is there, and what check
/// shows is a file that it shows again.
#[test]
fn examples_pass_their_own_check() {
    let directory = tempfile::tempdir().unwrap();
    for server in ["plaintext", "entity", "files", "proxy"] {
        let example = run(&mut millpond(&["config", "example", server]));
        assert_eq!(example.code(), 0, "{example:?}");
        let place = directory.path().display();
        let text = example
            .stdout
            .replace("# directory = \"DIR\"", &format!("directory = \"{place}\""))
            .replace("# max-connections = \"16384\"", "max-connections = 5");
        let file = write(directory.path(), &text);
        let checked = run(&mut millpond(&["config", "check", &file]));
        assert_eq!(checked.code(), 0, "{server}: {checked:?}");
        assert!(
            checked.stdout.contains("max-connections = \"5\""),
            "{checked:?}"
        );
        assert!(
            checked.stdout.contains("# listen = \"127.0.0.1:8080\""),
            "{checked:?}"
        );
        if server != "proxy" {
            let file = write(directory.path(), &checked.stdout);
            let again = run(&mut millpond(&["config", "check", &file]));
            assert_eq!(again.code(), 0, "{again:?}");
            let settings = |text: &str| -> Vec<String> {
                let lines = text.lines().filter(|line| !line.starts_with('#'));
                lines
                    .map(|line| line.split('#').next().unwrap().to_owned())
                    .collect()
            };
            assert_eq!(settings(&again.stdout), settings(&checked.stdout));
        }
    }
}

/// A file, the words in front of its name, where the fault is, and what it says too.
const FAULTS: &[(&str, &[&str], &str, &str)] = &[
    (
        "server = \"entity\"\n\nsync = \"maybe\"\n",
        &["config", "check"],
        ":3: sync: ",
        "interval:MS",
    ),
    (
        "server = \"entity\"\nsinc = \"off\"\n",
        &["config", "check"],
        ":2: sinc: ",
        "no such flag",
    ),
    ("listen = \"x\"\n", &["config", "check"], " ", "server = "),
    (
        "shards = 0\n",
        &["serve", "plaintext", "--config"],
        ":1: shards: ",
        "at least 1",
    ),
    (
        "server = \"entity\"\n",
        &["serve", "plaintext", "--config"],
        ":1: server: ",
        "serve entity",
    ),
    (
        "shards = \n",
        &["serve", "plaintext", "--config"],
        ":1: shards: ",
        "",
    ),
    (
        "shards = 0\n",
        &["proxy", "--config"],
        ":1: shards: ",
        "at least 1",
    ),
    (
        "server = \"proxy\"\ntrys = 0\n",
        &["config", "check"],
        ":2: trys: ",
        "retry-percent",
    ),
    (
        "server = \"proxy\"\n",
        &["config", "check"],
        " ",
        "[[upstream]]",
    ),
    (
        "server = \"files\"\n",
        &["config", "check"],
        ": <DIR> is missing",
        "config example files",
    ),
    (
        "server = \"files\"\ndirectory = \"/nowhere\"\n",
        &["config", "check"],
        ": ",
        "/nowhere",
    ),
];

/// Goal: what is wrong in a file ends with 2 and one line that begins with file, line and key, whichever command reads
/// it; nothing is started.
#[test]
fn faults_have_a_place() {
    let directory = tempfile::tempdir().unwrap();
    for (text, words, at, part) in FAULTS {
        let file = write(directory.path(), text);
        let finished = run(millpond(words).arg(&file));
        assert_eq!(finished.code(), 2, "{text}: {finished:?}");
        let sentence = finished.sentence();
        assert!(sentence.starts_with(&format!("{file}{at}")), "{sentence}");
        assert!(sentence.contains(part), "{sentence}");
        assert_eq!(finished.stdout, "");
    }
    let finished = run(&mut millpond(&[
        "serve",
        "plaintext",
        "--config",
        "absent.toml",
    ]));
    assert_eq!(finished.code(), 2);
    assert!(finished.sentence().contains("absent.toml"), "{finished:?}");
}

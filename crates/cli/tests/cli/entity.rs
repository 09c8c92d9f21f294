//! Upkeep of a data directory, as an operator does it.

use crate::support::{Running, Server, curl, eventually, millpond, peer, run};
use serde_json::Value;

/// Goal: what a server wrote is counted, checked, compacted and copied, and a server on the copy serves it; while a
/// server runs, and on anything else, each is one sentence and status 1.
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

/// Tokens could not be changed without a restart, and SIGHUP killed the server.
///
/// Goal: SIGHUP takes the new tokens for open connections too, and the old ones no more; an invalid or missing file
/// changes nothing and is reported.
#[test]
fn tokens_are_read_again() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name).display().to_string();
    let (data, writers) = (at("data"), at("writers"));
    std::fs::write(&writers, "first-0123456789").unwrap();
    let server = Server::start(&["entity", "--data", &data, "--write-tokens", &writers]);
    let url = server.url("/v0/entity?id=a");
    let put = |token: &str| {
        let field = format!("Authorization: Bearer {token}-0123456789");
        curl(&["-H", &field, "-X", "PUT", "--data-binary", "value", &url]).0
    };
    let hang_up = |told: &str, times: usize| {
        server.process.signal("HUP");
        eventually("what became of the tokens is told", || {
            server.process.stderr_so_far().matches(told).count() == times
        });
    };
    assert_eq!((put("first"), put("second")), (201, 401));
    std::fs::write(&writers, "second-0123456789").unwrap();
    assert_eq!((put("first"), put("second")), (201, 401));
    hang_up("the tokens were read again", 1);
    assert_eq!((put("first"), put("second")), (401, 201));
    std::fs::write(&writers, "short").unwrap();
    hang_up("the tokens stay as they are", 1);
    std::fs::remove_file(&writers).unwrap();
    hang_up("the tokens stay as they are", 2);
    assert_eq!((put("first"), put("second")), (401, 201));
    std::fs::write(&writers, "first-0123456789\nsecond-0123456789\n").unwrap();
    hang_up("the tokens were read again", 2);
    assert_eq!((put("first"), put("second")), (201, 201));
    assert!(!server.process.stderr_so_far().contains("0123456789"));
}

/// Goal: files of the server and the command belong to the user alone, whatever the umask is, except for sockets and
/// logs, which follow it; an existing directory keeps its mode.
#[test]
fn data_is_its_user_s_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name).display().to_string();
    let mode =
        |path: &std::path::Path| path.symlink_metadata().unwrap().permissions().mode() & 0o777;
    let of_all = |name: &str| {
        let entries = std::fs::read_dir(at(name)).unwrap().map(Result::unwrap);
        let modes: std::collections::BTreeSet<u32> =
            entries.map(|entry| mode(&entry.path())).collect();
        (
            mode(&home.path().join(name)),
            modes.into_iter().collect::<Vec<_>>(),
        )
    };
    std::fs::create_dir(at("checkpoints")).unwrap();
    std::fs::create_dir(at("mine")).unwrap();
    std::fs::set_permissions(at("mine"), std::fs::Permissions::from_mode(0o755)).unwrap();
    for (data, expected) in [("data", 0o700), ("mine", 0o755)] {
        let (path, log, checkpoints) = (at(data), at(&format!("{data}.log")), at("checkpoints"));
        let server = Server::start(&[
            "entity",
            "--data",
            &path,
            "--checkpoints",
            &checkpoints,
            "--access-log",
            &log,
        ]);
        let url = server.url("/v0/entity?id=a");
        assert_eq!(curl(&["-X", "PUT", "--data-binary", "value", &url]).0, 201);
        let checkpoint = server.url(&format!("/v0/admin/checkpoint?name={data}"));
        assert_eq!(curl(&["-X", "PUT", &checkpoint]).0, 201);
        server.process.signal("TERM");
        assert_eq!(server.process.finish().code(), 0);
        assert_eq!(of_all(data), (expected, vec![0o600]));
        assert_eq!(of_all(&format!("checkpoints/{data}")), (0o700, vec![0o600]));
        assert_eq!(mode(std::path::Path::new(&log)), 0o640);
    }
    let backup = at("backup");
    assert_eq!(
        run(&mut millpond(&[
            "entity",
            "backup",
            "--data",
            &at("data"),
            &backup
        ]))
        .code(),
        0
    );
    assert_eq!(of_all("backup"), (0o700, vec![0o600]));
    let socket = home.path().join("socket");
    let listen = format!("unix:{}", socket.display());
    let running = Running::start(&mut millpond(&[
        "serve",
        "entity",
        "--data",
        &at("data"),
        "--listen",
        &listen,
    ]));
    eventually("the socket is there", || {
        running.stderr_so_far().contains("listening") || socket.exists()
    });
    eventually("its mode follows the umask", || mode(&socket) == 0o755);
}

/// Goal: a web page whose own name resolves to this machine gets nothing; addresses, localhost and the given names are
/// served.
#[test]
fn other_names_are_not_served() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data").display().to_string();
    let server = Server::start(&[
        "entity",
        "--data",
        &data,
        "--allowed-hosts",
        "store.example,.internal",
    ]);
    let ask = |host: &str, path: &str, words: &[&str]| {
        let field = format!("Host: {host}");
        curl(&[&["-H", &field][..], words, &[&server.url(path)]].concat()).0
    };
    let put = ["-X", "PUT", "--data-binary", "value"];
    for (host, expected) in [
        ("evil.example", 421),
        ("evil.example:8080", 421),
        ("localhost:8080", 201),
        ("store.example", 201),
        ("a.internal:80", 201),
    ] {
        assert_eq!(ask(host, "/v0/entity?id=a", &put), expected, "{host}");
    }
    assert_eq!(ask("evil.example", "/v0/entities?start=a", &[]), 421);
    assert_eq!(ask("evil.example", "/v0/status", &[]), 421);
    assert_ne!(ask("evil.example", "/metrics", &[]), 200);
    assert_eq!(ask("127.0.0.1", "/v0/entity?id=a", &[]), 200);
    let words = [
        "serve",
        "entity",
        "--data",
        &data,
        "--allowed-hosts",
        "http://a",
    ];
    let finished = run(&mut millpond(&words));
    assert_eq!(finished.code(), 2);
    assert!(finished.stderr.contains("--allowed-hosts"), "{finished:?}");
}

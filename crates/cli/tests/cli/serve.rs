//! The servers as processes: start, other people's clients, signals, faults.

use crate::load::metric;
use crate::support::{Running, Server, Wrk, curl, eventually, free_port, millpond, peer, run};
use serde_json::Value;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Goal: curl gets its response, and each of the two signals ends the server with 0 and its record.
#[test]
fn a_server_answers_and_stops_on_a_signal() {
    let directory = tempfile::tempdir().unwrap();
    for signal in ["TERM", "INT"] {
        let record = directory.path().join(signal);
        let server = Server::start(&["plaintext", "--json", &record.display().to_string()]);
        assert_eq!(
            curl(&[&server.url("/plaintext")]),
            (200, b"Hello, World!".to_vec())
        );
        assert_eq!(curl(&[&server.url("/absent")]).0, 404);
        server.process.signal(signal);
        let finished = server.process.finish();
        assert_eq!(finished.code(), 0, "{finished:?}");
        let record = std::fs::read(&record).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        assert_eq!(
            (&record["requests"], &record["aborted"]),
            (&2.into(), &false.into())
        );
    }
}

/// Goal: SIGUSR1 prints the pools' books and changes nothing else.
#[test]
fn sigusr1_prints_the_accounting() {
    let server = Server::start(&["plaintext"]);
    server.process.signal("USR1");
    assert_eq!(curl(&[&server.url("/")]).0, 200);
    server.process.signal("TERM");
    let finished = server.process.finish();
    assert_eq!(finished.code(), 0);
    assert!(
        finished.stderr.contains("reserved = live + cached + waste"),
        "{finished:?}"
    );
}

/// Goal: the other load generators see a correct server in every mode of the pools.
#[test]
fn wrk_and_ab_see_no_errors() {
    for pools in ["on", "off", "arena-only", "checked", "checked,guard"] {
        let server = Server::start(&["plaintext", "--pools", pools]);
        let url = server.url("/plaintext");
        let wrk = Wrk::start("16", &url);
        eventually("requests", || {
            metric(&server, "millpond_http_requests_total") >= 5_000.0
        });
        wrk.finish();
        let ab = peer("ab", &["-q", "-k", "-n", "2000", "-c", "16", &url]);
        let text = String::from_utf8_lossy(&ab.stdout).into_owned();
        let failed = text
            .lines()
            .find_map(|line| line.strip_prefix("Failed requests:"));
        assert_eq!(failed.map(str::trim), Some("0"), "{text}");
        assert!(!text.contains("Non-2xx"), "{text}");
    }
}

/// Goal: acknowledged writes are there after the server was stopped and started again.
#[test]
fn an_entity_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data").display().to_string();
    let words = ["entity", "--data", &data];
    let server = Server::start(&words);
    let url = server.url("/v0/entity?id=a%00b");
    assert_eq!(curl(&["-X", "PUT", "--data-binary", "value", &url]).0, 201);
    assert_eq!(curl(&[&server.url("/v0/status")]).0, 200);
    server.process.signal("TERM");
    let finished = server.process.finish();
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert!(
        finished.stderr.contains("rocksdb"),
        "the engine is named: {finished:?}"
    );

    let server = Server::start(&words);
    let url = server.url("/v0/entity?id=a%00b");
    assert_eq!(curl(&[&url]), (200, b"value".to_vec()));
    assert_eq!(curl(&["-X", "DELETE", &url]).0, 202);
    assert_eq!(curl(&[&url]).0, 404);
    assert_eq!(curl(&[&server.url("/v0/entity?id=")]).0, 400);
    // Two servers on one directory would each undo what the other wrote.
    let second = run(millpond(&[
        "serve",
        "entity",
        "--listen",
        "127.0.0.1:0",
        "--data",
        &data,
    ])
    .env("RUST_BACKTRACE", "0"));
    assert_eq!(second.code(), 1, "{second:?}");
    assert!(second.sentence().contains(&data), "{second:?}");
    server.process.signal("TERM");
    assert_eq!(server.process.finish().code(), 0);
}

/// Goal: a server that may open fewer files than its connections take says with how many it would be
/// well; one that has enough says nothing.
#[test]
fn too_few_descriptors_are_told_at_the_start() {
    let script = "ulimit -n 300; exec \"$0\" \"$@\"";
    for (connections, told) in [("1000", Some("ulimit -n 1374")), ("100", None)] {
        let mut command = Command::new("bash");
        command.args(["-c", script, env!("CARGO_BIN_EXE_millpond")]);
        command.args(["serve", "plaintext", "--listen", "127.0.0.1:0"]);
        command.args(["--shards", "1", "--max-connections", connections]);
        let mut server = Running::start(&mut command);
        assert!(server.first_line().starts_with("listening on"));
        server.signal("TERM");
        let finished = server.finish();
        assert_eq!(finished.code(), 0, "{finished:?}");
        match told {
            Some(told) => assert!(finished.stderr.contains(told), "{finished:?}"),
            None => assert!(!finished.stderr.contains("ulimit"), "{finished:?}"),
        }
    }
}

/// Goal: a taken port is one sentence with the address in it.
#[test]
fn a_taken_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let finished = run(&mut millpond(&["serve", "plaintext", "--listen", &address]));
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.sentence().contains(&address), "{finished:?}");
    assert_eq!(finished.stdout, "");
}

/// Goal: a data directory that cannot be made is one sentence with the path in it.
#[test]
fn a_data_directory_without_a_parent_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("absent/data");
    let words = ["serve", "entity", "--listen", "127.0.0.1:0", "--data"];
    let finished = run(millpond(&words).arg(&data));
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.sentence().contains("absent"), "{finished:?}");
    assert!(!data.exists());
}

/// Goal: a server that was killed can be started again at once, whatever the kernel still keeps of it.
#[test]
fn a_killed_server_is_started_again_at_once() {
    for driver in ["auto", "epoll"] {
        let listen = format!("127.0.0.1:{}", free_port());
        for _ in 0..5 {
            let words = ["serve", "plaintext", "--shards", "2", "--driver", driver];
            let mut process = Running::start(millpond(&words).args(["--listen", &listen]));
            let line = process.first_line();
            if line.trim().strip_prefix("listening on ") != Some(&*listen) {
                panic!("{listen}: {:?}", process.finish());
            }
            process.signal("KILL");
            assert!(!process.finish().status.success());
        }
    }
}

/// Goal: under valgrind, which does not follow io_uring, a server chooses epoll by itself, responds and stops. With a
/// ring it hung there.
#[test]
fn valgrind_is_served_by_epoll() {
    let mut valgrind = Command::new("valgrind");
    if valgrind.arg("--version").output().is_err() {
        eprintln!("skipped: valgrind is not installed; scripts/setup installs it");
        return;
    }
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=none", env!("CARGO_BIN_EXE_millpond")]);
    command.args([
        "serve",
        "plaintext",
        "--shards",
        "1",
        "--listen",
        "127.0.0.1:0",
    ]);
    let mut process = Running::start(&mut command);
    let line = process.first_line();
    let address = line.trim().strip_prefix("listening on ");
    let Some(address) = address.map(str::to_owned) else {
        panic!("{line}: {:?}", process.finish())
    };
    let (status, body) = curl(&[&format!("http://{address}/metrics")]);
    assert_eq!(status, 200);
    let metrics = String::from_utf8(body).unwrap();
    assert!(metrics.contains("driver=\"epoll\""), "{metrics}");
    process.signal("TERM");
    let finished = process.finish();
    assert!(finished.status.success(), "{finished:?}");
}

/// Goal: a unix socket serves every client that can use one, only its owner may use it if the umask
/// says so, a file left behind by a dead server is no obstacle, and a stop removes it.
#[test]
fn a_unix_socket_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pond.sock");
    let listen = format!("unix:{}", path.display());
    for driver in ["auto", "epoll"] {
        let words = ["serve", "plaintext", "--listen", &listen, "--shards", "2"];
        let serve = format!("umask 077 && exec \"$0\" \"$@\" --driver {driver}");
        let mut command = Command::new("sh");
        command
            .args(["-c", &serve, env!("CARGO_BIN_EXE_millpond")])
            .args(words);
        let mut process = Running::start(&mut command);
        assert_eq!(process.first_line(), format!("listening on {listen}\n"));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
        let socket = path.display().to_string();
        let ask = ["--unix-socket", &socket, "http://pond/plaintext"];
        assert_eq!(curl(&ask), (200, b"Hello, World!".to_vec()));
        let metrics = curl(&["--unix-socket", &socket, "http://pond/metrics"]).1;
        assert!(
            String::from_utf8(metrics)
                .unwrap()
                .contains("millpond_http_requests_total")
        );

        let finished = run(&mut millpond(&words));
        assert_eq!(finished.code(), 1, "{finished:?}");
        assert!(finished.sentence().contains("is taken"), "{finished:?}");
        assert_eq!(
            curl(&ask).0,
            200,
            "refusing the second one harmed the first"
        );

        process.signal("KILL");
        assert!(!process.finish().status.success());
        assert!(path.exists(), "nobody was left to remove it");
    }
    let mut server = Running::start(&mut millpond(&["serve", "plaintext", "--listen", &listen]));
    assert_eq!(server.first_line(), format!("listening on {listen}\n"));
    server.signal("TERM");
    assert_eq!(server.finish().code(), 0);
    assert!(!path.exists());
}

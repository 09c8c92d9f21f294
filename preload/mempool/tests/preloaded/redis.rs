//! Redis, which on Debian links jemalloc: the preloaded object must still come before it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{
    Running, demand_bound, demand_mapped, eventually, find_program, preloaded, run,
};

/// One command in Redis's inline form, and the first line of the response.
fn ask(socket: &Path, command: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("redis listens");
    stream
        .write_all(format!("{command}\r\n").as_bytes())
        .expect("redis reads");
    let mut line = String::new();
    BufReader::new(stream)
        .read_line(&mut line)
        .expect("redis answers");
    line.trim_end().to_owned()
}

/// A socket in its directory, so that no other program has it.
fn start(redis: &Path, directory: &Path, socket: &Path) -> Running {
    let child = preloaded(redis)
        .args(["--port", "0", "--save", "", "--dir"])
        .arg(directory)
        .arg("--unixsocket")
        .arg(socket)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis starts");
    let server = Running(child);
    eventually("redis listens", || UnixStream::connect(socket).is_ok());
    demand_mapped(server.0.id());
    server
}

fn end(server: Running, socket: &Path) {
    let mut stream = UnixStream::connect(socket).expect("redis listens");
    stream
        .write_all(b"SHUTDOWN NOSAVE\r\n")
        .expect("redis reads");
    server.expect_end();
}

/// Goal: SET and GET of all sizes from redis-benchmark, values that come back whole, a snapshot by
/// a forked child that loads again, big deletes on a background thread; served by the object, not by jemalloc.
#[test]
fn redis_serves_the_benchmark() {
    let (Some(redis), Some(benchmark)) = (
        find_program("redis-server"),
        find_program("redis-benchmark"),
    ) else {
        return;
    };
    demand_bound(&redis, &["--version"]);
    let directory = tempfile::tempdir().unwrap();
    let socket = &directory.path().join("socket");
    let server = start(&redis, directory.path(), socket);
    for value_bytes in [3, 100, 1000, 5000, 30_000, 200_000] {
        let requests = (30_000_000 / value_bytes).clamp(150, 20_000).to_string();
        let output = run(Command::new(&benchmark)
            .arg("-s")
            .arg(socket)
            .args(["-q", "-t", "set,get,hset", "-r", "3000", "-n", &requests])
            .args(["-d", &value_bytes.to_string()]))
        .expect_ok();
        assert!(
            output.contains("SET:") && output.contains("GET:"),
            "{output}"
        );
    }
    // More than one size per key: a block is replaced by one of another class each time.
    for value_bytes in 1..400_usize {
        let value = "x".repeat(value_bytes * 37 % 9000 + 1);
        assert_eq!(ask(socket, &format!("SET grows {value}")), "+OK");
        assert_eq!(ask(socket, "STRLEN grows"), format!(":{}", value.len()));
    }
    assert!(ask(socket, "BGSAVE").starts_with("+Background saving"));
    let snapshot = directory.path().join("dump.rdb");
    eventually("the snapshot is written", || snapshot.exists());
    let key_count = ask(socket, "DBSIZE");
    assert_eq!(ask(socket, "FLUSHALL ASYNC"), "+OK");
    assert_eq!(ask(socket, "DBSIZE"), ":0");
    end(server, socket);
    let again = start(&redis, directory.path(), socket);
    eventually("redis loads the snapshot", || {
        ask(socket, "DBSIZE") == key_count
    });
    end(again, socket);
}

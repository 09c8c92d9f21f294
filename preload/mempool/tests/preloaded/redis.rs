//! Redis, which on Debian links jemalloc: the preloaded object must come before it all the same.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{
    Running, demand_bound, demand_mapped, eventually, find_program, free_port, preloaded, run,
};

/// One command in Redis's inline form, and the first line of the answer.
fn ask(port: u16, command: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("redis listens");
    stream
        .write_all(format!("{command}\r\n").as_bytes())
        .expect("redis reads");
    let mut line = String::new();
    BufReader::new(stream)
        .read_line(&mut line)
        .expect("redis answers");
    line.trim_end().to_owned()
}

fn start(redis: &Path, directory: &Path, port: u16) -> Running {
    let port_word = port.to_string();
    let child = preloaded(redis)
        .args([
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--port",
            &port_word,
            "--dir",
        ])
        .arg(directory)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis starts");
    let server = Running(child);
    eventually("redis listens", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    demand_mapped(server.0.id());
    server
}

fn end(server: Running, port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("redis listens");
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
    let port = free_port();
    let server = start(&redis, directory.path(), port);
    for value_bytes in [3, 100, 1000, 5000, 30_000, 200_000] {
        let requests = (30_000_000 / value_bytes).clamp(150, 20_000).to_string();
        let output = run(Command::new(&benchmark)
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-q"])
            .args(["-t", "set,get,hset", "-r", "3000", "-n", &requests])
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
        assert_eq!(ask(port, &format!("SET grows {value}")), "+OK");
        assert_eq!(ask(port, "STRLEN grows"), format!(":{}", value.len()));
    }
    assert!(ask(port, "BGSAVE").starts_with("+Background saving"));
    let snapshot = directory.path().join("dump.rdb");
    eventually("the snapshot is written", || snapshot.exists());
    let key_count = ask(port, "DBSIZE");
    assert_eq!(ask(port, "FLUSHALL ASYNC"), "+OK");
    assert_eq!(ask(port, "DBSIZE"), ":0");
    end(server, port);
    let again = start(&redis, directory.path(), port);
    eventually("redis loads the snapshot", || {
        ask(port, "DBSIZE") == key_count
    });
    end(again, port);
}

//! The generator's verdict on itself, and the exit status that follows.

use crate::support::{Finished, Running, Server, eventually, millpond, run};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

fn record(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// One whole request, or the end of the connection.
fn read_request(stream: &mut TcpStream) -> bool {
    read_head(stream).is_some()
}

fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    String::from_utf8(head).ok()
}

fn answer(stream: &mut TcpStream, status: &str) {
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok");
    // The generator may have ended.
    let _ = stream.write_all(text.as_bytes());
}

fn signal(pid: u32, name: &str) {
    let words = [format!("-{name}"), pid.to_string()];
    assert!(Command::new("kill").args(words).status().unwrap().success());
}

/// One thread takes the signal and stops the others, each when it next could run: until then they may
/// take the response and send the next request.
fn wait_until_stopped(pid: u32) {
    let is_stopped = || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        threads.flatten().all(|thread| {
            let status = std::fs::read_to_string(thread.path().join("status"));
            status.is_ok_and(|text| text.contains("State:\tT"))
        })
    };
    eventually("it stands still", is_stopped);
}

/// Responds to ten requests of one connection; the last response is sent while the requesting process is stopped.
/// Returns how long it was stopped: longer than all before took.
fn serve_and_stop(listener: &TcpListener, pid: &Receiver<u32>) -> Duration {
    let begun = Instant::now();
    let (mut stream, _) = listener.accept().unwrap();
    let pid = pid.recv().unwrap();
    for _ in 0..9 {
        assert!(read_request(&mut stream));
        answer(&mut stream, "200 OK");
    }
    assert!(read_request(&mut stream));
    signal(pid, "STOP");
    wait_until_stopped(pid);
    answer(&mut stream, "200 OK");
    let stopped = begun.elapsed() + Duration::from_millis(200);
    std::thread::sleep(stopped);
    signal(pid, "CONT");
    // Until the generator hangs up: the end of this stream would join what it has not read yet, and the
    // kernel's stamp of that would be of the end.
    assert!(!read_request(&mut stream), "ten were asked for");
    stopped
}

/// Goal: a generator that does not get the CPU shows wake delay, and the server's own time, as the
/// kernel saw it, does not grow by it.
#[test]
fn a_starved_generator_is_no_slow_server() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (sender, pid) = channel();
    let server = std::thread::spawn(move || serve_and_stop(&listener, &pid));
    let words = [
        "load",
        "-c",
        "1",
        "--requests",
        "10",
        "--timeout",
        "10m",
        "--json",
    ];
    let load = Running::start(millpond(&words).arg(&file).arg(&url));
    sender.send(load.pid()).unwrap();
    let finished = load.finish();
    let stopped_ns = server.join().unwrap().as_nanos() as u64;
    let record = record(&file);
    assert_eq!(record["requests"], 10, "{finished:?}");
    let max = |clock: &str| record[clock]["max"].as_u64().unwrap();
    assert!(max("service_ns") >= stopped_ns, "{record}");
    if record["wake_delay_ns"].is_null() {
        // A kernel without stamps: then that is what has to be said.
        assert!(
            finished.stderr.contains("wake delay is unknown"),
            "{finished:?}"
        );
        return;
    }
    assert!(max("wake_delay_ns") >= stopped_ns * 9 / 10, "{record}");
    assert!(max("kernel_service_ns") < stopped_ns, "{record}");
    assert!(finished.stdout.contains("Wake"), "{finished:?}");
}

/// A server that responds to everything with this status, on any number of connections.
fn server_of(status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                while read_request(&mut stream) {
                    answer(&mut stream, status);
                }
            });
        }
    });
    url
}

fn load(words: &[&str], url: &str) -> Finished {
    run(millpond(&["load", "-c", "2", "--requests", "20"])
        .args(words)
        .arg(url))
}

/// Goal: ab's and wrk's own words are understood: a count, a method, a type, a connection for each
/// request, a version.
#[test]
fn words_of_other_generators_are_understood() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        for _ in 0..5 {
            let (mut stream, _) = listener.accept().unwrap();
            let head = read_head(&mut stream).unwrap();
            assert!(head.starts_with("POST / HTTP/1.1\r\n"), "{head}");
            assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
            assert!(head.contains("\r\nContent-Type: text/csv\r\n"), "{head}");
            // It would keep the connection: closing it is the client's decision.
            let text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(text.as_bytes()).unwrap();
            let mut more = Vec::new();
            stream.read_to_end(&mut more).unwrap();
            assert_eq!(more, b"");
        }
    });
    let words = [
        "load",
        "-c",
        "1",
        "-n",
        "5",
        "-m",
        "POST",
        "--no-keepalive",
        "-B",
    ];
    let more = ["--content-type", "text/csv", "--json"];
    let finished = run(millpond(&words).args(more).arg(&file).arg(&url));
    server.join().unwrap();
    assert_eq!(record(&file)["requests"], 5, "{finished:?}");
    assert!(finished.stdout.contains("    Batch  "), "{finished:?}");
    let version = run(&mut millpond(&["load", "-v"]));
    assert_eq!(version.code(), 0);
    assert!(version.stdout.contains("[epoll, io_uring]"), "{version:?}");
    let wrong = run(&mut millpond(&[
        "load",
        "--no-keepalive",
        "--pipeline",
        "2",
        &url,
    ]));
    assert_eq!(wrong.code(), 2, "{wrong:?}");
}

/// A whole run ended with this status; where the hypervisor took the machine away meanwhile, with 4.
fn assert_ended(finished: &Finished, code: i32) {
    // In the words of the verdict, wherever its lines end.
    let said: Vec<&str> = finished.stdout.split_whitespace().collect();
    let is_machine = finished.code() == 4 && said.join(" ").contains("hypervisor withheld");
    assert!(finished.code() == code || is_machine, "{finished:?}");
}

/// Goal: the exit status reports to a script what happened, one for each kind of end.
#[test]
fn exit_statuses_tell_the_truth() {
    let good = server_of("200 OK");
    assert_ended(&load(&[], &good), 0);
    let failing = load(&[], &server_of("500 No"));
    assert_eq!(failing.code(), 1, "all failed: {failing:?}");
    assert!(
        failing.stderr.contains("all 20 requests failed"),
        "{failing:?}"
    );
    assert_eq!(load(&["-c", "none"], &good).code(), 2, "wrong usage");
    let objective = ["--slo", "p50<1ns"];
    assert_ended(&load(&objective, &good), 3);
    // One connection cannot offer that: the rate was missed, and the run says so.
    let rushed = run(millpond(&["load", "-c", "1", "-R", "5M", "-d", "2ms"]).arg(&good));
    assert_eq!(rushed.code(), 4, "not to be trusted: {rushed:?}");
    let refused = server_of("503 No");
    let words = [
        "load",
        "-c",
        "2",
        "-R",
        "50",
        "-d",
        "60s",
        "--abort",
        "errors>5%",
    ];
    let aborted = run(millpond(&words).args(["--abort-over", "1s"]).arg(&refused));
    assert_eq!(aborted.code(), 5, "{aborted:?}");
    assert!(
        aborted.stderr.contains("aborted: errors > 5 %"),
        "{aborted:?}"
    );
    // Unreachable and interrupted: see the tests of the load generator and of the search.
    let server = Server::start(&["plaintext"]);
    let stamps = load(
        &["--driver", "epoll", "--receive-stamps", "off"],
        &server.url("/"),
    );
    assert_ended(&stamps, 0);
    assert!(!stamps.stderr.contains("wake delay"), "{stamps:?}");
}

//! Certificates as files: wrong ones, and those that are read again.

use super::{Files, GET_AND_CLOSE, https, s_client, stop};
use crate::support::{Server, eventually, millpond, run};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// The serial number of the certificate that a new connection gets.
fn serial(server: &Server) -> String {
    let text = s_client(server, &[], GET_AND_CLOSE);
    let (_, pem) = text
        .split_once("-----BEGIN CERTIFICATE-----")
        .unwrap_or_else(|| panic!("{text}"));
    pem.split_once("-----END").unwrap().0.to_owned()
}

/// Goal: SIGHUP gives new connections the new certificate while an open one goes on, and the access log a new file; a
/// wrong certificate changes nothing and is reported in one line.
#[test]
fn sighup_reads_the_certificates_again() {
    let files = Files::new();
    let log = files.text("access.log");
    let server = files.serve(&["server"], &["plaintext", "--access-log", &log]);
    let mut open = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &server.address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut said, mut heard) = (open.stdin.take().unwrap(), open.stdout.take().unwrap());
    let mut exchange = || {
        said.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"Hello, World!") {
            let mut part = [0; 512];
            let count = heard.read(&mut part).unwrap();
            assert!(count > 0, "{answer:?}");
            answer.extend_from_slice(&part[..count]);
        }
    };
    exchange();
    let first = serial(&server);
    assert_eq!(serial(&server), first);

    files.make("server", &["localhost", "127.0.0.1"], 2100);
    assert_eq!(serial(&server), first, "not before it is told to");
    let entries = |path: &str| fs::read_to_string(path).unwrap_or_default().lines().count();
    let old_log = files.text("access.log.1");
    fs::rename(&log, &old_log).unwrap();
    server.process.signal("HUP");
    eventually("the new certificate", || serial(&server) != first);
    eventually("the new log", || Path::new(&log).exists());
    let second = serial(&server);
    assert_eq!(files.curl(&[&https(&server, "/")]).0, 200);
    exchange();

    fs::write(files.path("server.key"), "no key\n").unwrap();
    server.process.signal("HUP");
    // The next signal is handled after this one.
    server.process.signal("USR1");
    assert_eq!(serial(&server), second);
    exchange();
    drop((said, heard));
    open.kill().unwrap();
    open.wait().unwrap();
    let finished = stop(server);
    // One signal is for both: the log continued in a file of the old name. Either may have got the lines written at
    // that moment; five requests were made since, and at least four before.
    let (old_entries, new_entries) = (entries(&old_log), entries(&log));
    assert!(
        new_entries >= 5 && old_entries + new_entries >= 9,
        "{old_entries} and {new_entries}"
    );
    let lines = |part: &str| {
        finished
            .stderr
            .lines()
            .filter(|line| line.contains(part))
            .count()
    };
    assert_eq!(lines("read the certificates again"), 1, "{finished:?}");
    assert_eq!(
        lines("the certificates stay as they were"),
        1,
        "{finished:?}"
    );
    assert_eq!(lines("server.key has no private key"), 1, "{finished:?}");
}

/// Goal: mistakes on the command line are one sentence that names the file, before anything listens;
/// an expired certificate is served with a warning.
#[test]
fn wrong_files_are_named() {
    let files = Files::new();
    files.make("other", &["other.test"], 2100);
    files.make("old", &["localhost"], 2020);
    fs::write(files.path("empty"), "").unwrap();
    let start = |certificate: &str, key: &str| {
        let words = [
            "serve",
            "plaintext",
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            certificate,
            "--tls-key",
            key,
        ];
        run(millpond(&words).current_dir(Path::new(files.directory.path())))
    };
    for (certificate, key, parts) in [
        ("absent", "server.key", ["cannot read", "absent"]),
        ("empty", "server.key", ["empty", "BEGIN CERTIFICATE"]),
        ("server.crt", "empty", ["empty", "no private key"]),
        ("server.crt", "other.key", ["other.key", "server.crt"]),
    ] {
        let finished = start(certificate, key);
        assert_eq!(finished.code(), 1, "{finished:?}");
        assert!(
            parts.iter().all(|part| finished.sentence().contains(part)),
            "{finished:?}"
        );
        assert_eq!(finished.stdout, "");
    }
    let half = run(&mut millpond(&["serve", "plaintext", "--tls-cert", "a"]));
    assert_eq!(half.code(), 2, "{half:?}");

    let server = files.serve(&["old"], &["plaintext"]);
    let finished = stop(server);
    assert!(
        finished.stderr.contains("expired on 2020-01-01"),
        "{finished:?}"
    );
}

//! `millpond serve files` as a process, with curl and ab as its clients.

use crate::support::{Server, curl, millpond, peer, run};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

fn serve(root: &Path, more: &[&str]) -> Server {
    let root = root.display().to_string();
    Server::start(&[&["files", &root], more].concat())
}

fn kib_resident(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

fn descriptors(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.process.pid()))
        .unwrap()
        .count()
}

/// Goal: for curl, files, ranges, conditions and refusals are as with any web server.
#[test]
fn curl_gets_files_ranges_and_refusals() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("index.html"), "hello").unwrap();
    fs::write(root.join("ten"), "0123456789").unwrap();
    fs::write(home.path().join("secret"), "outside").unwrap();
    symlink("../secret", root.join("leak")).unwrap();
    let server = serve(&root, &["--cache-control", "max-age=60"]);
    let url = |path: &str| server.url(path);
    assert_eq!(curl(&[&url("/")]), (200, b"hello".to_vec()));
    assert_eq!(curl(&["-r", "2-4", &url("/ten")]), (206, b"234".to_vec()));
    assert_eq!(curl(&["-r", "-3", &url("/ten")]), (206, b"789".to_vec()));
    assert_eq!(curl(&["-r", "10-", &url("/ten")]).0, 416);
    assert_eq!(
        curl(&["-r", "0-0,2-2", &url("/ten")]),
        (200, b"0123456789".to_vec())
    );
    assert_eq!(curl(&["-C", "8", &url("/ten")]), (206, b"89".to_vec()));
    let saved = home.path().join("etag").display().to_string();
    assert_eq!(curl(&["--etag-save", &saved, &url("/ten")]).0, 200);
    assert_eq!(
        curl(&["--etag-compare", &saved, &url("/ten")]),
        (304, Vec::new())
    );
    let copy = root.join("ten").display().to_string();
    assert_eq!(curl(&["-z", &copy, &url("/ten")]).0, 304);
    let (status, head) = curl(&["-I", &url("/ten")]);
    let head = String::from_utf8(head).unwrap();
    assert_eq!(status, 200);
    for line in [
        "Content-Length: 10",
        "Cache-Control: max-age=60",
        "Accept-Ranges: bytes",
    ] {
        assert!(head.lines().any(|found| found == line), "{line} in {head}");
    }
    for (path, expected) in [
        ("/../secret", 400),
        ("/%2e%2e/secret", 400),
        ("/..%2fsecret", 400),
        ("//secret", 400),
        ("/leak", 404),
        ("/%252e%252e/secret", 404),
    ] {
        let (status, body) = curl(&["--path-as-is", &url(path)]);
        assert_eq!(status, expected, "{path}");
        assert!(
            !String::from_utf8_lossy(&body).contains("outside"),
            "{path}"
        );
    }
    assert_eq!(curl(&["-X", "DELETE", &url("/ten")]).0, 405);
    server.process.signal("TERM");
    let finished = server.process.finish();
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert!(finished.stderr.contains("root"), "{finished:?}");
}

/// Goal: a mistake that prevents serving is reported in one line, before anything listens.
#[test]
fn a_missing_directory_is_named() {
    for (words, part) in [
        (
            ["serve", "files", "/nonexistent-directory"],
            "/nonexistent-directory",
        ),
        (["serve", "files", "/dev/null"], "/dev/null"),
    ] {
        let finished = run(&mut millpond(&words));
        assert_eq!(finished.code(), 1, "{finished:?}");
        assert!(finished.sentence().contains(part), "{finished:?}");
    }
}

/// Goal: a quarter of a GiB out of a file of one GiB leaves the server's memory as it was.
#[test]
fn a_huge_file_takes_no_memory() {
    const PART_BYTES: u64 = 256 << 20;
    let home = tempfile::tempdir().unwrap();
    File::create(home.path().join("huge"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    let server = serve(home.path(), &[]);
    // The first response brings the pools, the code and the disk thread's stack.
    assert_eq!(
        curl(&["-r", "0-1048575", &server.url("/huge")]).1.len(),
        1 << 20
    );
    let before_kib = kib_resident(&server);
    let mut client = TcpStream::connect(&server.address).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let request = format!(
        "GET /huge HTTP/1.1\r\nHost: a\r\nConnection: close\r\nRange: bytes=0-{}\r\n\r\n",
        PART_BYTES - 1
    );
    client.write_all(request.as_bytes()).unwrap();
    let (mut received_bytes, mut most_kib) = (0, 0);
    let mut room = vec![0; 1 << 18];
    for turn in 0.. {
        let count = client.read(&mut room).unwrap();
        if count == 0 {
            break;
        }
        received_bytes += count as u64;
        if turn % 256 == 0 {
            most_kib = most_kib.max(kib_resident(&server));
        }
    }
    assert!(
        (PART_BYTES..PART_BYTES + 1024).contains(&received_bytes),
        "{received_bytes}"
    );
    assert!(
        most_kib <= before_kib + 1024,
        "{before_kib} KiB before, {most_kib} KiB at most"
    );
}

/// Goal: 10,000 openings, and clients that leave in the middle, leak no descriptor.
#[test]
fn descriptors_come_back() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("large"), vec![b'x'; 40 << 10]).unwrap();
    File::create(home.path().join("huge"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    let server = serve(home.path(), &[]);
    assert_eq!(curl(&[&server.url("/large")]).1.len(), 40 << 10);
    let before_count = descriptors(&server);
    let ab = peer(
        "ab",
        &["-q", "-k", "-n", "10000", "-c", "16", &server.url("/large")],
    );
    let text = String::from_utf8_lossy(&ab.stdout).into_owned();
    assert!(text.contains("Failed requests:        0"), "{text}");
    assert!(!text.contains("Non-2xx"), "{text}");
    for _ in 0..100 {
        let mut client = TcpStream::connect(&server.address).unwrap();
        client
            .write_all(b"GET /huge HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        client.read_exact(&mut [0; 1000]).unwrap();
    }
    let begin = Instant::now();
    while descriptors(&server) > before_count {
        let count = descriptors(&server);
        let is_patient = begin.elapsed() < Duration::from_secs(60);
        assert!(is_patient, "{count} descriptors, {before_count} before");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Goal: a small file is served from memory without a failure, with connections kept and not.
#[test]
fn ab_sees_no_failure() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("index.html"), "hello").unwrap();
    let server = serve(home.path(), &[]);
    for keep_alive in [&["-k"][..], &[]] {
        let words = [&["-q", "-n", "2000", "-c", "64"], keep_alive].concat();
        let ab = peer("ab", &[&words[..], &[&server.url("/index.html")]].concat());
        let text = String::from_utf8_lossy(&ab.stdout).into_owned();
        assert!(text.contains("Failed requests:        0"), "{text}");
        assert!(!text.contains("Non-2xx"), "{text}");
        assert!(text.contains("Document Length:        5 bytes"), "{text}");
    }
}

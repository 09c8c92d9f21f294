//! Files over real sockets: which files are served, and changes while they are.

mod outside;

use crate::support::{
    MODES, PATIENCE, RawClient, RawResponse, TestServer, config, pattern, pool_mode, wait_until,
};
use millpond_http::{Files, FilesConfig, Limits, Site};
use millpond_mempool::PoolMode;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A directory to serve, with something beside it that must never be served.
struct Home {
    home: tempfile::TempDir,
    root: PathBuf,
}

const LARGE_BYTES: usize = 1_000_003;

fn home() -> Home {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("root");
    fs::create_dir_all(root.join("dir/empty")).unwrap();
    fs::create_dir_all(root.join(".well-known")).unwrap();
    fs::create_dir_all(root.join(".git")).unwrap();
    for (name, text) in [
        ("index.html", "<p>home</p>"),
        ("dir/index.html", "<p>dir</p>"),
        ("dir/a b.txt", "spaced"),
        ("ten", "0123456789"),
        ("nothing.txt", ""),
        (".env", "hidden"),
        (".git/config", "hidden"),
        (".well-known/token", "known"),
    ] {
        fs::write(root.join(name), text).unwrap();
    }
    fs::write(root.join("large.bin"), pattern(0, LARGE_BYTES)).unwrap();
    fs::write(home.path().join("secret"), "outside").unwrap();
    symlink("../secret", root.join("leak")).unwrap();
    symlink(home.path().join("secret"), root.join("leak-absolute")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("dir", root.join("link")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), fifo, mode, 0).unwrap();
    Home { home, root }
}

fn serve_as(files: &FilesConfig, mode: PoolMode) -> TestServer {
    let site = Arc::new(Site::open(files, 1).unwrap());
    TestServer::start(config(Limits::default(), mode), move |start| {
        Files::new(&site, &start).unwrap()
    })
}

fn serve(root: &Path) -> TestServer {
    serve_as(&FilesConfig::new(root.to_owned()), pool_mode())
}

fn get(client: &mut RawClient, path: &str, fields: &str) -> RawResponse {
    client.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
}

fn head(client: &mut RawClient, path: &str) -> RawResponse {
    client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client.response_to_head()
}

fn metric(client: &mut RawClient, name: &str) -> u64 {
    let text = get(client, "/metrics", "").text();
    let line = text
        .lines()
        .find(|line| line.split(' ').next() == Some(name))
        .unwrap_or_else(|| panic!("no {name} in\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Sends requests until the file has settled and the response comes from the cache.
fn warm(client: &mut RawClient, path: &str) {
    let begin = Instant::now();
    let before = metric(client, "millpond_files_cache_hits_total");
    while metric(client, "millpond_files_cache_hits_total") == before {
        get(client, path, "");
        assert!(begin.elapsed() < PATIENCE, "{path} is never cached");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Every way there is to open and to keep files.
fn variants(root: &Path) -> Vec<TestServer> {
    let base = FilesConfig::new(root.to_owned());
    let mut servers: Vec<_> = MODES.iter().map(|mode| serve_as(&base, *mode)).collect();
    for (follow_links, cache_bytes) in [(false, 0), (false, 1 << 20), (true, 0)] {
        let config = FilesConfig {
            follow_links,
            cache_bytes,
            ..base.clone()
        };
        servers.push(serve_as(&config, pool_mode()));
    }
    servers
}

/// Goal: files, indexes, redirections, types and validators, in every mode, from disk and cache.
#[test]
fn files_are_served_with_their_fields() {
    let home = home();
    for server in variants(&home.root) {
        let mut client = server.connect();
        for round in 0..2 {
            let index = get(&mut client, "/", "");
            assert_eq!((index.status, index.text().as_str()), (200, "<p>home</p>"));
            assert_eq!(
                index.header("content-type"),
                Some("text/html; charset=utf-8")
            );
            assert_eq!(index.header("x-content-type-options"), Some("nosniff"));
            assert_eq!(index.header("accept-ranges"), Some("bytes"));
            let tag = index.header("etag").unwrap().to_owned();
            let date = index.header("last-modified").unwrap().to_owned();
            let again = get(
                &mut client,
                "/index.html?x=1",
                &format!("If-None-Match: {tag}\r\n"),
            );
            assert_eq!(
                (again.status, again.header("etag")),
                (304, Some(tag.as_str()))
            );
            let since = format!("If-Modified-Since: {date}\r\n");
            assert_eq!(get(&mut client, "/", &since).status, 304);
            assert_eq!(get(&mut client, "/", "If-Match: \"other\"\r\n").status, 412);
            assert_eq!(get(&mut client, "/dir/", "").text(), "<p>dir</p>");
            assert_eq!(get(&mut client, "/dir/a%20b.txt", "").text(), "spaced");
            assert_eq!(get(&mut client, "/.well-known/token", "").text(), "known");
            for (path, location) in [("/dir", "/dir/"), ("/%64ir?a=b/c", "/%64ir/?a=b/c")] {
                let moved = get(&mut client, path, "");
                assert_eq!(
                    (moved.status, moved.header("location")),
                    (301, Some(location))
                );
            }
            let nothing = get(&mut client, "/nothing.txt", "");
            assert_eq!(
                (nothing.status, nothing.header("content-length")),
                (200, Some("0"))
            );
            let without_body = head(&mut client, "/ten");
            assert_eq!(without_body.header("content-length"), Some("10"));
            assert_eq!(
                head(&mut client, "/large.bin").header("content-length"),
                Some("1000003")
            );
            let large = get(&mut client, "/large.bin", "");
            assert_eq!(
                large.header("content-type"),
                Some("application/octet-stream")
            );
            assert!(large.body == pattern(0, LARGE_BYTES), "round {round}");
            client.send("POST /ten HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
            let refused = client.response();
            assert_eq!(
                (refused.status, refused.header("allow")),
                (405, Some("GET, HEAD, OPTIONS"))
            );
            if round == 0 && metric(&mut client, "millpond_files_cache_entries") > 0 {
                warm(&mut client, "/");
            }
        }
    }
}

/// Goal: a release that is switched by a link is served within seconds, from disk and cache, over a connection
/// that was there before; with a pinned root the first stays.
#[test]
fn a_release_that_is_switched_is_served() {
    let home = tempfile::tempdir().unwrap();
    for release in ["1", "2"] {
        fs::create_dir(home.path().join(release)).unwrap();
        fs::write(home.path().join(release).join("file"), release).unwrap();
    }
    let name = home.path().join("now");
    symlink("1", &name).unwrap();
    for follow_root in [true, false] {
        fs::remove_file(&name).unwrap();
        symlink("1", &name).unwrap();
        let config = FilesConfig {
            follow_root,
            ..FilesConfig::new(name.clone())
        };
        let server = serve_as(&config, pool_mode());
        let mut client = server.connect();
        warm(&mut client, "/file");
        symlink("2", home.path().join("next")).unwrap();
        fs::rename(home.path().join("next"), &name).unwrap();
        if follow_root {
            wait_until("the second release", || {
                get(&mut client, "/file", "").text() == "2"
            });
        } else {
            std::thread::sleep(Duration::from_millis(1500));
            assert_eq!(get(&mut client, "/file", "").text(), "1");
        }
    }
}

/// Goal: ranges of small and large files, from disk and cache, are the bytes they say.
#[test]
fn ranges_are_the_bytes_they_say() {
    let home = home();
    for server in variants(&home.root) {
        let mut client = server.connect();
        for (path, size) in [("/ten", 10), ("/large.bin", LARGE_BYTES)] {
            let whole = get(&mut client, path, "");
            let tag = whole.header("etag").unwrap().to_owned();
            for (range, first, last) in [
                ("0-0", 0, 0),
                ("3-7", 3, 7),
                ("5-", 5, size - 1),
                ("-4", size - 4, size - 1),
                ("2-99999999999", 2, size - 1),
            ] {
                let fields = format!("Range: bytes={range}\r\nIf-Range: {tag}\r\n");
                let part = get(&mut client, path, &fields);
                assert_eq!(part.status, 206, "{range}");
                let said = format!("bytes {first}-{last}/{size}");
                assert_eq!(part.header("content-range"), Some(said.as_str()));
                assert!(part.body == whole.body[first..=last], "{path} {range}");
            }
            let behind = get(&mut client, path, &format!("Range: bytes={size}-\r\n"));
            let said = format!("bytes */{size}");
            assert_eq!(
                (behind.status, behind.header("content-range")),
                (416, Some(said.as_str()))
            );
            for fields in [
                "Range: bytes=0-1,3-4\r\n",
                "Range: bytes=0-1\r\nIf-Range: \"other\"\r\n",
                "Range: lines=0-1\r\n",
            ] {
                let all = get(&mut client, path, fields);
                assert_eq!(all.status, 200, "{fields}");
                assert!(all.body == whole.body);
            }
        }
        let empty = get(&mut client, "/nothing.txt", "Range: bytes=0-\r\n");
        assert_eq!(
            (empty.status, empty.header("content-range")),
            (416, Some("bytes */0"))
        );
    }
}

/// Goal: a change of a cached file shows after a second at the latest; the response until then is one whole state of
/// it.
#[test]
fn a_change_shows_and_states_never_mix() {
    let home = home();
    let server = serve(&home.root);
    let mut client = server.connect();
    let path = home.root.join("state");
    let next = home.root.join("state.next");
    let mut tags = std::collections::HashMap::new();
    for round in 0..3_u8 {
        let bytes = vec![b'0' + round; 2000];
        fs::write(&next, &bytes).unwrap();
        fs::rename(&next, &path).unwrap();
        let begin = Instant::now();
        loop {
            let response = get(&mut client, "/state", "");
            assert_eq!(response.status, 200);
            assert!(response.body.iter().all(|byte| *byte == response.body[0]));
            let tag = response.header("etag").unwrap().to_owned();
            let first = response.body[0];
            assert_eq!(
                *tags.entry(tag).or_insert(first),
                first,
                "one tag, two states"
            );
            if first == b'0' + round {
                break;
            }
            assert!(begin.elapsed() < PATIENCE, "the change never shows");
        }
        warm(&mut client, "/state");
    }
    fs::remove_file(&path).unwrap();
    let begin = Instant::now();
    while get(&mut client, "/state", "").status != 404 {
        assert!(begin.elapsed() < PATIENCE, "the removal never shows");
    }
}

/// Goal: a file that shrinks while it is sent ends the connection: the received bytes are those that existed, and
/// nothing is padded.
#[test]
fn a_file_cut_while_sent_ends_the_connection() {
    let home = home();
    let server = serve(&home.root);
    let file = File::create(home.root.join("shrinking")).unwrap();
    const SIZE: u64 = 256 << 20;
    file.set_len(SIZE).unwrap();
    file.write_all_at(&pattern(0, 1 << 20), 0).unwrap();
    let mut client = server.connect();
    client.send("GET /shrinking HTTP/1.1\r\nHost: a\r\n\r\n");
    let begin = client.take(4096);
    let text = String::from_utf8_lossy(&begin).into_owned();
    assert!(
        text.contains(&format!("Content-Length: {SIZE}\r\n")),
        "{text}"
    );
    // More than any socket buffer is still to come.
    file.set_len(1000).unwrap();
    let rest = client.rest();
    let head_bytes = text.find("\r\n\r\n").unwrap() + 4;
    let body = [&begin[head_bytes..], &rest].concat();
    assert!((body.len() as u64) < SIZE, "padded");
    let intact = body.len().min(1 << 20);
    // Bytes on their way may be the file's own pages, and a truncation clears their removed part.
    let expected = pattern(0, intact);
    let is_cleared = |place: usize| place >= 1000 && body[place] == 0;
    assert!((0..intact).all(|place| body[place] == expected[place] || is_cleared(place)));
    assert!(body[intact..].iter().all(|byte| *byte == 0));
    let mut other = server.connect();
    assert_eq!(
        metric(&mut other, "millpond_files_transfers_aborted_total"),
        1
    );
    assert_eq!(metric(&mut other, "millpond_files_transfers"), 0);
}

/// Goal: a file whose pages were evicted from memory arrives whole, while others are served.
#[test]
fn cold_bytes_arrive_whole() {
    let home = home();
    let server = serve(&home.root);
    let file = File::open(home.root.join("large.bin")).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let (mut client, mut other) = (server.connect(), server.connect());
    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(get(&mut other, "/ten", "").text(), "0123456789");
    assert!(client.response().body == pattern(0, LARGE_BYTES));
    // How many reads had to wait is the file system's and the moment's: some have nothing cold.
    println!(
        "reads by the disk thread: {}",
        metric(&mut other, "millpond_files_cold_reads_total")
    );
}

/// Goal: if the kernel cannot report which pages are in memory, every byte comes from the disk thread. Its own files
/// are such: the types of the kernel's structures, or its configuration.
#[test]
fn the_disk_thread_brings_what_cannot_be_had_at_once() {
    for (directory, name) in [("/sys/kernel/btf", "vmlinux"), ("/proc", "config.gz")] {
        let Ok(expected) = fs::read(Path::new(directory).join(name)) else {
            println!("this kernel has no {directory}/{name}");
            continue;
        };
        let server = serve(Path::new(directory));
        let mut client = server.connect();
        let size = expected.len();
        let whole = get(&mut client, &format!("/{name}"), "");
        assert_eq!(whole.status, 200);
        assert!(whole.body == expected, "{name}");
        let fields = format!("Range: bytes=7-{}\r\n", size / 2);
        let part = get(&mut client, &format!("/{name}"), &fields);
        assert!(part.body == expected[7..=size / 2], "{name}");
        let cold_reads = metric(&mut client, "millpond_files_cold_reads_total");
        assert!(
            cold_reads as usize >= size / 32768,
            "{cold_reads} of {size} bytes"
        );
        assert_eq!(metric(&mut client, "millpond_files_transfers"), 0);
    }
}

/// A kernel that reports which pages of a file are in memory.
fn kernel_knows_its_pages() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(5))
}

/// Goal: a large file that is in memory goes straight to the socket, but for its beginning; bytes without room in a
/// client that stops reading wait here, and nothing is lost or doubled on the way.
#[test]
fn a_large_file_goes_past_this_process() {
    const BYTES: u64 = 24 << 20;
    let home = home();
    let path = home.root.join("huge.bin");
    fs::write(&path, pattern(0, BYTES as usize)).unwrap();
    let server = serve(&home.root);
    let mut client = server.connect();
    client.send("GET /huge.bin HTTP/1.1\r\nHost: a\r\n\r\nGET /ten HTTP/1.1\r\nHost: a\r\n\r\n");
    // Until the kernel is full: the server then waits for the client, with a part of its own.
    let mut other = server.connect();
    let blocked = "millpond_driver_sends_blocked_total{shard=\"0\"}";
    let begin = Instant::now();
    while metric(&mut other, blocked) == 0 {
        assert!(
            begin.elapsed() < PATIENCE,
            "{BYTES} bytes fit into the kernel"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let response = client.response();
    assert!(
        response.body == pattern(0, BYTES as usize),
        "the bytes differ"
    );
    assert_eq!(client.response().text(), "0123456789");
    let range = get(&mut client, "/huge.bin", "Range: bytes=4000001-9000000\r\n");
    assert!(
        range.body == pattern(4_000_001, 5_000_000),
        "the range differs"
    );
    let sends = metric(&mut other, "millpond_driver_file_sends_total{shard=\"0\"}");
    // The temporary directory may be on a file system that cannot report this, or not to this user.
    if kernel_knows_its_pages() {
        assert!(sends >= 20, "{sends} parts of files");
    }
}

/// Goal: requests behind each other, large, small and missing mixed, get their responses in order.
#[test]
fn pipelined_files_come_in_order() {
    let home = home();
    for server in variants(&home.root) {
        let mut client = server.connect();
        let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let paths = [
            "/ten",
            "/large.bin",
            "/missing",
            "/large.bin",
            "/dir",
            "/ten",
        ];
        client.send(paths.map(ask).concat());
        let statuses = paths.map(|_| {
            let response = client.response();
            (response.status, response.body.len())
        });
        let expected = [200, 200, 404, 200, 301, 200];
        assert_eq!(statuses.map(|(status, _)| status), expected);
        assert_eq!((statuses[1].1, statuses[3].1), (LARGE_BYTES, LARGE_BYTES));
    }
}

/// Goal: a client that leaves in the middle, or never reads, leaves no task behind; until then its
/// task is in the pools' books.
#[test]
fn clients_that_leave_cost_nothing() {
    let home = home();
    let server = serve(&home.root);
    File::create(home.root.join("endless"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    let stuck: Vec<_> = (0..20)
        .map(|_| {
            let mut client = server.connect();
            client.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
            client.take(100_000);
            client
        })
        .collect();
    let mut client = server.connect();
    let mode = pool_mode();
    let tasks = format!("{{shard=\"0\",pool=\"files_tasks\",kind=\"slab\",mode=\"{mode}\"}}");
    let tasks = format!("millpond_pool_live_objects{tasks}");
    assert_eq!(metric(&mut client, &tasks), 20);
    drop(stuck);
    let begin = Instant::now();
    while metric(&mut client, "millpond_files_transfers") > 0 {
        assert!(begin.elapsed() < PATIENCE, "tasks are left");
    }
    assert_eq!(metric(&mut client, &tasks), 0);
    drop(home);
}

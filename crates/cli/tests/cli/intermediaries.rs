//! The entity server behind proxies, ours and others', that cache and that do not: what they pass on is what is there.

use crate::proxy::{Nginx, wait_until_up};
use crate::support::{Running, Server, curl, eventually, free_port};
use std::fs;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const LINES: &str = "Accept: application/x-ndjson";

/// One that stands between client and server, until dropped.
struct Intermediary {
    name: &'static str,
    url: String,
    _process: Box<dyn std::any::Any>,
}

/// nginx in front of `upstream`; `cache` is a line that has it keep responses.
fn nginx(name: &'static str, upstream: &str, cache: (&str, &str)) -> Intermediary {
    let port = free_port();
    let (zone, use_it) = cache;
    let server = format!(
        "client_max_body_size 64m; location /v0/ {{ proxy_pass http://{upstream}; proxy_http_version 1.1;\n\
         proxy_set_header Connection ''; {use_it} }}"
    );
    let nginx = Nginx::start_caching(&format!("127.0.0.1:{port}"), zone, &server);
    let url = format!("http://127.0.0.1:{port}");
    Intermediary {
        name,
        url,
        _process: Box::new(nginx),
    }
}

/// haproxy, which keeps what says that it may be kept, and what has a tag and does not say anything.
fn haproxy(upstream: &str) -> Intermediary {
    let port = free_port();
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("haproxy.cfg");
    let text = format!(
        "defaults\n mode http\n timeout connect 60s\n timeout client 300s\n timeout server 300s\n\
         cache kept\n total-max-size 16\n max-object-size 4000000\n max-age 600\n\
         frontend clients\n bind 127.0.0.1:{port}\n http-request cache-use kept\n\
         http-response cache-store kept\n default_backend entities\n\
         backend entities\n server one {upstream}\n"
    );
    fs::write(&config, text).unwrap();
    let mut command = Command::new("haproxy");
    command.arg("-f").arg(&config).stdin(Stdio::null());
    let process: (Running, TempDir) = (Running::start(&mut command), directory);
    Intermediary {
        name: "haproxy with a cache",
        url: format!("http://127.0.0.1:{port}"),
        _process: Box::new(process),
    }
}

/// Calls `scene` with each, and with the server behind it.
fn behind_each(scene: impl Fn(&Intermediary, &Server)) {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("data").display().to_string();
    let server = Server::start(&["entity", "--data", &path]);
    let upstream = &server.address;
    let ours = Server::start_proxy(&["--upstream", upstream]);
    let caching =
        "proxy_cache kept; proxy_cache_valid any 10m; add_header X-Cache $upstream_cache_status;";
    let all = [
        Intermediary {
            name: "millpond proxy",
            url: ours.url(""),
            _process: Box::new(ours),
        },
        nginx("nginx", upstream, ("", "")),
        nginx(
            "nginx with a cache",
            upstream,
            ("keys_zone=kept:1m", caching),
        ),
        haproxy(upstream),
    ];
    for one in &all {
        wait_until_up(&[&format!("{}/v0/status", one.url)]);
        scene(one, &server);
        // The next one finds nothing of this.
        for id in ["a", "b", "c", "large"] {
            assert_eq!(
                curl(&["-X", "DELETE", &server.url(&format!("/v0/entity?id={id}"))]).0,
                202
            );
        }
    }
}

/// The fields of a response, as text.
fn fields(words: &[&str]) -> String {
    let (_, head) = curl(&[&["-D", "-", "-o", "/dev/null"], words].concat());
    String::from_utf8(head).unwrap()
}

fn etag(url: &str) -> String {
    let head = fields(&[url]);
    let tag = head.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("etag: ")
            .map(str::to_owned)
    });
    tag.unwrap_or_else(|| panic!("no tag: {head}"))
}

/// Entities without an end were sent without `Cache-Control`: haproxy kept them for its `max-age` because they have a
/// tag, and nginx for as long as `proxy_cache_valid` said, and both sent a value that was deleted.
///
/// Goal: a reader through a proxy, with a cache or without, finds what was written last through it, nothing that was
/// deleted or has expired, and conditions are judged by what is there.
#[test]
fn nothing_old_is_read_through_others() {
    behind_each(|one, _| {
        let name = one.name;
        let url = format!("{}/v0/entity?id=a", one.url);
        let get = || curl(&[&url]);
        let put = |value: &str, words: &[&str]| {
            curl(&[&["-X", "PUT", "--data-binary", value, &url], words].concat()).0
        };
        let found = |value: &str| (200, value.as_bytes().to_vec());
        assert_eq!((get().0, get().0), (404, 404), "{name}");
        assert_eq!(put("one", &[]), 201, "{name}");
        assert_eq!((get(), get()), (found("one"), found("one")), "{name}");
        let first = etag(&url);
        assert_eq!(put("two", &[]), 201, "{name}");
        assert_eq!((get(), get()), (found("two"), found("two")), "{name}");
        let second = etag(&url);
        let when = |field: &str, tag: &str| format!("{field}: {tag}");
        let same = when("If-None-Match", &second);
        // nginx with a cache does not pass on conditions of reads, and sends the value.
        let read = curl(&["-H", &same, &url]);
        assert!(read.0 == 304 || read == found("two"), "{name}: {read:?}");
        let other = when("If-None-Match", &first);
        assert_eq!(curl(&["-H", &other, &url]), found("two"), "{name}");
        assert_eq!(
            put("three", &["-H", &when("If-Match", &first)]),
            412,
            "{name}"
        );
        assert_eq!(put("three", &["-H", "If-None-Match: *"]), 412, "{name}");
        assert_eq!(
            put("three", &["-H", &when("If-Match", &second)]),
            201,
            "{name}"
        );
        assert_eq!((get(), get()), (found("three"), found("three")), "{name}");
        assert_eq!(curl(&["-X", "DELETE", &url]).0, 202, "{name}");
        assert_eq!((get().0, curl(&["-I", &url]).0), (404, 404), "{name}");
        let ends = format!("{url}&expires=%2B1");
        assert_eq!(curl(&["-X", "PUT", "--data-binary", "ends", &ends]).0, 201);
        eventually("an end", || match get() {
            (404, _) => true,
            read => {
                assert_eq!(read, found("ends"), "{name}");
                false
            }
        });
    });
}

/// Goal: a range as lines of JSON says the same behind each as directly, now and after a write, and values of megabytes
/// go in, in one piece or in chunks, and out unchanged.
#[test]
fn ranges_and_long_values_go_through_others() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("value");
    let value: Vec<u8> = (0..3_000_001_u32).map(|n| (n % 253) as u8).collect();
    fs::write(&path, &value).unwrap();
    let upload = format!("@{}", path.display());
    behind_each(|one, server| {
        let name = one.name;
        let at = |id: &str| format!("{}/v0/entity?id={id}", one.url);
        let all = "/v0/entities?start=%00";
        let (through, direct) = (format!("{}{all}", one.url), server.url(all));
        let put = |id: &str, value: &str, words: &[&str]| {
            let url = at(id);
            let put = ["-X", "PUT", "--data-binary", value, &url];
            assert_eq!(curl(&[&put, words].concat()).0, 201, "{name}");
        };
        put("a", "one\ntwo\n", &[]);
        put(
            "b",
            "\"}\n{\"end\":true}\n",
            &["-H", "Content-Type: text/plain"],
        );
        let chunked = ["-H", "Transfer-Encoding: chunked"];
        // Entities, the end, and what is behind its line end.
        for (words, expected) in [(&[][..], 5), (&chunked, 6)] {
            put("large", &upload, words);
            let (status, found) = curl(&[&at("large")]);
            assert!(status == 200 && found == value, "{name}: {status}");
            let read = curl(&["-H", LINES, &through]);
            assert!(read == curl(&["-H", LINES, &direct]), "{name}: {}", read.0);
            let lines = read.1.split(|&byte| byte == b'\n').count();
            assert_eq!(lines, expected, "{name}");
            put("c", "three", &[]);
        }
    });
}

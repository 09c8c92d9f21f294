//! Responses of servers in other languages, directly and through the proxy: they are the same.

use super::proxy;
use crate::support::{PATIENCE, RawClient, RawResponse};
use millpond_http::Limits;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/same");

/// One of them, until dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// `None` where its program is not installed, which is said. PORT in `words` is its port.
    fn start(words: &[&str]) -> Option<Self> {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        drop(held);
        let port = address.port().to_string();
        let mut command = Command::new(words[0]);
        command.args(words[1..].iter().map(|word| word.replace("PORT", &port)));
        let command = command
            .current_dir(DATA)
            .process_group(0)
            .stdin(Stdio::null());
        let spawned = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = match spawned {
            Ok(child) => child,
            Err(error) => {
                println!("SKIPPED: {} does not start ({error})", words[0]);
                return None;
            }
        };
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(started.elapsed() < PATIENCE, "{words:?} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Self { child, address })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Some have processes of their own below them: all are of one group.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}

fn request(method: &str, target: &str, fields: &str, body: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: site\r\nConnection: close\r\n{fields}\r\n{body}")
}

fn in_chunks(body: &str, chunk_bytes: usize, trailers: &str) -> String {
    let mut text = String::new();
    for chunk in body.as_bytes().chunks(chunk_bytes) {
        let part = std::str::from_utf8(chunk).unwrap();
        text.push_str(&format!("{:x}\r\n{part}\r\n", part.len()));
    }
    format!("{text}0\r\n{trailers}\r\n")
}

fn requests() -> Vec<String> {
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
    let long = "0123456789abcdef".repeat(20_000);
    let many: String = (0..60).map(|index| format!("X-{index}: v\r\n")).collect();
    let mut requests: Vec<String> = [
        "/",
        "/?a=b&c=%20%2F",
        "/big",
        "/parts",
        "/204",
        "/a/../b",
        "/%2e%2e/x",
    ]
    .map(|target| request("GET", target, "", ""))
    .into();
    for target in ["/", "/big"] {
        requests.push(request("HEAD", target, "", ""));
    }
    for method in ["DELETE", "OPTIONS", "BREW"] {
        requests.push(request(method, "/", "", ""));
    }
    requests.extend(
        [
            "GET / HTTP/1.0\r\n\r\n",
            "GET /parts HTTP/1.0\r\nHost: site\r\n\r\n",
        ]
        .map(str::to_owned),
    );
    let length = |bytes: usize| format!("Content-Length: {bytes}\r\n");
    for body in ["", "short", &long] {
        requests.push(request("POST", "/", &length(body.len()), body));
        requests.push(request("PUT", "/", CHUNKED, &in_chunks(body, 1_000, "")));
    }
    requests.push(request(
        "POST",
        "/",
        CHUNKED,
        &in_chunks(&long[..2_000], 1, ""),
    ));
    requests.push(request(
        "GET",
        &format!("/{}", "a".repeat(4_000)),
        &many,
        "",
    ));
    requests
}

/// The final response, and what of its head says something about it. `None`: there is none.
fn ask(address: SocketAddr, request: &str) -> Option<(u16, Vec<String>, Vec<u8>)> {
    let mut client = RawClient::connect(address);
    client.send(request);
    let is_head = request.starts_with("HEAD ");
    let mut response: RawResponse = client.try_response(is_head)?;
    while response.status < 200 {
        response = client.try_response(is_head)?;
    }
    let is_framed = ["content-length", "transfer-encoding"]
        .iter()
        .any(|name| response.header(name).is_some());
    if !is_framed && !is_head && response.status != 204 {
        response.body = client.rest();
    }
    const OF_CONNECTION: [&str; 6] = [
        "connection",
        "keep-alive",
        "via",
        "date",
        "transfer-encoding",
        "content-length",
    ];
    let lines = response
        .head
        .lines()
        .skip(1)
        .filter(|line| !line.is_empty());
    let mut fields: Vec<String> = lines
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            format!("{}: {}", name.to_lowercase(), value.trim())
        })
        .filter(|line| !OF_CONNECTION.contains(&line.split(':').next().unwrap()))
        .collect();
    fields.sort();
    Some((response.status, fields, response.body))
}

/// Goal: status, fields and body of each response are those that the server gives by itself, whatever the
/// framing of request and response.
#[test]
#[ignore = "starts servers that need seconds for it, and are not installed everywhere"]
fn answers_are_those_of_the_server_itself() {
    for words in [
        &["node", "server.js", "PORT"][..],
        &[
            "gunicorn",
            "-k",
            "gthread",
            "-b",
            "127.0.0.1:PORT",
            "server:app",
        ],
        &["go", "run", "server.go", "PORT"],
        &["java", "Server.java", "PORT"],
    ] {
        let Some(other) = Server::start(words) else {
            continue;
        };
        let (server, _) = proxy(&[other.address], Limits::default(), |_| {});
        for request in requests() {
            let start: String = request.chars().take(100).collect();
            let (direct, through) = (ask(other.address, &request), ask(server.address, &request));
            if direct.is_none() {
                // It closed silently, which the proxy cannot do.
                assert_eq!(through.unwrap().0, 502, "{words:?} {start}");
                continue;
            }
            assert!(
                direct == through,
                "{words:?} {start}:\n{:?}\n{:?}",
                direct.map(|it| (it.0, it.1, it.2.len())),
                through.map(|it| (it.0, it.1, it.2.len()))
            );
        }
    }
}

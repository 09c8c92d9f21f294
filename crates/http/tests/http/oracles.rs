//! Clients that we did not write: curl and Python's http.client.

use crate::support::{Echo, TestServer};
use millpond_http::Limits;
use std::process::Command;

/// Runs a program that `scripts/setup` installs; without it the test fails with a message.
fn run(program: &str, package: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| {
            panic!("cannot run {program} ({error}): install {package}, e.g. with scripts/setup")
        });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} failed: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Goal: curl reuses the connection, uploads by length and in chunks, waits for 100, asks HEAD.
#[test]
fn curl_is_served() {
    let server = TestServer::with_limits(Limits::default(), |_| Echo);
    let url = |path: &str| format!("http://{}{path}", server.address);
    let curl = |arguments: &[&str]| {
        run(
            "curl",
            "curl",
            &[&["--silent", "--show-error", "--max-time", "60"], arguments].concat(),
        )
    };
    assert_eq!(curl(&[&url("/a?b=c")]), "GET /a?b=c\n");
    let twice = curl(&["--write-out", "%{num_connects}\n", &url("/1"), &url("/2")]);
    assert_eq!(twice, "GET /1\n1\nGET /2\n0\n");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/server.rs");
    let uploaded = format!("PUT /p\n{}", std::fs::read_to_string(file).unwrap());
    assert_eq!(curl(&["--upload-file", file, &url("/p")]), uploaded);
    let chunked = [
        "--header",
        "Transfer-Encoding: chunked",
        "--data-binary",
        "hello",
    ];
    assert_eq!(
        curl(&[&chunked[..], &[&url("/c")]].concat()),
        "POST /c\nhello"
    );
    let expecting = ["--header", "Expect: 100-continue", "--data-binary", "hello"];
    assert_eq!(
        curl(&[&expecting[..], &[&url("/e")]].concat()),
        "POST /e\nhello"
    );
    let head = curl(&["--head", &url("/h")]);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("Content-Length: 8\r\n"));
    assert_eq!(curl(&["--http1.0", &url("/o")]), "GET /o\n");
    let code = ["--output", "/dev/null", "--write-out", "%{http_code}"];
    let strange = ["--header", "Content-Length: 5, 5", &url("/")];
    assert_eq!(curl(&[&code[..], &strange].concat()), "400");
}

const PYTHON: &str = r#"
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
def ask(method, path, **more):
    connection.request(method, path, **more)
    response = connection.getresponse()
    return response.status, response.read(), response.getheader("Date") is not None
socket = None
for index in range(50):
    body = bytes([index]) * (index * 1000)
    assert ask("PUT", f"/{index}", body=body) == (200, b"PUT /%d\n" % index + body, True)
    socket = socket or connection.sock
    assert connection.sock is socket, "the connection was not reused"
chunks = iter([b"ab", b"c" * 70000, b"d"])
assert ask("POST", "/chunks", body=chunks, encode_chunked=True,
           headers={"Transfer-Encoding": "chunked"})[1] == b"POST /chunks\nab" + b"c" * 70000 + b"d"
assert ask("HEAD", "/head") == (200, b"", True)
assert ask("GET", "/after")[1] == b"GET /after\n"
print("done")
"#;

/// Goal: Python's client agrees on fifty bodies of growing size, on chunks and on HEAD, over one
/// connection.
#[test]
fn python_is_served() {
    let server = TestServer::with_limits(Limits::default(), |_| Echo);
    let port = server.address.port().to_string();
    assert_eq!(run("python3", "python3", &["-c", PYTHON, &port]), "done\n");
}

//! The servers over TLS, talked to by programs that are not ours: curl, openssl, Python, wrk.

mod certificates;
mod clients;
mod load;

use crate::support::{Finished, Running, Server, Wrk, eventually, millpond, peer};
use rcgen::{CertificateParams, KeyPair};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Certificates and keys in a directory.
pub(crate) struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        let files = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        files.make("server", &["localhost", "127.0.0.1"], 2100);
        files
    }

    fn make(&self, name: &str, names: &[&str], until: i32) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let common_name = rcgen::DnType::CommonName;
        params.distinguished_name.push(common_name, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(self.path(&format!("{name}.crt")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn flags(&self, name: &str) -> [String; 4] {
        let certificate = self.text(&format!("{name}.crt"));
        let key = self.text(&format!("{name}.key"));
        [
            "--tls-cert".to_owned(),
            certificate,
            "--tls-key".to_owned(),
            key,
        ]
    }

    /// A server with these pairs, and further words.
    pub(crate) fn serve(&self, names: &[&str], words: &[&str]) -> Server {
        let flags: Vec<String> = names.iter().flat_map(|name| self.flags(name)).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Server::start(&[words, &flags].concat())
    }

    /// Status and body of a request made by curl, which trusts the server's certificate.
    fn curl(&self, words: &[&str]) -> (u16, Vec<u8>) {
        let authority = self.text("server.crt");
        crate::support::curl(&[&["--cacert", &authority], words].concat())
    }
}

pub(crate) fn https(server: &Server, path: &str) -> String {
    format!("https://{}{path}", server.address)
}

/// The kernel interfaces there are on this machine.
fn drivers() -> Vec<&'static str> {
    let mut drivers = vec!["epoll"];
    match millpond_io::driver::uring::probe() {
        Ok(_) => drivers.push("uring"),
        Err(why) => eprintln!("not tested with uring: {why}"),
    }
    drivers
}

/// `openssl s_client`, with these bytes as its input; it reads until the server closes.
fn s_client(server: &Server, words: &[&str], input: &str) -> String {
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &server.address, "-ign_eof"])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("openssl: {error} (scripts/setup test installs it)"));
    let mut stdin = child.stdin.take().unwrap();
    // It may end without reading its input.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
    let both = [stdout, stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

const GET_AND_CLOSE: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The value of a metric with these labels, all shards.
fn metric(files: &Files, server: &Server, name: &str) -> u64 {
    let (status, text) = files.curl(&[&https(server, "/metrics")]);
    assert_eq!(status, 200);
    let text = String::from_utf8(text).unwrap();
    let values = text
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.rsplit(' ').next());
    values.map(|value| value.parse::<u64>().unwrap()).sum()
}

fn stop(server: Server) -> Finished {
    server.process.signal("TERM");
    let finished = server.process.finish();
    assert_eq!(finished.code(), 0, "{finished:?}");
    finished
}

/// Goal: curl gets its responses over both versions and both drivers, verifies the certificate, keeps
/// the connection for the next request, and large bodies go both ways whole.
#[test]
fn curl_is_served_over_both_versions() {
    let files = Files::new();
    let body: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    fs::write(files.path("body"), &body).unwrap();
    let data = files.text("data");
    let upload = format!("@{}", files.text("body"));
    for driver in drivers() {
        let server = files.serve(
            &["server"],
            &["entity", "--data", &data, "--driver", driver],
        );
        let url = https(&server, "/v0/entity?id=large");
        for version in ["1.2", "1.3"] {
            let one = ["--tls-max", version, "--tlsv1.2"];
            let put = [&one[..], &["-X", "PUT", "--data-binary", &upload, &url]].concat();
            assert_eq!(files.curl(&put).0, 201, "{driver} {version}");
            let got = files.curl(&[&one[..], &[&url]].concat());
            assert!(
                got.0 == 200 && got.1 == body,
                "{driver} {version}: {}",
                got.1.len()
            );
            // Two requests, one connection: the status codes stand behind each other.
            let status = https(&server, "/v0/status");
            let words = [
                "-s",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code} %{num_connects} %{http_version};",
            ];
            let authority = files.text("server.crt");
            let twice = peer(
                "curl",
                &[
                    &words[..],
                    &one,
                    &["--cacert", &authority, &status, "-o", "/dev/null", &status],
                ]
                .concat(),
            );
            assert_eq!(
                String::from_utf8_lossy(&twice.stdout),
                "200 1 1.1;200 0 1.1;"
            );
        }
        // A client that does not trust the certificate refuses it, and the server counts that.
        let stranger = peer("curl", &["-s", "-w", "%{ssl_verify_result}", &url]);
        assert_eq!(stranger.status.code(), Some(60), "{stranger:?}");
        let refused = "millpond_tls_handshake_failures_total{shard=\"0\",reason=\"peer_alert\"}";
        assert_eq!(metric(&files, &server, refused), 1);
        let full = "millpond_tls_handshakes_total{shard=\"0\",version=\"1.2\",kind=\"full\"}";
        assert_eq!(metric(&files, &server, full), 3);
        stop(server);
    }
}

/// Goal: openssl resumes sessions over both versions, on another shard too; is refused with the
/// right alert when it offers only other protocols; and gets the certificate of the name it asks for.
#[test]
fn openssl_resumes_and_chooses() {
    let files = Files::new();
    files.make("other", &["other.test", "*.wild.test"], 2100);
    let session = files.text("session.pem");
    for driver in drivers() {
        let words = ["plaintext", "--shards", "2", "--driver", driver];
        let server = files.serve_shards(&["server", "other"], &words);
        for version in ["-tls1_2", "-tls1_3"] {
            let first = s_client(&server, &[version, "-sess_out", &session], GET_AND_CLOSE);
            assert!(first.contains("New, TLSv1"), "{first}");
            assert!(first.contains("Hello, World!"), "{first}");
            // As many as make it sure that both shards were met.
            for _ in 0..8 {
                let again = s_client(&server, &[version, "-sess_in", &session], GET_AND_CLOSE);
                assert!(
                    again.contains("Reused, TLSv1"),
                    "{driver} {version}: {again}"
                );
                assert!(again.contains("Hello, World!"), "{again}");
            }
        }
        let reconnected = s_client(&server, &["-tls1_2", "-reconnect"], GET_AND_CLOSE);
        assert_eq!(
            reconnected.matches("Reused, TLSv1.2").count(),
            5,
            "{reconnected}"
        );

        let spoken = s_client(&server, &["-alpn", "h2,http/1.1"], GET_AND_CLOSE);
        assert!(spoken.contains("ALPN protocol: http/1.1"), "{spoken}");
        let unspoken = s_client(&server, &["-alpn", "h2"], GET_AND_CLOSE);
        assert!(unspoken.contains("SSL alert number 120"), "{unspoken}");
        let silent = s_client(&server, &[], GET_AND_CLOSE);
        assert!(
            silent.contains("No ALPN negotiated") && silent.contains("Hello"),
            "{silent}"
        );

        for (name, subject) in [
            ("localhost", "CN = server"),
            ("other.test", "CN = other"),
            ("OTHER.test", "CN = other"),
            ("a.wild.test", "CN = other"),
            ("nobody.test", "CN = server"),
        ] {
            let text = s_client(&server, &["-servername", name], GET_AND_CLOSE);
            assert!(
                text.contains(&format!("subject={subject}")),
                "{name}: {text}"
            );
        }
        // The server sends `close_notify`: openssl detects a connection that was cut.
        assert!(!silent.contains("unexpected eof"), "{silent}");
        stop(server);
    }
}

impl Files {
    /// As [`Files::serve`], the number of shards among the words.
    fn serve_shards(&self, names: &[&str], words: &[&str]) -> Server {
        let flags: Vec<String> = names.iter().flat_map(|name| self.flags(name)).collect();
        let mut command = millpond(&["serve"]);
        command
            .args(words)
            .args(flags)
            .args(["--listen", "127.0.0.1:0"]);
        let mut process = Running::start(&mut command);
        let line = process.first_line();
        match line.trim().strip_prefix("listening on ").map(str::to_owned) {
            Some(address) => Server::running(process, address),
            None => panic!("{:?}", process.finish()),
        }
    }
}

/// Goal: Python's ssl module sends several requests on one connection, in pieces and pipelined, and its strict end of a
/// connection finds the server's `close_notify`.
#[test]
fn python_finds_whole_answers_and_a_goodbye() {
    let files = Files::new();
    let script = r"
import socket, ssl, sys
host, port = sys.argv[1].split(':')
context = ssl.create_default_context(cafile=sys.argv[2])
context.set_alpn_protocols(['http/1.1'])
with socket.create_connection((host, int(port)), 30) as raw:
    with context.wrap_socket(raw, server_hostname='localhost', suppress_ragged_eofs=False) as tls:
        assert tls.selected_alpn_protocol() == 'http/1.1'
        head = b'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'
        for byte in head:
            tls.sendall(bytes([byte]))
        tls.sendall(head * 9 + b'GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n')
        answer = b''
        while True:
            part = tls.recv(100)
            if not part:
                break
            answer += part
        assert answer.count(b'HTTP/1.1 200 OK') == 11, answer
        version = tls.version()
        tls.unwrap()
print('whole', version)
";
    for driver in drivers() {
        let server = files.serve(&["server"], &["plaintext", "--driver", driver]);
        let authority = files.text("server.crt");
        let output = peer("python3", &["-c", script, &server.address, &authority]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.starts_with("whole TLSv1.3"), "{driver}: {output:?}");
        stop(server);
    }
}

/// Goal: wrk reports no errors over TLS, with pools on and off.
#[test]
fn wrk_sees_no_errors_over_tls() {
    let files = Files::new();
    for pools in ["on", "off", "checked"] {
        let server = files.serve(&["server"], &["plaintext", "--pools", pools]);
        let url = https(&server, "/plaintext");
        let wrk = Wrk::start("16", &url);
        eventually("requests", || {
            metric(&files, &server, "millpond_http_requests_total") >= 5_000
        });
        wrk.finish();
        assert!(metric(&files, &server, "millpond_tls_handshakes_total") >= 16);
        stop(server);
    }
}

/// Goal: a plaintext client gets a readable hint; garbage, half handshakes and resets are counted
/// by reason and leave the server as it was.
#[test]
fn whoever_does_not_speak_tls_is_turned_away() {
    let files = Files::new();
    for driver in drivers() {
        let words = ["plaintext", "--driver", driver, "--head-timeout", "10m"];
        let server = files.serve(&["server"], &words);
        let (status, text) = crate::support::curl(&[&server.url("/")]);
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(
            status == 400 && text.contains("https://"),
            "{status} {text}"
        );

        let ends = |first: &[u8]| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            stream.write_all(first).unwrap();
            let mut answer = Vec::new();
            // A reset is an end as well.
            let _ = stream.read_to_end(&mut answer);
            answer
        };
        assert_eq!(ends(b"\x80\x2e\x01\x00\x02"), b"");
        assert_eq!(ends(&[0xff; 10_000]), b"");
        // A handshake record, and then nothing that is one: an alert, "decode error" or the like.
        let answer = ends(&[&b"\x16\x03\x01\x00\x10\x01\x00\x00\x0c"[..], &[0xaa; 12]].concat());
        assert_eq!(answer.first(), Some(&21), "{answer:?}");
        // Closed in the middle of one.
        drop(TcpStream::connect(&server.address).unwrap());
        let failed = |reason: &str| {
            let labels = format!("{{shard=\"0\",reason=\"{reason}\"}}");
            metric(
                &files,
                &server,
                &format!("millpond_tls_handshake_failures_total{labels}"),
            )
        };
        assert_eq!((failed("plaintext"), failed("not_tls")), (1, 2));
        eventually("its end is seen", || failed("closed") == 1);
        assert_eq!(failed("timeout"), 0);
        assert_eq!(failed("malformed") + failed("misbehaved"), 1);
        assert_eq!(metric(&files, &server, "millpond_tls_handshaking"), 0);
        let finished = stop(server);
        assert!(
            finished.stderr.lines().count() <= 2,
            "failures are counted, not told: {finished:?}"
        );
    }
}

/// Goal: half a handshake times out after the time limit of a head, and is counted.
#[test]
fn half_a_handshake_is_given_up() {
    let files = Files::new();
    for driver in drivers() {
        let words = ["plaintext", "--driver", driver, "--head-timeout", "1s"];
        let server = files.serve(&["server"], &words);
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(b"\x16\x03\x01\x02\x00\x01").unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
        // The client is timed too: on a busy machine its own handshake may time out.
        let metrics = https(&server, "/metrics");
        let mut text = String::new();
        eventually("a response", || {
            let (status, body) = files.curl(&[&metrics]);
            text = String::from_utf8(body).unwrap();
            status == 200
        });
        let name = "millpond_tls_handshake_failures_total{shard=\"0\",reason=\"timeout\"} ";
        let count = text.lines().find_map(|line| line.strip_prefix(name));
        assert!(count.unwrap().parse::<u64>().unwrap() >= 1, "{text}");
        stop(server);
    }
}

/// Goal: a drain responds to pending requests over TLS too, and a body that is cut without
/// `close_notify` is never taken as whole.
#[test]
fn cut_bodies_are_not_whole() {
    let files = Files::new();
    let data = files.text("data");
    let server = files.serve(&["server"], &["entity", "--data", &data]);
    let script = r"
import socket, ssl, sys
host, port = sys.argv[1].split(':')
context = ssl.create_default_context(cafile=sys.argv[2])
raw = socket.create_connection((host, int(port)), 30)
tls = context.wrap_socket(raw, server_hostname='localhost')
tls.sendall(b'PUT /v0/entity?id=cut HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n' + b'x' * 50)
raw = socket.socket(fileno=tls.detach())
raw.setblocking(True)
raw.shutdown(socket.SHUT_WR)
while raw.recv(1000):
    pass
";
    let authority = files.text("server.crt");
    let output = peer("python3", &["-c", script, &server.address, &authority]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(files.curl(&[&https(&server, "/v0/entity?id=cut")]).0, 404);
    assert_eq!(metric(&files, &server, "millpond_tls_truncated_total"), 1);
    stop(server);
}

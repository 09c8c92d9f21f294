//! The servers over TLS, talked to by programs that are not ours: curl, openssl, Python, wrk.

use crate::support::{Finished, Running, Server, millpond, peer, run};
use rcgen::{CertificateParams, KeyPair};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Certificates and keys in a directory.
struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
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

    fn text(&self, name: &str) -> String {
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
    fn serve(&self, names: &[&str], words: &[&str]) -> Server {
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

fn https(server: &Server, path: &str) -> String {
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

/// Goal: curl gets its answers over both versions and both drivers, verifies the certificate, keeps
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
        // A client that does not know the certificate refuses it, and the server counts that.
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
        // The server says goodbye: openssl tells a connection that was cut.
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
            Some(address) => Server { process, address },
            None => panic!("{:?}", process.finish()),
        }
    }
}

/// Goal: Python's ssl module speaks several requests on one connection, in pieces and pipelined, and
/// its strict end of a connection finds the server's goodbye.
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

/// Goal: wrk sees no errors over TLS, with pools on and off.
#[test]
fn wrk_sees_no_errors_over_tls() {
    let files = Files::new();
    for pools in ["on", "off", "checked"] {
        let server = files.serve(&["server"], &["plaintext", "--pools", pools]);
        let url = https(&server, "/plaintext");
        let wrk = peer("wrk", &["-t", "1", "-c", "16", "-d", "1s", &url]);
        let text = String::from_utf8_lossy(&wrk.stdout).into_owned();
        assert!(
            wrk.status.success() && text.contains("requests in"),
            "{text}"
        );
        assert!(
            !text.contains("errors") && !text.contains("Non-2xx"),
            "{text}"
        );
        assert!(metric(&files, &server, "millpond_tls_handshakes_total") >= 16);
        stop(server);
    }
}

/// Goal: clear text is told what to do, in words it understands; garbage, half handshakes and resets
/// are counted by reason and leave the server as it was.
#[test]
fn whoever_does_not_speak_tls_is_turned_away() {
    let files = Files::new();
    for driver in drivers() {
        let words = ["plaintext", "--driver", driver, "--head-timeout", "1s"];
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
        // Half a handshake, for as long as a head may take.
        assert_eq!(ends(b"\x16\x03\x01\x02\x00\x01"), b"");
        // Gone in the middle of one.
        drop(TcpStream::connect(&server.address).unwrap());
        let failed = |reason: &str| {
            let labels = format!("{{shard=\"0\",reason=\"{reason}\"}}");
            metric(
                &files,
                &server,
                &format!("millpond_tls_handshake_failures_total{labels}"),
            )
        };
        assert_eq!((failed("clear_text"), failed("not_tls")), (1, 2));
        assert_eq!((failed("timeout"), failed("closed")), (1, 1));
        assert_eq!(failed("malformed") + failed("misbehaved"), 1);
        assert_eq!(metric(&files, &server, "millpond_tls_handshaking"), 0);
        let finished = stop(server);
        assert!(
            finished.stderr.lines().count() <= 2,
            "failures are counted, not told: {finished:?}"
        );
    }
}

/// The serial number of the certificate that a new connection gets.
fn serial(server: &Server) -> String {
    let text = s_client(server, &[], GET_AND_CLOSE);
    let (_, pem) = text
        .split_once("-----BEGIN CERTIFICATE-----")
        .unwrap_or_else(|| panic!("{text}"));
    pem.split_once("-----END").unwrap().0.to_owned()
}

/// Goal: SIGHUP gives new connections the new certificate while an open one goes on, and the access log
/// a new file; a certificate that is wrong changes nothing and is told in one line.
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
    let is_new = (0..500).any(|_| {
        sleep(Duration::from_millis(20));
        serial(&server) != first
    });
    assert!(is_new);
    let second = serial(&server);
    assert_eq!(files.curl(&[&https(&server, "/")]).0, 200);
    exchange();

    fs::write(files.path("server.key"), "no key\n").unwrap();
    server.process.signal("HUP");
    // The next signal is looked at after this one.
    server.process.signal("USR1");
    assert_eq!(serial(&server), second);
    exchange();
    drop((said, heard));
    open.kill().unwrap();
    open.wait().unwrap();
    let finished = stop(server);
    // One signal is for both: the log went on in a file of the old name. Which of the two got what was
    // on its way is a matter of time; at least eight requests were made.
    let (old_entries, new_entries) = (entries(&old_log), entries(&log));
    assert!(
        new_entries >= 4 && old_entries + new_entries >= 8,
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

/// Goal: a drain answers what was asked over TLS too, and a body that is cut without a goodbye is
/// never taken for whole.
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

fn load_record(words: &[&str]) -> serde_json::Value {
    let finished = run(millpond(&["load", "-c", "2", "--print", "json"]).args(words));
    assert!([0, 4].contains(&finished.code()), "{finished:?}");
    serde_json::from_str(&finished.stdout).unwrap()
}

/// Goal: the generator speaks TLS over both kernel interfaces, knows whom it speaks to, and resumes
/// sessions when connections come and go.
#[test]
fn load_speaks_tls() {
    let files = Files::new();
    let server = files.serve(&["server"], &["plaintext"]);
    let url = https(&server, "/plaintext");
    let authority = files.text("server.crt");
    for driver in drivers() {
        let words = [
            "--driver",
            driver,
            "--ca",
            &authority,
            "--requests",
            "300",
            &url,
        ];
        let record = load_record(&words);
        assert_eq!(
            (&record["requests"], &record["tls"]["failed"]),
            (&300.into(), &0.into()),
            "{record}"
        );
        assert_eq!(
            record["tls"]["full"].as_u64().unwrap() + record["tls"]["resumed"].as_u64().unwrap(),
            2,
            "{record}"
        );
        let churn = [
            &["--requests-per-connection", "10", "--pipeline", "4"],
            &words[..],
        ]
        .concat();
        let record = load_record(&churn);
        assert_eq!(
            (&record["requests"], &record["errors"]["read"]),
            (&300.into(), &0.into()),
            "{record}"
        );
        assert!(record["tls"]["resumed"].as_u64().unwrap() >= 10, "{record}");
        assert!(
            record["opening_ns"]["count"].as_u64().unwrap() >= 30,
            "{record}"
        );
    }
    let record = load_record(&["--insecure", "--requests", "50", &url]);
    assert_eq!(record["requests"], 50, "{record}");
    let other = Files::new().text("server.crt");
    for (words, part) in [
        (vec!["--requests", "5", &url[..]], "--ca"),
        (vec!["--requests", "5", "--ca", &other, &url], "cannot read"),
        (vec!["--insecure", "http://127.0.0.1:1/"], "https://"),
    ] {
        let finished = run(millpond(&["load"]).args(&words));
        assert!([1, 2].contains(&finished.code()), "{finished:?}");
        assert!(finished.stderr.contains(part), "{finished:?}");
    }
    // A server in clear text is no TLS server.
    let clear = Server::start(&["plaintext"]);
    let finished = run(&mut millpond(&[
        "load",
        "--insecure",
        "--requests",
        "5",
        &https(&clear, "/"),
    ]));
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(
        finished.stderr.contains("TLS handshake failed"),
        "{finished:?}"
    );
}

/// Goal: answers of a TLS server that is not ours arrive whole, large ones too.
#[test]
fn load_reads_another_tls_server() {
    const PROGRAM: &str = "import http.server, functools, ssl, sys\n\
        class Handler(http.server.SimpleHTTPRequestHandler):\n\
        \x20   protocol_version = 'HTTP/1.1'\n\
        \x20   def log_message(self, *rest): pass\n\
        handler = functools.partial(Handler, directory=sys.argv[1])\n\
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)\n\
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n\
        context.load_cert_chain(sys.argv[2], sys.argv[3])\n\
        server.socket = context.wrap_socket(server.socket, server_side=True)\n\
        print(server.server_address[1], flush=True)\n\
        server.serve_forever()";
    let files = Files::new();
    fs::write(files.path("large"), vec![b'x'; 300_000]).unwrap();
    let mut child = Command::new("python3")
        .args(["-c", PROGRAM])
        .arg(files.directory.path())
        .args([files.path("server.crt"), files.path("server.key")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut port = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.take().unwrap()),
        &mut port,
    )
    .unwrap();
    let url = format!("https://localhost:{}/large", port.trim());
    let words = [
        "--ca",
        &files.text("server.crt"),
        "--expect-length",
        "300000",
        "--requests",
        "40",
        &url,
    ];
    let record = load_record(&words);
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(
        (&record["requests"], &record["errors"]["validation"]),
        (&40.into(), &0.into()),
        "{record}"
    );
}

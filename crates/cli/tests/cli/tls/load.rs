//! The generator over TLS.

use super::{Files, drivers, https};
use crate::support::{Server, millpond, run};
use std::fs;
use std::process::{Command, Stdio};

fn load_record(words: &[&str]) -> serde_json::Value {
    let finished = run(millpond(&["load", "-c", "2", "--print", "json"]).args(words));
    assert!([0, 4].contains(&finished.code()), "{finished:?}");
    serde_json::from_str(&finished.stdout).unwrap()
}

/// Goal: the generator speaks TLS over both kernel interfaces, verifies the server, and resumes
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
    // A server in plaintext is no TLS server.
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

/// Goal: responses of a TLS server that is not ours arrive whole, large ones too.
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

/// Goal: wrk's scripts run over TLS as they do without: requests of their own, responses shown with
/// fields and body, and `wrk.scheme`; the parts of opening a connection are in text and record.
#[test]
fn scripts_run_over_tls() {
    let files = Files::new();
    let server = files.serve(&["server"], &["plaintext"]);
    let script = files.path("own.lua");
    let code = "local answers = 0
        function init(args) print(wrk.scheme, wrk.port ~= nil, args[0]:sub(1, 8)) end
        function request() return wrk.format('GET', '/plaintext', { ['X-A'] = 'b' }) end
        function response(status, headers, body)
           answers = answers + 1
           if answers == 20 then print(status, headers['Content-Length'], body) end
        end
        function done(summary) print('done', summary.requests) end";
    fs::write(&script, code).unwrap();
    for driver in drivers() {
        let record = files.path(&format!("{driver}.json"));
        let mut command = millpond(&["load", "-t1", "-c2", "-n", "40", "--driver", driver]);
        command.args(["--requests-per-connection", "10", "--ca"]);
        command
            .arg(files.path("server.crt"))
            .arg("--json")
            .arg(&record);
        command.arg("-s").arg(&script).arg(https(&server, "/"));
        let finished = run(&mut command);
        assert!([0, 4].contains(&finished.code()), "{finished:?}");
        for part in [
            "https\ttrue\thttps://",
            "200\t13\tHello, World!",
            "done\t40",
        ] {
            assert!(finished.stdout.contains(part), "{part}: {finished:?}");
        }
        for part in ["Connect: TCP", "Connect: TLS"] {
            assert!(finished.stdout.contains(part), "{part}: {finished:?}");
        }
        let record: serde_json::Value =
            serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
        let field = |clock: &str, name: &str| record[clock][name].as_u64().unwrap();
        let count = field("opening_ns", "count");
        assert!(count >= 4, "{record}");
        assert_eq!(field("transport_ns", "count"), count);
        assert_eq!(field("handshake_ns", "count"), count);
        assert!(field("handshake_ns", "min") > 0);
        assert!(
            field("handshake_ns", "max") <= field("opening_ns", "max"),
            "{record}"
        );
        assert!(record["histograms"]["handshake"].is_string(), "{record}");
    }
}

//! The proxy as a process, between clients and upstreams that are not ours.

use crate::load::metric;
use crate::support::{Running, Server, Wrk, curl, eventually, free_port, millpond, peer, run};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// nginx on a unix socket or a port, until dropped.
pub(crate) struct Nginx {
    child: Child,
    _directory: tempfile::TempDir,
}

impl Nginx {
    /// Listens where `listen` says; `server` are further lines.
    fn start(listen: &str, server: &str) -> Self {
        Self::start_caching(listen, "", server)
    }

    /// The same, and `cache` says what is kept, and how, below the directory that this adds to it.
    pub(crate) fn start_caching(listen: &str, cache: &str, server: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let conf = directory.path().join("nginx.conf");
        let here = directory.path().display();
        let cache = match cache {
            "" => String::new(),
            cache => format!("proxy_cache_path {here}/cache {cache};"),
        };
        let text = format!(
            "daemon off; worker_processes 1; pid {here}/pid; error_log {here}/error.log;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log off; client_body_temp_path {here}/body; proxy_temp_path {here}/proxy;\n\
             fastcgi_temp_path {here}/f; uwsgi_temp_path {here}/u; scgi_temp_path {here}/s;\n\
             keepalive_requests 100000; {cache}\n\
             server {{ listen {listen}; {server}\n\
             location /hello {{ return 200 'hello from nginx'; }}\n\
             location /host {{ return 200 '$host|$http_x_forwarded_for|$http_via|$ssl_client_s_dn'; }} }} }}\n"
        );
        fs::write(&conf, text).unwrap();
        let child = Command::new("nginx")
            .args(["-c", &conf.display().to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx is there (scripts/setup test installs it)");
        Self {
            child,
            _directory: directory,
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Politely: the master has a worker to end.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

/// Until `url` responds at all.
pub(crate) fn wait_until_up(words: &[&str]) {
    eventually("a response", || curl(words).0 != 0);
}

/// Goal: curl, ab, wrk and h2load see a correct server in front of nginx, over TCP and over a unix socket, on both
/// drivers, and nginx sees one host and the client.
#[test]
fn nginx_is_served_to_other_clients() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("nginx.sock");
    let port = free_port();
    let _over_tcp = Nginx::start(&format!("127.0.0.1:{port}"), "");
    let _over_unix = Nginx::start(&format!("unix:{}", socket.display()), "");
    let tcp = format!("127.0.0.1:{port}");
    wait_until_up(&[&format!("http://{tcp}/hello")]);
    for (upstream, driver) in [
        (tcp, "epoll"),
        (format!("unix:{}", socket.display()), "auto"),
    ] {
        let proxy = Server::start_proxy(&["--upstream", &upstream, "--driver", driver]);
        let url = proxy.url("/hello");
        assert_eq!(
            curl(&[&url]),
            (200, b"hello from nginx".to_vec()),
            "{upstream}"
        );
        let (status, seen) = curl(&[
            "-H",
            "Host: site",
            "-H",
            "X-Forwarded-For: 9.9.9.9",
            &proxy.url("/host"),
        ]);
        let seen = String::from_utf8(seen).unwrap();
        let is_named = seen.starts_with("site|127.0.0.1|1.1 millpond-") && seen.ends_with('|');
        assert!(status == 200 && is_named, "{upstream}: {seen}");
        let ab = peer("ab", &["-q", "-k", "-n", "2000", "-c", "16", &url]);
        let text = String::from_utf8_lossy(&ab.stdout).into_owned();
        let failed = text
            .lines()
            .find_map(|line| line.strip_prefix("Failed requests:"));
        assert_eq!(failed.map(str::trim), Some("0"), "{text}");
        assert!(!text.contains("Non-2xx"), "{text}");
        let asked = metric(&proxy, "millpond_http_requests_total");
        let wrk = Wrk::start("16", &url);
        eventually("requests", || {
            metric(&proxy, "millpond_http_requests_total") >= asked + 3_000.0
        });
        wrk.finish();
        let h2load = peer("h2load", &["--h1", "-n", "2000", "-c", "16", &url]);
        let text = String::from_utf8_lossy(&h2load.stdout).into_owned();
        assert!(text.contains("2000 succeeded, 0 failed"), "{text}");
        assert!(text.contains("status codes: 2000 2xx"), "{text}");
        let metrics = proxy.metrics_text();
        let count = |name: &str, kind: &str| -> u64 {
            let line = format!("millpond_upstream_{name}{{upstream=\"{upstream}\"{kind}}} ");
            let found = metrics.lines().find_map(|found| found.strip_prefix(&line));
            found
                .unwrap_or_else(|| panic!("{line}\n{metrics}"))
                .parse()
                .unwrap()
        };
        let new = count("connections_used_total", ",kind=\"new\"");
        let reused = count("connections_used_total", ",kind=\"reused\"");
        assert!(new <= 64 && reused > 30 * new, "{new} new, {reused} reused");
        assert_eq!(count("failures_total", ",cause=\"broken\""), 0);
        proxy.process.signal("TERM");
        assert_eq!(proxy.process.finish().code(), 0);
    }
}

/// Goal: names of upstreams and mirrors without an address are reported at the start, without any request, each in one
/// line, however many shards there are, and in the metrics; a name that has one is not.
#[test]
fn names_without_an_address_are_told_at_the_start() {
    let words = [
        "--upstream",
        "nowhere.invalid:80",
        "--upstream",
        "localhost:80",
        "--shards",
        "2",
    ];
    let mirror = ["--mirror", "neither.invalid:80"];
    let proxy = Server::start_proxy(&[&words[..], &mirror].concat());
    let names = [
        "upstream nowhere.invalid:80: ",
        "mirror neither.invalid:80: ",
    ];
    eventually("a line for each", || {
        let said = proxy.process.stderr_so_far();
        names.iter().all(|name| said.contains(name))
    });
    let unresolved = |name: &str| {
        let line = format!("millpond_upstream_unresolved_shards{{upstream=\"{name}\"}} ");
        let metrics = proxy.metrics_text();
        let found = metrics.lines().find_map(|found| found.strip_prefix(&line));
        found.map(str::to_owned)
    };
    eventually("both shards", || {
        unresolved("nowhere.invalid:80").as_deref() == Some("2")
    });
    assert_eq!(unresolved("localhost:80").as_deref(), Some("0"));
    assert_eq!(curl(&[&proxy.url("/")]).0, 502);
    proxy.process.signal("TERM");
    let finished = proxy.process.finish();
    for name in names {
        let lines = finished.stderr.lines().filter(|line| line.contains(name));
        assert_eq!(lines.count(), 1, "{finished:?}");
    }
    assert!(
        !finished.stderr.contains("localhost:80: its name"),
        "{finished:?}"
    );
}

/// Goal: a mirror is announced, gets its share, and is seen in the metrics.
#[test]
fn a_mirror_gets_its_share() {
    let servers = [Server::start(&["plaintext"]), Server::start(&["plaintext"])];
    let mirror = format!("{},percent=50", servers[1].address);
    let proxy = Server::start_proxy(&["--upstream", &servers[0].address, "--mirror", &mirror]);
    for _ in 0..10 {
        assert_eq!(curl(&[&proxy.url("/")]).0, 200);
    }
    let named = format!("{{mirror=\"{}\"", servers[1].address);
    let count = |name: &str, labels: &str| {
        let line = format!("millpond_mirror_{name}{named}{labels}}} ");
        let metrics = proxy.metrics_text();
        let found = metrics.lines().find_map(|found| found.strip_prefix(&line));
        found.and_then(|count| count.parse::<u64>().ok())
    };
    assert_eq!(count("requests_total", ""), Some(5));
    eventually("responses", || {
        count("responses_total", ",class=\"2xx\"") == Some(5)
    });
    let said = format!("50% of them are copied to {}", servers[1].address);
    eventually("a line", || proxy.process.stderr_so_far().contains(&said));
}

/// Goal: responses of Node.js, in chunks, come through, and its echo of an uploaded body is whole.
#[test]
fn node_echoes_through_the_proxy() {
    const SCRIPT: &str = "const s = require('http').createServer((q, a) => { a.writeHead(200); q.pipe(a); });\
         s.listen(0, '127.0.0.1', () => console.log(s.address().port));";
    let mut node = Running::start(
        Command::new("node")
            .args(["-e", SCRIPT])
            .stdin(Stdio::null()),
    );
    let port = node.first_line().trim().to_owned();
    let proxy = Server::start_proxy(&["--upstream", &format!("127.0.0.1:{port}")]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("body");
    for body_bytes in [0, 1, 1 << 20, 9 << 20] {
        let body: Vec<u8> = (0..body_bytes).map(|at| (at % 251) as u8).collect();
        fs::write(&file, &body).unwrap();
        let data = format!("@{}", file.display());
        for header in [
            "Expect:",
            "Transfer-Encoding: chunked",
            "Expect: 100-continue",
        ] {
            let (status, echoed) = curl(&[
                "-X",
                "POST",
                "-H",
                header,
                "--data-binary",
                &data,
                &proxy.url("/"),
            ]);
            assert_eq!((status, echoed.len()), (200, body.len()), "{header}");
            assert!(
                echoed == body,
                "{header}: {body_bytes} bytes came back changed"
            );
        }
    }
}

/// Goal: with a certificate on each side, and one asked of the proxy, a request passes; with the wrong
/// authority it does not.
#[test]
fn tls_is_spoken_on_both_sides() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    for name in ["front", "back", "own", "other"] {
        let names = vec!["localhost".to_owned()];
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(path(&format!("{name}.crt")), certificate.pem()).unwrap();
        fs::write(path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }
    let port = free_port();
    let _nginx = Nginx::start(
        &format!("127.0.0.1:{port} ssl"),
        &format!(
            "ssl_certificate {}; ssl_certificate_key {}; ssl_client_certificate {}; ssl_verify_client on;",
            path("back.crt"),
            path("back.key"),
            path("own.crt")
        ),
    );
    wait_until_up(&["-k", &format!("https://127.0.0.1:{port}/hello")]);
    let upstream = format!("https://localhost:{port}");
    let start = |authority: &str| {
        Server::start_proxy(&[
            "--upstream",
            &upstream,
            "--upstream-ca",
            &path(authority),
            "--upstream-cert",
            &path("own.crt"),
            "--upstream-key",
            &path("own.key"),
            "--tls-cert",
            &path("front.crt"),
            "--tls-key",
            &path("front.key"),
        ])
    };
    for (authority, expected) in [("back.crt", 200), ("other.crt", 502)] {
        let proxy = start(authority);
        let port = proxy.address.rsplit_once(':').unwrap().1;
        let url = format!("https://localhost:{port}/host");
        let (status, seen) = curl(&["--cacert", &path("front.crt"), &url]);
        let seen = String::from_utf8(seen).unwrap();
        assert_eq!(status, expected, "{seen}");
        if expected == 200 {
            assert!(seen.ends_with("CN=own"), "{seen}");
        }
    }
}

/// The proxy's file, with these upstreams.
fn write_config(path: &Path, upstreams: &[&str]) {
    let tables = upstreams
        .iter()
        .map(|it| format!("[[upstream]]\naddress = \"{it}\"\n"));
    fs::write(
        path,
        format!("balance = \"round-robin\"\n{}", tables.collect::<String>()),
    )
    .unwrap();
}

/// Goal: SIGHUP takes the file's upstreams instead of the old ones while wrk runs, and no request
/// fails; a file with a mistake changes nothing and says where it is.
#[test]
fn sighup_reads_the_file_again() {
    let (first, second) = (Server::start(&["plaintext"]), Server::start(&["plaintext"]));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("proxy.toml");
    write_config(&file, &[&first.address]);
    let proxy = Server::start_proxy(&["--config", &file.display().to_string()]);
    let url = proxy.url("/");
    let wrk = Wrk::start("8", &url);
    for round in 0..10 {
        let upstreams = match round % 3 {
            0 => vec![&second],
            1 => vec![&first, &second],
            _ => vec![&first],
        };
        let addresses: Vec<&str> = upstreams.iter().map(|it| &*it.address).collect();
        write_config(&file, &addresses);
        proxy.process.signal("HUP");
        eventually("the file is read", || {
            let told = proxy.process.stderr_so_far();
            told.matches("was read again").count() == round + 1
        });
        upstreams.iter().for_each(|it| wait_for_work(it));
    }
    wrk.finish();
    fs::write(&file, "balance = \"any\"\n").unwrap();
    proxy.process.signal("HUP");
    assert_eq!(curl(&[&url]).0, 200);
    proxy.process.signal("TERM");
    let finished = proxy.process.finish();
    assert_eq!(finished.code(), 0);
    assert!(finished.stderr.contains("was read again"), "{finished:?}");
    assert!(
        finished.stderr.contains("proxy.toml:1: balance: "),
        "{finished:?}"
    );
}

/// Until a server has had requests again, beside those that ask it how many.
fn wait_for_work(server: &Server) {
    let before = metric(server, "millpond_http_requests_total");
    let mut looks = 0.0;
    eventually("it is asked", || {
        looks += 1.0;
        metric(server, "millpond_http_requests_total") > before + looks
    });
}

/// Goal: a mistake in a file is one sentence with the line, the key and what is allowed, and exit status 2; nothing
/// listens then.
#[test]
fn a_wrong_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("proxy.toml");
    for (text, part) in [
        ("tries = 2\nbalance = \"any\"", "proxy.toml:2: balance: "),
        ("[[upstream]]\nadress = \"a:1\"", "proxy.toml:2: adress: "),
        ("", "names no upstream: write [[upstream]]"),
        (
            "[[upstream]]\naddress=\"a:1\"\n[[upstream]]\naddress=\"a:1\"",
            "twice",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let words = [
            "proxy",
            "--listen",
            "127.0.0.1:0",
            "--config",
            &file.display().to_string(),
        ];
        let finished = run(&mut millpond(&words));
        assert_eq!(
            (finished.code(), &*finished.stdout),
            (2, ""),
            "{text}: {finished:?}"
        );
        assert!(finished.sentence().contains(part), "{text}: {finished:?}");
    }
}

/// Goal: an upstream that is killed and started again under load costs no idempotent request while
/// another lives.
#[test]
fn an_upstream_may_die_under_load() {
    let living = Server::start(&["plaintext"]);
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let start = || {
        let words = ["serve", "plaintext", "--shards", "1", "--listen", &address];
        let mut process = Running::start(&mut millpond(&words));
        assert_eq!(process.first_line(), format!("listening on {address}\n"));
        let address = address.clone();
        Server::running(process, address)
    };
    let mut mortal = start();
    let proxy = Server::start_proxy(&[
        "--upstream",
        &living.address,
        "--upstream",
        &address,
        "--retry-budget",
        "100",
        "--eject-for",
        "100ms",
    ]);
    let url = proxy.url("/");
    let wrk = Wrk::start("8", &url);
    for _ in 0..5 {
        wait_for_work(&mortal);
        mortal.process.signal("KILL");
        assert!(!mortal.process.finish().status.success());
        wait_for_work(&living);
        mortal = start();
    }
    wait_for_work(&mortal);
    wrk.finish();
}

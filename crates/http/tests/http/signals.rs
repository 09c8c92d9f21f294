//! `serve` as a process: SIGTERM drains, a second one ends at once, SIGUSR1 prints the pools.
//!
//! Signals concern a whole process, so the server runs in one of its own: this test program,
//! started again with a variable that makes one of its tests serve.

use crate::support::{Echo, PATIENCE, RawClient, config, pool_mode};
use millpond_http::{Flow, Limits, Request, Response, ServeError, Service, ServiceContext, serve};
use millpond_io::IoError;
use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const ROLE: &str = "MILLPOND_TEST_SERVES";

/// Never responds.
struct Silent;

impl Service for Silent {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        match request.path() {
            b"/never" => Flow::Pending,
            _ => Echo.call(request, response, context),
        }
    }
}

/// Serves when asked to by the variable; the other tests here start it. Alone it proves that
/// `serve` refuses what cannot work before it starts anything.
#[test]
fn serve_until_a_signal() {
    let config = config(Limits::default(), pool_mode());
    if std::env::var_os(ROLE).is_none() {
        let no_shards = millpond_http::ServeConfig {
            shards: 0,
            ..config
        };
        let outcome = serve(&no_shards, |_| Ok::<_, Infallible>(Silent), |_| ());
        assert!(matches!(outcome, Err(ServeError::NoShards)), "{outcome:?}");
        return;
    }
    let report = serve(
        &config,
        |_start| Ok::<_, Infallible>(Silent),
        |address| println!("\nlistening {address}"),
    )
    .unwrap();
    println!("\nended {} {}", report.requests, report.is_aborted);
}

/// The server's process; ended when the test ends, however it ends.
struct Process {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    address: SocketAddr,
}

impl Process {
    fn start() -> Self {
        Self::start_by(&mut Command::new(std::env::current_exe().unwrap()))
    }

    /// With so many descriptors for everything: listener, epoll, eventfd, pipes, connections.
    fn start_with_descriptors(count: usize) -> Self {
        let limited = format!("ulimit -n {count} && exec \"$0\" \"$@\"");
        let program = std::env::current_exe().unwrap();
        Self::start_by(Command::new("sh").arg("-c").arg(limited).arg(program))
    }

    fn start_by(command: &mut Command) -> Self {
        let mut child = command
            .args(["--exact", "signals::serve_until_a_signal", "--nocapture"])
            .env(ROLE, "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let address = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut process = Self {
            child,
            output,
            address,
        };
        process.address = process.line("listening ").parse().unwrap();
        process
    }

    /// The text after `start` on the next line that begins with it.
    fn line(&mut self, start: &str) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim().to_owned();
            }
            line.clear();
        }
        panic!("the server ended without saying {start:?}");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(status.success());
    }

    fn ends_well(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const NEVER: &str = "GET /never HTTP/1.1\r\nHost: a\r\n\r\n";
const NOW: &str = "GET /now HTTP/1.1\r\nHost: a\r\n\r\n";

/// Goal: SIGTERM (and SIGINT) end a server that has nothing to do, with its connections.
#[test]
fn one_signal_drains() {
    for signal in ["-TERM", "-INT"] {
        let mut server = Process::start();
        let mut client = RawClient::connect(server.address);
        assert_eq!(client.ask(NOW).status, 200);
        server.signal(signal);
        client.expect_end();
        assert_eq!(server.line("ended "), "1 false");
        assert!(server.ends_well());
    }
}

/// Goal: a request without a response delays the drain; a second signal cuts it.
#[test]
fn a_second_signal_ends_at_once() {
    let mut server = Process::start();
    let mut waiting = RawClient::connect(server.address);
    let mut idle = RawClient::connect(server.address);
    waiting.send(NEVER);
    while !idle
        .ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        .text()
        .contains("connections{shard=\"0\"} 2")
    {}
    server.signal("-TERM");
    // The idle connection ends with the first signal; from then on the server is draining.
    idle.expect_end();
    server.signal("-TERM");
    waiting.expect_end();
    assert!(server.line("ended ").ends_with(" true"));
    assert!(server.ends_well());
}

/// Goal: out of descriptors, the connections idle for longest make room, so that every newcomer
/// is served; when they leave, the server is as good as before.
#[test]
fn running_out_of_descriptors_sheds_idle_connections() {
    let mut server = Process::start_with_descriptors(48);
    let mut clients = Vec::new();
    for _ in 0..100 {
        let mut client = RawClient::connect(server.address);
        assert_eq!(client.ask(NOW).status, 200);
        clients.push(client);
    }
    clients[0].expect_end();
    drop(clients);
    let mut client = RawClient::connect(server.address);
    let text = client
        .ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        .text();
    let shed = "millpond_http_connections_shed_total{shard=\"0\"} ";
    let count: u32 = text
        .split(shed)
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        (50..100).contains(&count),
        "{count} connections were closed for others"
    );
    server.signal("-TERM");
    assert!(server.ends_well());
}

/// Goal: SIGUSR1 prints one line per pool on stderr without other effects.
#[test]
fn sigusr1_prints_the_accounting() {
    let mut server = Process::start();
    let mut client = RawClient::connect(server.address);
    let mut errors = BufReader::new(server.child.stderr.take().unwrap()).lines();
    server.signal("-USR1");
    // Each has a line, for which one waits: two signals that come together have no order.
    let mut missing = vec![
        "http_connections",
        "shard_blocks",
        "shard_arena",
        "shard_io_buffers",
    ];
    while !missing.is_empty() {
        let line = errors.next().expect("the server ended").unwrap();
        missing.retain(|pool| !line.contains(pool));
    }
    assert_eq!(client.ask(NOW).status, 200);
    server.signal("-TERM");
    server.line("ended ");
}

/// Goal: a taken port is one sentence that names it, and no thread is left behind.
#[test]
fn a_taken_port_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for shards in [1, 2] {
        let config = millpond_http::ServeConfig {
            listen: address.into(),
            shards,
            ..config(Limits::default(), pool_mode())
        };
        let make = |_| Ok::<_, Infallible>(Silent);
        let error = millpond_http::serve_with(&config, make, |_| ()).unwrap_err();
        assert!(
            matches!(error, ServeError::Io(IoError::AddressTaken { .. })),
            "{error:?}"
        );
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

/// Goal: when one shard's service cannot be made the others are stopped and the cause is reported.
#[test]
fn a_failing_service_stops_the_others() {
    let config = millpond_http::ServeConfig {
        shards: 3,
        ..config(Limits::default(), pool_mode())
    };
    let make = |start: millpond_http::ShardStart| match start.index {
        2 => Err("no disk: insert one"),
        _ => Ok(Silent),
    };
    let control = |_: &millpond_http::Running| panic!("a server that is not whole is never up");
    let error = millpond_http::serve_with(&config, make, control).unwrap_err();
    assert!(
        matches!(error, ServeError::Service { shard_index: 2, .. }),
        "{error:?}"
    );
    assert_eq!(error.to_string(), "no disk: insert one");
}

//! Exchanges with other servers, over real sockets and both kernel drivers: a relay between raw clients
//! and upstreams, sound ones and scripted bad ones.

use crate::relay::{Log, Relay, SharedLog};
use crate::support::{PATIENCE, TestServer, config, pattern, send_until_refused, wait_until};
use millpond_http::client::{Phase, Timeouts};
use millpond_http::{
    BodyLength, Client, ClientConfig, DriverChoice, Flow, Interest, LimitValues, Limits, Method,
    Plaintext, Request, Response, Service, ServiceContext, StatusCode, StreamEvent,
};
use millpond_io::connection_pool::{PoolConfig, Target};
use millpond_mempool::PoolMode;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

mod failing;

/// Sends every body back as it comes, in chunks if it came so.
#[derive(Default)]
struct Echo;

impl Service for Echo {
    fn takes_body_in_parts(&mut self, _request: &Request<'_>) -> bool {
        true
    }

    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        _context: &mut ServiceContext<'_>,
    ) -> Flow {
        let length = match request.framing() {
            millpond_http::Framing::Length(length) => BodyLength::Known(length),
            _ => BodyLength::Unknown,
        };
        response.start(StatusCode::OK, &[], length).unwrap();
        Flow::Stream(Interest::BODY)
    }

    fn stream(
        &mut self,
        event: StreamEvent<'_>,
        response: &mut Response<'_>,
        _context: &mut ServiceContext<'_>,
    ) -> Flow {
        match event {
            StreamEvent::Body(part) => {
                response.write(part).unwrap();
                Flow::Stream(Interest::BODY)
            }
            _ => {
                response.finish().unwrap();
                Flow::Done
            }
        }
    }
}

/// The kernel's drivers there are.
fn drivers() -> Vec<DriverChoice> {
    // On a thread of its own: the end of the probe's ring interrupts the thread that made it.
    let probed = std::thread::spawn(|| millpond_io::driver::uring::probe().is_ok());
    let has_ring = probed.join().unwrap();
    let mut drivers = vec![DriverChoice::Epoll];
    drivers.extend(has_ring.then_some(DriverChoice::Uring));
    drivers
}

struct Scene {
    server: TestServer,
    log: SharedLog,
}

fn relay(driver: DriverChoice, addresses: Vec<SocketAddr>, timeouts: Timeouts) -> Scene {
    relay_with(driver, addresses, timeouts, 0, PoolConfig::default())
}

fn relay_with(
    driver: DriverChoice,
    addresses: Vec<SocketAddr>,
    timeouts: Timeouts,
    retries: u32,
    pool: PoolConfig,
) -> Scene {
    let log = SharedLog::default();
    let given = Arc::clone(&log);
    let mut config = config(Limits::default(), PoolMode::On);
    config.driver = driver;
    let server = TestServer::start(config, move |start| {
        let client = Client::new(
            &start,
            ClientConfig {
                pool,
                limits: LimitValues {
                    body_bytes_max: u64::MAX,
                    ..LimitValues::default()
                }
                .checked()
                .unwrap(),
                ..ClientConfig::default()
            },
        );
        let targets = addresses
            .iter()
            .map(|address| Target::at((*address).into()));
        Relay::new(client, targets.collect(), start.pool_mode)
            .with_timeouts(timeouts)
            .with_retries(retries)
            .logging(Arc::clone(&given))
    });
    Scene { server, log }
}

impl Scene {
    fn log(&self) -> Log {
        self.log.lock().unwrap().clone()
    }
}

const GET: &str = "GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n";

/// An upstream that does to each connection what `script` says.
fn scripted(
    script: impl Fn(usize, TcpStream) + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&accepted);
    let script = Arc::new(script);
    std::thread::spawn(move || {
        for (index, stream) in listener.incoming().enumerate() {
            counted.fetch_add(1, Ordering::Relaxed);
            let script = Arc::clone(&script);
            let stream = stream.unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            std::thread::spawn(move || script(index, stream));
        }
    });
    (address, accepted)
}

/// Reads a head; false at the end.
fn read_head(stream: &mut TcpStream) -> bool {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// Holds the connection until the other side ends it.
fn wait_for_end(stream: &mut TcpStream) {
    let mut room = [0; 4096];
    while matches!(stream.read(&mut room), Ok(count) if count > 0) {}
}

/// Goal: requests one after the other go over one connection, and their responses come back whole.
#[test]
fn answers_come_back_over_one_connection() {
    for driver in drivers() {
        let upstream = TestServer::with_limits(Limits::default(), |_| Plaintext);
        let scene = relay(driver, vec![upstream.address], Timeouts::default());
        let mut client = scene.server.connect();
        for _ in 0..50 {
            let response = client.ask(GET);
            assert_eq!((response.status, &*response.text()), (200, "Hello, World!"));
        }
        client.send(GET.replace("GET", "HEAD"));
        assert_eq!(client.response_to_head().status, 200);
        client.send(GET.repeat(20));
        for _ in 0..20 {
            assert_eq!(client.response().text(), "Hello, World!");
        }
        let log = scene.log();
        assert!(log.failures.is_empty(), "{:?}", log.failures);
        let reused = log.reports.iter().filter(|report| report.is_reused).count();
        assert_eq!(reused, log.reports.len() - 1, "all but the first");
        assert!(log.reports.iter().all(|report| report.is_request_complete));
    }
}

/// Goal: bodies of any length and framing go there and come back, byte for byte, in both directions at
/// once.
#[test]
fn bodies_go_both_ways() {
    for driver in drivers() {
        let upstream = TestServer::with_limits(
            LimitValues {
                body_bytes_max: 1 << 30,
                ..LimitValues::default()
            }
            .checked()
            .unwrap(),
            |_| Echo,
        );
        let scene = relay(driver, vec![upstream.address], Timeouts::default());
        let mut client = scene.server.connect();
        for length in [0, 1, 1_024, 32_768, 200_000, 3_000_000] {
            let body = pattern(7, length);
            client.send(format!(
                "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
            ));
            client.send(&body);
            let response = client.response();
            assert_eq!(response.status, 200, "{}", response.text());
            assert!(response.body == body, "{length} bytes came back changed");
            client.send("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
            for part in body.chunks(10_000) {
                client.send(format!("{:x}\r\n", part.len()));
                client.send(part);
                client.send("\r\n");
            }
            client.send("0\r\n\r\n");
            let response = client.response();
            assert_eq!(response.status, 200, "{}", response.text());
            assert!(
                response.body == body,
                "{length} bytes in chunks came back changed"
            );
        }
        assert!(scene.log().failures.is_empty());
    }
}

/// Goal: an upstream that sends without end is stopped by a client that reads nothing; the bytes waiting in between are
/// bounded. Then all of it arrives.
#[test]
fn a_slow_client_slows_the_upstream() {
    const TOTAL: usize = 64 << 20;
    for driver in drivers() {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let (address, _) = scripted(move |_, mut stream| {
            assert!(read_head(&mut stream));
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {TOTAL}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            let part = vec![b'x'; 64 << 10];
            for _ in 0..TOTAL / part.len() {
                stream.write_all(&part).unwrap();
                counted.fetch_add(part.len(), Ordering::Relaxed);
            }
            wait_for_end(&mut stream);
        });
        let scene = relay(driver, vec![address], Timeouts::default());
        let mut client = scene.server.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        // Until nothing moves any more.
        let mut last = 0;
        let mut still = 0;
        while still < 10 {
            std::thread::sleep(Duration::from_millis(20));
            let now = sent.load(Ordering::Relaxed);
            still = if now == last && now > 0 { still + 1 } else { 0 };
            last = now;
        }
        assert!(last < TOTAL / 2, "{last} bytes went nowhere");
        assert_eq!(client.response().body.len(), TOTAL);
    }
}

/// Goal: an upstream that reads nothing stops the client's upload; then all of it arrives.
#[test]
fn a_slow_upstream_slows_the_client() {
    const TOTAL: usize = 32 << 20;
    for driver in drivers() {
        let may_read = Arc::<AtomicBool>::default();
        let released = Arc::clone(&may_read);
        let (address, _) = scripted(move |_, mut stream| {
            assert!(read_head(&mut stream));
            wait_until("released", || released.load(Ordering::SeqCst));
            let mut count = 0;
            let mut room = [0; 1 << 16];
            while count < TOTAL {
                count += stream.read(&mut room).unwrap();
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            stream.write_all(answer).unwrap();
            wait_for_end(&mut stream);
        });
        let scene = relay(driver, vec![address], Timeouts::default());
        let mut client = scene.server.connect();
        client.send(format!(
            "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {TOTAL}\r\n\r\n"
        ));
        let body = vec![b'x'; TOTAL];
        let sent = send_until_refused(&mut client.stream, &body);
        assert!(sent < TOTAL / 2, "{sent} bytes went nowhere");
        may_read.store(true, Ordering::SeqCst);
        client.send(&body[sent..]);
        assert_eq!(client.response().text(), "ok");
        assert_eq!(scene.log().reports.len(), 1);
    }
}

/// So long is waited for what never comes.
const SHORT_NS: u64 = 200_000_000;

/// Goal: a kept connection that ends when it is used again is reported as such; the request is sent again where that is
/// safe, and only there.
#[test]
fn a_stale_connection_costs_a_safe_request_nothing() {
    for driver in drivers() {
        let (address, _) = scripted(|index, mut stream| {
            // The first connection responds once and closes on the second request.
            let answers = if index == 0 { 1 } else { usize::MAX };
            for _ in 0..answers {
                if !read_head(&mut stream) {
                    return;
                }
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                stream.write_all(answer).unwrap();
            }
            read_head(&mut stream);
        });
        let timeouts = Timeouts::default();
        let scene = relay_with(driver, vec![address], timeouts, 1, PoolConfig::default());
        let mut client = scene.server.connect();
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(client.ask(get).text(), "ok");
        assert_eq!(client.ask(get).text(), "ok");
        let failures = scene.log().failures;
        assert_eq!(failures.len(), 1);
        assert!(failures[0].is_stale_connection() && failures[0].may_have_arrived);
        assert!(failures[0].may_repeat(Method::Get) && !failures[0].may_repeat(Method::Post));
    }
}

/// Goal: a client that goes away takes its exchange with it; the connection is not used again.
#[test]
fn who_goes_takes_the_exchange_along() {
    for driver in drivers() {
        let ended = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&ended);
        let begun = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&begun);
        let (address, _) = scripted(move |_, mut stream| {
            read_head(&mut stream);
            seen.fetch_add(1, Ordering::Relaxed);
            wait_for_end(&mut stream);
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let scene = relay(driver, vec![address], Timeouts::default());
        let client = scene.server.connect();
        let mut client = client;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("begun", || begun.load(Ordering::Relaxed) == 1);
        // A reset: a mere end could be a client that still waits for its response.
        let no_linger = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&client.stream, no_linger).unwrap();
        drop(client);
        wait_until("ended", || ended.load(Ordering::Relaxed) == 1);
        assert!(scene.log().failures.is_empty(), "nothing is told of it");
    }
}

/// Goal: another protocol goes through both ways until one side ends it; and a request over a
/// connection of its own leaves none behind.
#[test]
fn other_protocols_pass() {
    for driver in drivers() {
        let (address, accepted) = scripted(|_, mut stream| {
            let mut head = [0; 1024];
            let count = stream.read(&mut head).unwrap();
            if head[..count].starts_with(b"GET /upgrade") {
                let head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n\r\nhello ";
                stream.write_all(head).unwrap();
                let mut ping = [0; 4];
                stream.read_exact(&mut ping).unwrap();
                stream.write_all(&ping).unwrap();
                return;
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nalone";
            stream.write_all(answer).unwrap();
            wait_for_end(&mut stream);
        });
        let scene = relay(driver, vec![address], Timeouts::default());
        let mut client = scene.server.connect();
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.ask(get("/upgrade")).text(), "hello ping");
        for _ in 0..2 {
            assert_eq!(client.ask(get("/alone")).text(), "alone");
        }
        assert_eq!(accepted.load(Ordering::Relaxed), 3);
    }
}

/// Goal: with every connection in use requests wait in order; those that wait too long are 503, since
/// no upstream is to blame.
#[test]
fn waiting_for_a_place_has_an_end() {
    for driver in drivers() {
        let is_asked = Arc::<AtomicBool>::default();
        let may_answer = Arc::<AtomicBool>::default();
        let (asked, released) = (Arc::clone(&is_asked), Arc::clone(&may_answer));
        let (address, _) = scripted(move |_, mut stream| {
            while read_head(&mut stream) {
                asked.store(true, Ordering::SeqCst);
                wait_until("released", || released.load(Ordering::SeqCst));
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                stream.write_all(answer).unwrap();
            }
        });
        let pool = PoolConfig {
            connections_max: 1,
            ..PoolConfig::default()
        };
        let scene = relay_with(driver, vec![address], Timeouts::default(), 0, pool);
        let mut first = scene.server.connect();
        first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("asked", || is_asked.load(Ordering::SeqCst));
        let second = scene
            .server
            .connect()
            .ask("GET /impatient HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(second.status, 503);
        may_answer.store(true, Ordering::SeqCst);
        assert_eq!(first.response().status, 200);
        assert_eq!(scene.log().failures[0].phase, Phase::Queue);
    }
}

/// Goal: 100 Continue and other informational responses are reported, and the final one comes after them.
#[test]
fn informational_answers_are_told() {
    for driver in drivers() {
        let (address, _) = scripted(|_, mut stream| {
            read_head(&mut stream);
            let answer =
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n\
                HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            for byte in answer {
                stream.write_all(&[*byte]).unwrap();
            }
            wait_for_end(&mut stream);
        });
        let scene = relay(driver, vec![address], Timeouts::default());
        let response = scene
            .server
            .connect()
            .ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(response.text(), "ok");
        assert_eq!(scene.log().informational, 2);
    }
}

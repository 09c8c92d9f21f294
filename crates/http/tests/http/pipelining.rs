//! Order, late responses, and peers that do not read.

use crate::support::{Echo, MODES, PATIENCE, RawClient, TestServer, config, pool_mode};
use millpond_http::{
    Completions, Flow, LimitValues, Limits, Request, RequestToken, Response, Service,
    ServiceContext, ShardStart, StatusCode,
};
use millpond_mempool::PoolMode;
use std::io::{ErrorKind, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Jobs to the responding thread and back: the token, and the response.
type Job = (RequestToken, Vec<u8>);

/// Another thread responds to `/late...`, `/never` gets no response, all others get one at once.
struct Late {
    jobs: Sender<Job>,
    done: Receiver<Job>,
    /// How many responses found their connection gone.
    lost: Arc<Mutex<usize>>,
}

impl Late {
    fn start(start: &ShardStart, lost: Arc<Mutex<usize>>) -> Self {
        let (jobs, todo) = channel::<Job>();
        let (finished, done) = channel();
        let waker = start.waker.clone();
        std::thread::spawn(move || {
            for job in todo {
                if finished.send(job).is_err() {
                    return;
                }
                waker.wake();
            }
        });
        Self { jobs, done, lost }
    }
}

impl Service for Late {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let target = request.target().as_bytes();
        if target.starts_with(b"/late") {
            self.jobs.send((context.token, target.to_vec())).unwrap();
            return Flow::Pending;
        }
        if target == b"/never" {
            return Flow::Pending;
        }
        if target == b"/forgotten" {
            return Flow::Done;
        }
        response.send(StatusCode::OK, None, target).unwrap();
        Flow::Done
    }

    fn on_wake(&mut self, completions: &mut Completions<'_>) {
        for (token, text) in self.done.try_iter() {
            let answer = |response: &mut Response<'_>, _: &mut _| {
                response.send(StatusCode::OK, None, &text).unwrap();
            };
            if !completions.respond(token, answer) {
                *self.lost.lock().unwrap() += 1;
            }
            let again = completions.respond(token, |_, _| panic!("answered twice"));
            assert!(!again, "a token answers once");
        }
    }
}

fn late_server(limits: Limits, mode: PoolMode) -> (TestServer, Arc<Mutex<usize>>) {
    let lost = Arc::new(Mutex::new(0));
    let for_service = Arc::clone(&lost);
    let make = move |start: ShardStart| Late::start(&start, Arc::clone(&for_service));
    (TestServer::start(config(limits, mode), make), lost)
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Goal: responses leave in the order of the requests, whichever is ready first, over several ticks.
#[test]
fn answers_keep_the_order_of_requests() {
    for mode in MODES {
        let limits = LimitValues {
            pipelined_per_tick_max: 3,
            ..LimitValues::default()
        }
        .checked()
        .unwrap();
        let (server, _) = late_server(limits, mode);
        let targets: Vec<String> = (0..60)
            .map(|index| {
                if index % 7 == 0 {
                    format!("/late{index}")
                } else {
                    format!("/{index}")
                }
            })
            .collect();
        let mut client = server.connect();
        client.send(targets.iter().map(|target| get(target)).collect::<String>());
        for target in &targets {
            assert_eq!(&client.response().text(), target);
        }
        // Bytes that come while a response is pending wait, also when they are cut.
        let late = get("/late");
        client.send(format!("{late}{}", &late[..10]));
        assert_eq!(client.response().text(), "/late");
        client.send(&late[10..]);
        assert_eq!(client.response().text(), "/late");
    }
}

/// Goal: more requests than a tick serves are all served, although nothing more arrives.
#[test]
fn a_deep_pipeline_needs_no_further_bytes() {
    let server = TestServer::with_limits(Limits::default(), |_| Echo);
    let mut client = server.connect();
    client.send(get("/x").repeat(1000));
    for _ in 0..1000 {
        assert_eq!(client.response().text(), "GET /x\n");
    }
}

/// Goal: a response for a connection that is gone is reported, and has no other effect.
#[test]
fn answers_to_departed_clients_are_dropped() {
    let (server, lost) = late_server(Limits::default(), pool_mode());
    for _ in 0..20 {
        let mut client = server.connect();
        client.send(get("/late"));
        drop(client);
    }
    let mut client = server.connect();
    for _ in 0..20 {
        assert_eq!(client.ask(get("/late")).text(), "/late");
    }
    drop(client);
    drop(server);
    // Whether a FIN or a reset came first is the kernel's business; both must be survived.
    assert!(*lost.lock().unwrap() <= 20);
}

/// Goal: a service without a response is a 503, not a hanging client.
#[test]
fn a_forgotten_answer_becomes_503() {
    let (server, _) = late_server(Limits::default(), pool_mode());
    let mut client = server.connect();
    assert_eq!(client.ask(get("/forgotten")).status, 503);
    client.expect_end();
}

/// Goal: a client that asks for much and reads nothing stops being read (its sends block), and
/// gets everything in order once it reads.
#[test]
fn a_client_that_does_not_read_stops_being_served() {
    for mode in MODES {
        let server = TestServer::start(config(Limits::default(), mode), |_| Echo);
        let mut client = server.connect();
        let body = vec![b'x'; 50_000];
        let request = [
            b"PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n",
            &body[..],
        ]
        .concat();
        let sent_count = send_until_blocked(&mut client, &request);
        for _ in 0..sent_count {
            assert_eq!(client.response().body.len(), 50_007);
        }
        client.stream.set_write_timeout(Some(PATIENCE)).unwrap();
        // The connection is as good as before.
        assert_eq!(client.ask(get("/after")).text(), "GET /after\n");
        let live = live_block_bytes(&server);
        assert!(live < 4 << 20, "{live} bytes are still held");
    }
}

/// Sends the request again and again until the peer takes no more; completes the last one from
/// a second thread's view by reading meanwhile. Returns how many were sent.
fn send_until_blocked(client: &mut RawClient, request: &[u8]) -> usize {
    client
        .stream
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let mut sent_count = 0;
    loop {
        let mut at = 0;
        while at < request.len() {
            match client.stream.write(&request[at..]) {
                Ok(count) => at += count,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    finish_in_background(client, request[at..].to_vec());
                    return sent_count + 1;
                }
            }
        }
        sent_count += 1;
        assert!(
            sent_count < 20_000,
            "1 GB was taken from a client that reads nothing"
        );
    }
}

/// The rest of a request fits only once responses are read, which the caller does.
fn finish_in_background(client: &RawClient, rest: Vec<u8>) {
    let mut stream = client.stream.try_clone().unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    std::thread::spawn(move || stream.write_all(&rest).unwrap());
}

fn live_block_bytes(server: &TestServer) -> u64 {
    let text = server.connect().ask(get("/metrics")).text();
    let line = text
        .lines()
        .find(|line| {
            line.starts_with("millpond_pool_live_bytes{") && line.contains("\"shard_blocks\"")
        })
        .expect("no live_bytes of shard_blocks");
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Goal: a client that never reads is cut after the stall limit, and its memory comes back.
#[test]
fn a_stalled_reader_is_cut() {
    let limits = LimitValues {
        write_stall_ns: 200_000_000,
        write_rate_bytes_per_s_min: u64::MAX,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Echo);
    let mut client = server.connect();
    let request = [
        b"PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n",
        &vec![b'x'; 8_000_000][..],
    ]
    .concat();
    client.send(&request);
    let mut observer = server.connect();
    let stalls = |text: &str| text.contains("millpond_http_write_stalls_total{shard=\"0\"} 1");
    let deadline = std::time::Instant::now() + PATIENCE;
    while !stalls(&observer.ask(get("/metrics")).text()) {
        assert!(
            std::time::Instant::now() < deadline,
            "the stalled reader is still there"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(live_block_bytes(&server) < 1 << 20);
}

/// Goal: a pending response does not keep a stopping server alive longer than the drain allows.
#[test]
fn a_drain_ends_at_its_deadline() {
    let limits = LimitValues {
        drain_timeout_ns: 200_000_000,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let (server, _) = late_server(limits, pool_mode());
    let mut client = server.connect();
    client.send(get("/never"));
    // A second connection shows that the first one's request was read, by one more than its own.
    let mut other = server.connect();
    let mut looks = 1;
    let needs_own_connection =
        |text: &str, looks: u32| text.contains(&format!("requests_total{{shard=\"0\"}} {looks}\n"));
    while needs_own_connection(&other.ask(get("/metrics")).text(), looks) {
        looks += 1;
    }
    assert!(server.stop().is_aborted);
    client.expect_end();
}

/// Goal: a graceful stop completes arrived requests, sends `Connection: close`, and ends idle connections.
#[test]
fn a_graceful_stop_answers_what_was_asked() {
    let (mut server, _) = late_server(Limits::default(), pool_mode());
    let mut idle = server.connect();
    assert_eq!(idle.ask(get("/1")).status, 200);
    let mut asking = server.connect();
    asking.send(get("/late"));
    let mut half = server.connect();
    let begun = "GET /half HTTP/1.1\r\nHo";
    half.send(begun);
    // All of it has been read when that many bytes were received beside the checks.
    let mut looked_bytes = 0;
    let read_bytes = [get("/1"), get("/late"), begun.to_owned()].concat().len();
    loop {
        let look = get("/metrics");
        looked_bytes += look.len();
        let received = format!(
            "millpond_driver_received_bytes_total{{shard=\"0\"}} {}\n",
            read_bytes + looked_bytes
        );
        if idle.ask(look).text().contains(&received) {
            break;
        }
    }
    server.begin_stop();
    idle.expect_end();
    let response = asking.response();
    assert_eq!(response.text(), "/late");
    asking.expect_end();
    half.send("st: a\r\n\r\n");
    let response = half.response();
    assert_eq!(
        (response.text().as_str(), response.header("connection")),
        ("/half", Some("close"))
    );
    half.expect_end();
    assert!(!server.stop().is_aborted);
}

/// A client whose request had arrived, and had to wait behind others for its turn to be read, was treated as idle when
/// the server had to stop: a reset instead of its response. Goal: every request that arrived before the stop gets its
/// response, however many they are.
#[test]
fn a_graceful_stop_answers_a_crowd() {
    const CROWD: usize = 200;
    for _ in 0..5 {
        let (mut server, _) = late_server(Limits::default(), pool_mode());
        let mut clients: Vec<_> = (0..CROWD).map(|_| server.connect()).collect();
        for client in &mut clients {
            assert_eq!(client.ask(get("/first")).status, 200);
        }
        clients.extend((0..CROWD).map(|_| server.connect()));
        for client in &mut clients {
            client.send(get("/1"));
        }
        server.begin_stop();
        for client in &mut clients {
            assert_eq!(client.response().text(), "/1");
        }
        drop(clients);
        assert!(!server.stop().is_aborted);
    }
}

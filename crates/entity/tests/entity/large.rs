//! Large values: one without memory waits, for a while, and no other request does.

use std::sync::Arc;

use crate::support::{
    Client, LONG, TestServer, patient_limits, request, request_with, target, wait_until,
};
use millpond_entity::Store as _;
use millpond_entity::access::{Access, Tokens};
use millpond_entity::parts::PART_BYTES;
use millpond_entity::range::{RangeFormat, ScanRange};
use millpond_entity::record::{Head, Version, encode};
use millpond_entity::scanner::{Ask, ScanAnswer, ScanLink, Scanner, Turn};
use millpond_entity::store::faulty::{Faults, FaultyStore};
use millpond_entity::store::memory::MemoryStore;
use millpond_entity::store::{Durability, Write};
use millpond_http::{BodyBudget, LimitValues, RequestToken};
use millpond_io::{Driver as _, EpollDriver};
use millpond_mempool::{BlockPool, Buffer, PoolMode};

const LARGE_BYTES_MAX: u64 = 1 << 20;

/// Four bodies, each short enough to be received whole, that leave no room for another.
const HALVES_BYTES: usize = 4 * PART_BYTES - 60_000;
const _: () = assert!(HALVES_BYTES + 200_000 > LARGE_BYTES_MAX as usize);

/// More than the sockets between a server and a client that does not read take.
const STUCK_BYTES: usize = 24 << 20;

fn start() -> TestServer {
    TestServer::start(&Arc::new(MemoryStore::new()), |config, http| {
        config.large_bytes_max = LARGE_BYTES_MAX;
        // Bodies meet whichever shard they came to.
        http.shards = 2;
    })
}

fn value(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

/// Connections that have sent nearly all of a PUT, and the rest of each: they use all memory. The server sends 100
/// Continue when it has taken memory for one.
fn half_sent(server: &TestServer, body: &[u8]) -> Vec<(Client, Vec<u8>)> {
    let parts = body.chunks(body.len() / 4 + 1).enumerate();
    let halves: Vec<_> = parts
        .map(|(number, part)| {
            let mut client = server.connect();
            let id = target(&[b'0' + number as u8]);
            let mut head = request_with("PUT", &id, "Expect: 100-continue\r\n", part);
            head.truncate(head.len() - part.len());
            client.send(&head).unwrap();
            assert_eq!(client.read_reply(false).unwrap().unwrap().status, 100);
            let (half, rest) = part.split_at(part.len() - 1000);
            client.send(half).unwrap();
            (client, rest.to_vec())
        })
        .collect();
    assert_eq!(limit_hits(&mut server.connect()), 0);
    halves
}

/// How often a body found no memory.
fn limit_hits(client: &mut Client) -> u64 {
    let limit_hits = |shard| {
        format!(
            "millpond_http_limit_exceeded_total{{shard=\"{shard}\",limit=\"bodies_bytes_max\"}} "
        )
    };
    client.metric(&limit_hits(0)) + client.metric(&limit_hits(1))
}

/// Goal: beside large bodies on their way in one more is not read, short ones are, and it is read as soon as others
/// have responses.
#[test]
fn bodies_beyond_the_budget_wait_for_others() {
    // A body waits for 5 s, which is what a machine that has other things to do may take for all of this.
    const TRIES_MAX: usize = 12;
    assert!(
        (0..TRIES_MAX).any(|_| body_waits_for_others()),
        "it is never taken, only refused"
    );
}

/// False: it waited too long, and was refused.
fn body_waits_for_others() -> bool {
    let server = start();
    let body = value(HALVES_BYTES, 1);
    let mut halves = half_sent(&server, &body);
    let second = value(200_000, 2);
    let mut waiting = server.connect();
    waiting
        .send(&request("PUT", &target(b"second"), &second))
        .unwrap();
    let mut client = server.connect();
    wait_until(|| limit_hits(&mut client) == 1);
    assert_eq!(client.put(b"short", &second[..60_000]), 201);
    let is_unanswered = waiting.has_nothing();
    for (client, rest) in &mut halves {
        client.send(rest).unwrap();
        assert_eq!(client.read_reply(false).unwrap().unwrap().status, 201);
    }
    let status = waiting.read_reply(false).unwrap().unwrap().status;
    if status == 503 {
        return false;
    }
    assert_eq!(status, 201);
    assert!(is_unanswered, "it was taken beside the others");
    assert!(client.get(b"second").body == second);
    let stored: Vec<u8> = (b'0'..b'4').flat_map(|id| client.get(&[id]).body).collect();
    assert!(stored == body);
    true
}

/// Goal: a request that waits for clients that never send, if none is cut, gets Retry-After, and those that go leave
/// their memory.
#[test]
fn bodies_do_not_wait_for_ever() {
    let server = start();
    let halves = half_sent(&server, &value(HALVES_BYTES, 1));
    let mut waiting = server.connect();
    let second = value(200_000, 2);
    let put = request("PUT", &target(b"second"), &second);
    waiting.send(&put[..100_000]).unwrap();
    let refusal = waiting.read_reply(false).unwrap().unwrap();
    assert_eq!(refusal.status, 503);
    assert_eq!(refusal.field("Retry-After"), Some("1"));
    assert_eq!(refusal.field("Connection"), Some("close"));
    drop(halves);
    let mut again = server.connect();
    assert_eq!(again.put(b"second", &second), 201);
}

/// The server's reaction to stalled clients while others wait, at once.
fn impatient(server: &mut millpond_http::ServeConfig) {
    let limits = LimitValues {
        contended_grace_ns: 1,
        ..*patient_limits()
    };
    server.limits = limits.checked().unwrap();
}

/// One upload of 260 B/s with `Content-Length: 60000000` kept every PUT over 64 KiB of all clients at 503.
///
/// Goal: clients that announce much and stall delay no other: those that send are served, those that hold memory for
/// which others wait get 408.
#[test]
fn uploads_that_stand_still_give_way() {
    let server = TestServer::start(&Arc::new(MemoryStore::new()), |config, http| {
        // Of one upload.
        config.large_bytes_max = 2 * PART_BYTES as u64;
        impatient(http);
    });
    let announce = |bytes: usize, sent: usize| {
        let mut client = server.connect();
        let head = format!(
            "PUT {} HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n",
            target(b"slow")
        );
        client.send(head.as_bytes()).unwrap();
        client.send(&vec![b'x'; sent]).unwrap();
        client
    };
    let _idle: Vec<Client> = (0..20).map(|_| announce(60_000_000, 260)).collect();
    let mut client = server.connect();
    let body = value(2 * PART_BYTES, 1);
    assert_eq!(client.put(b"one", &body), 201);
    // Those received whole, of which two take all memory, and those in parts.
    for (count, bytes, others) in [
        (2, PART_BYTES, PART_BYTES),
        (1, 20 * PART_BYTES, 5 * PART_BYTES),
    ] {
        let sent = bytes.min(3 * PART_BYTES / 2) - 1;
        const RECEIVED: &str = "millpond_driver_received_bytes_total{";
        let before = client.metric_sum(RECEIVED);
        let mut slow: Vec<Client> = (0..count).map(|_| announce(bytes, sent)).collect();
        // Bytes that have not come yet are not held: otherwise the others would count as slow.
        wait_until(|| client.metric_sum(RECEIVED) >= before + (count * sent) as u64);
        let other = value(others, 2);
        // As soon as they hold memory that is needed.
        wait_until(|| {
            assert_eq!(client.put(b"two", &other), 201);
            slow.iter().any(|client| !client.has_nothing())
        });
        slow.retain(|client| !client.has_nothing());
        let reply = slow[0].read_reply(false).unwrap().unwrap();
        assert_eq!(reply.status, 408);
    }
}

/// One reader of a 60 MB value at 20 KB/s did the same to large GETs.
///
/// Goal: readers that do not read are cut when others wait for what they hold, of values and of ranges.
#[test]
fn readers_that_stand_still_give_way() {
    let store = Arc::new(FaultyStore::new(
        MemoryStore::new(),
        Faults {
            cold: true,
            ..Faults::default()
        },
    ));
    let server = TestServer::start(&store, |config, http| {
        config.large_bytes_max = LARGE_BYTES_MAX;
        config.large_wait_max = LONG;
        config.cache_bytes = 0;
        config.scans_max = 2;
        impatient(http);
    });
    let mut client = server.connect();
    let body = value(STUCK_BYTES, 4);
    assert_eq!(client.put(b"large", &body), 201);
    for id in 0..400_u32 {
        assert_eq!(
            client.put(format!("small {id}").as_bytes(), &body[..60_000]),
            201
        );
    }
    let ask = |path: &str| {
        let mut reader = server.connect();
        reader.send(&request("GET", path, b"")).unwrap();
        reader.stream.peek(&mut [0]).unwrap();
        reader
    };
    let value_path = target(b"large");
    let stuck: Vec<Client> = (0..2).map(|_| ask(&value_path)).collect();
    // Those that stand still hold all of it after a while.
    wait_until(|| {
        assert!(client.get(b"large").body == body);
        client.metric("millpond_entity_slow_readers_disconnected_total ") >= 1
    });
    drop(stuck);
    let stuck: Vec<Client> = (0..2).map(|_| ask("/v0/entities?start=small")).collect();
    wait_until(|| {
        let reply = client.request("HEAD", "/v0/status", b"");
        assert_eq!(reply.status, 200);
        let mut range = server.connect();
        range
            .send(&request("GET", "/v0/entities?start=small%20399", b""))
            .unwrap();
        let reply = range.read_reply(false).unwrap().unwrap();
        reply.status == 200 && !range.read_chunks().unwrap().is_empty()
    });
    assert!(client.metric("millpond_entity_slow_readers_disconnected_total ") >= 2);
    drop(stuck);
}

/// Goal: one that is alone may be larger than all there is, in one piece and in chunks.
#[test]
fn a_body_alone_may_be_larger_than_the_budget() {
    let server = start();
    let mut client = server.connect();
    let body = value(3 * LARGE_BYTES_MAX as usize, 3);
    assert_eq!(client.put(b"whole", &body), 201);
    let mut chunked = format!(
        "PUT {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        target(b"chunks")
    )
    .into_bytes();
    for chunk in body.chunks(100_000) {
        chunked.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    client.send(&chunked).unwrap();
    assert_eq!(client.read_reply(false).unwrap().unwrap().status, 201);
    for id in [&b"whole"[..], b"chunks"] {
        let reply = client.get(id);
        assert!(reply.status == 200 && reply.body == body);
        let tag = reply.field("ETag").unwrap().to_owned();
        let head = client.request("HEAD", &target(id), b"");
        assert_eq!(
            head.field("Content-Length"),
            Some(&*body.len().to_string()),
            "a HEAD has the fields of the GET"
        );
        let fields = format!("If-None-Match: {tag}\r\n");
        client
            .send(&request_with("GET", &target(id), &fields, b""))
            .unwrap();
        // A response without a body whatever it says.
        assert_eq!(client.read_reply(true).unwrap().unwrap().status, 304);
        assert_eq!(client.get(b"absent").status, 404);
    }
}

/// Goal: while a client that does not read has memory that large values may take on their way out, small values are
/// served, and others that read large ones get responses at the latest when that client is gone.
#[test]
fn readers_wait_for_one_that_does_not_read() {
    let cold = Faults {
        cold: true,
        ..Faults::default()
    };
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), cold));
    let server = TestServer::start(&store, |config, http| {
        config.large_bytes_max = LARGE_BYTES_MAX;
        config.large_wait_max = LONG;
        http.shards = 2;
        // Every read is the one read thread's, which takes them in the order they come.
        config.cache_bytes = 0;
        config.read_threads = 1;
    });
    let mut client = server.connect();
    let body = value(STUCK_BYTES, 4);
    assert_eq!(client.put(b"large", &body), 201);
    assert_eq!(client.put(b"small", b"value"), 201);
    for stuck_on in ["/v0/entity?id=large", "/v0/entities?start=large"] {
        let mut stuck = server.connect();
        stuck.send(&request("GET", stuck_on, b"")).unwrap();
        stuck.stream.peek(&mut [0]).unwrap();
        let reads = client.metric(COLD_READS);
        let ranges = client.metric(RANGES);
        let mut waiting = server.connect();
        waiting
            .send(&request("GET", &target(b"large"), b""))
            .unwrap();
        let mut range = server.connect();
        range
            .send(&request("GET", "/v0/entities?start=large", b""))
            .unwrap();
        wait_until(|| client.metric(COLD_READS) > reads && client.metric(RANGES) > ranges);
        // Both get their responses after those that wait.
        assert_eq!(client.get(b"small").body, b"value");
        let small = request("GET", "/v0/entities?start=small", b"");
        client.send(&small).unwrap();
        assert_eq!(client.read_reply(true).unwrap().unwrap().status, 200);
        assert_eq!(client.read_chunks().unwrap(), [b"small\nvalue"]);
        drop(stuck);
        // In any order: each has to read, or the other waits for it.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(waiting.read_reply(false).unwrap().unwrap().body == body);
            });
            assert_eq!(range.read_reply(true).unwrap().unwrap().status, 200);
            let chunks = range.read_chunks().unwrap();
            assert_eq!(chunks.len(), 2);
            assert!(chunks[0].ends_with(&body) && chunks[1] == *b"small\nvalue");
        });
    }
}

const COLD_READS: &str = "millpond_entity_cold_reads_total ";
const RANGES: &str = "millpond_entity_ranges_total ";

/// A client that does not read, and others that wait for the memory it has, used all places of requests that wait for
/// the store: every PUT got 503 meanwhile.
///
/// Goal: beside as many waiting reads as may be, a write is taken.
#[test]
fn readers_that_wait_leave_room_to_writers() {
    const JOBS_MAX: usize = 4;
    let server = TestServer::start(&Arc::new(MemoryStore::new()), |config, _| {
        // Of one reader.
        config.large_bytes_max = 2 * PART_BYTES as u64;
        config.large_wait_max = LONG;
        config.jobs_in_flight_max = JOBS_MAX;
    });
    let mut client = server.connect();
    assert_eq!(client.put(b"large", &value(STUCK_BYTES, 4)), 201);
    let ask = || {
        let mut reader = server.connect();
        let get = request("GET", &target(b"large"), b"");
        reader.send(&get).unwrap();
        reader
    };
    let stuck = ask();
    stuck.stream.peek(&mut [0]).unwrap();
    let waiting: Vec<Client> = (0..JOBS_MAX).map(|_| ask()).collect();
    // All places of reads are taken.
    wait_until(|| client.metric("millpond_entity_overloads_total ") >= 1);
    assert_eq!(client.put(b"small", b"value"), 201);
    drop((stuck, waiting));
}

/// The place of a range read that waits for memory outlived the read: no other waiting read was checked before there
/// was room for it, and a client that repeatedly requested and left made the list grow.
///
/// Goal: a stopped read delays no other.
#[test]
fn a_range_that_was_given_up_makes_nobody_wait() {
    const LONG: usize = 500 << 10;
    const SHORT: usize = 150 << 10;
    let store = Arc::new(MemoryStore::new());
    for (key, len) in [(b"long ", LONG), (b"short", SHORT)] {
        let head = Head {
            version: Version(1),
            expires_ms: 0,
            content_type: b"",
            content_encoding: b"",
        };
        let record = encode(&head, &vec![7; len]);
        let write = Write::Put {
            key,
            head: b"",
            value: &record,
        };
        store
            .commit([write].into_iter(), 0, Durability::Synced)
            .unwrap();
    }
    let budget = BodyBudget::new(2 << 20, 0);
    let others = budget.take((2 << 20) - (400 << 10), 0, None).unwrap();
    let another = budget.take(400 << 10, 0, None).unwrap();
    let scanner = Scanner::start(&store, 1, 4, budget, <_>::default(), PoolMode::On).unwrap();
    // Only its waker is used; waking it is harmless.
    let driver = EpollDriver::new(PoolMode::On).unwrap();
    let mut link = scanner.link(0, driver.waker());
    let blocks = BlockPool::new("test", PoolMode::On);
    let open = |link: &mut ScanLink, task: u64, start: &[u8]| {
        let mut id = Buffer::with_capacity(&blocks, start.len()).unwrap();
        id.append_within_capacity(start);
        let range = ScanRange {
            start: id,
            end: None,
            limit: None,
            format: RangeFormat::Chunks,
        };
        let ask = Ask::Open { range, acks: 1 };
        link.ask(task, RequestToken::from_bits(task), ask);
    };
    open(&mut link, 1, b"long ");
    open(&mut link, 2, b"short");
    link.ask(1, RequestToken::from_bits(1), Ask::Close);
    // There is room for the short one now, and not for the long one.
    drop(another);
    let mut answers: Vec<ScanAnswer> = Vec::new();
    wait_until(|| {
        link.take_answers(&mut answers);
        !answers.is_empty()
    });
    assert_eq!(answers[0].task, 2);
    let Turn::Records { records, .. } = &answers[0].turn else {
        panic!("{:?}", answers[0].turn);
    };
    assert!(records.len() > SHORT);
    drop(others);
}

/// Bodies of requests that are refused anyway were read into memory first, from unauthorized clients too: a few slow
/// ones left none to clients with a token.
///
/// Goal: where tokens are given, only what may be kept is waited for.
#[test]
fn what_is_refused_anyway_takes_no_memory() {
    let server = TestServer::start(&Arc::new(MemoryStore::new()), |config, _| {
        config.access = Access::limited(Tokens::parse("writer-0123456789").unwrap(), None);
    });
    for (method, target, status) in [
        ("PUT", "/v0/entity", 400),
        ("POST", "/v0/entity?id=a", 405),
        ("PUT", "/elsewhere", 400),
        ("PUT", "/v0/entities?start=a", 405),
        ("GET", "/v0/status", 200),
        ("GET", "/openapi.json", 200),
        ("PUT", "/v0/entity?id=a", 401),
    ] {
        let mut client = server.connect();
        let whole = request(method, target, &[0; 200_000]);
        client.send(&whole[..1000]).unwrap();
        let reply = client.read_reply(false).unwrap().unwrap();
        assert_eq!(reply.status, status, "{method} {target}");
    }
    // A short body is skipped, and the connection goes on.
    let mut client = server.connect();
    assert_eq!(client.request("POST", "/v0/entity", b"short").status, 405);
    assert_eq!(client.request("GET", "/v0/status", b"short").status, 200);
}

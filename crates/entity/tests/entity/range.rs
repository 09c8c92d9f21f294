//! Range reads over real sockets, on both engines, against a sorted map.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Bound;
use std::sync::Arc;

use crate::support::{Client, PATIENCE, TestServer, target, wait_until};
use millpond_entity::record::{Head, Version, encode};
use millpond_entity::store::Durability;
use millpond_entity::store::faulty::{Faults, FaultyStore};
use millpond_entity::store::memory::MemoryStore;
use millpond_entity::store::rocksdb::RocksDbStore;
use millpond_entity::{EntityConfig, Store, open};
use proptest::prelude::*;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn rocksdb() -> (tempfile::TempDir, Arc<RocksDbStore>) {
    let directory = tempfile::tempdir().unwrap();
    let mut config = EntityConfig::new(directory.path().join("data"));
    // Small memtables, so that a test's data is in tables too.
    config.memtable_bytes = 3 << 20;
    (directory, Arc::new(open(&config).unwrap()))
}

fn escaped(id: &[u8]) -> String {
    target(id).split_once("id=").unwrap().1.to_owned()
}

fn range_target(start: &[u8], end: Option<&[u8]>) -> String {
    let end = end.map_or(String::new(), |end| format!("&end={}", escaped(end)));
    format!("/v0/entities?start={}{end}", escaped(start))
}

/// A range response, read chunk by chunk.
struct Chunks {
    input: BufReader<TcpStream>,
}

impl Chunks {
    /// Asks on a new connection and reads the head of the response.
    fn ask(server: &TestServer, start: &[u8], end: Option<&[u8]>) -> Self {
        let stream = TcpStream::connect(server.address).unwrap();
        // The kernel takes twice of it, and no longer grows it as it likes.
        let receive_bytes = (RECEIVE_BYTES / 2) as usize;
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, receive_bytes).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::ask_on(stream, &range_target(start, end))
    }

    fn ask_on(mut stream: TcpStream, target: &str) -> Self {
        write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut chunks = Self {
            // Small, so that what this end holds back counts for nothing.
            input: BufReader::with_capacity(1024, stream),
        };
        let head: Vec<String> = std::iter::from_fn(|| Some(chunks.line().unwrap()))
            .take_while(|line| !line.is_empty())
            .collect();
        assert_eq!(head[0], "HTTP/1.1 200 OK", "{head:?}");
        let chunked = "Transfer-Encoding: chunked".to_owned();
        assert!(head.contains(&chunked), "{head:?}");
        chunks
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.input.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The next chunk; `None` behind the last one.
    fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let length = usize::from_str_radix(&self.line()?, 16).unwrap();
        let mut chunk = vec![0; length];
        self.input.read_exact(&mut chunk)?;
        assert_eq!(self.line()?, "");
        Ok((length > 0).then_some(chunk))
    }

    fn rest(mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.next().unwrap()).collect()
    }
}

fn records<'a>(entities: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>) -> Vec<Vec<u8>> {
    entities
        .map(|(key, value)| [key, &b"\n"[..], value].concat())
        .collect()
}

fn expected(map: &Map, start: &[u8], end: Option<&[u8]>) -> Vec<Vec<u8>> {
    if end.is_some_and(|end| end <= start) {
        return Vec::new();
    }
    let end = end.map_or(Bound::Unbounded, Bound::Excluded);
    records(map.range::<[u8], _>((Bound::Included(start), end)))
}

/// Few letters, so that ids begin with one another; all bytes, so that order is unsigned.
fn id() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(prop_oneof![Just(0_u8), Just(b'\n'), Just(255)], 1..4),
        proptest::collection::vec(any::<u8>(), 1..20),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => (any::<u8>(), 0..70_000_usize).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Range(Vec<u8>, Option<Vec<u8>>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (id(), value()).prop_map(|(id, value)| Step::Put(id, value)),
        1 => id().prop_map(Step::Delete),
        2 => (id(), proptest::option::of(id())).prop_map(|(start, end)| Step::Range(start, end)),
    ];
    proptest::collection::vec(step, 1..40)
}

fn agrees<S: Store>(store: &Arc<S>, steps: &[Step]) {
    let server = TestServer::start(store, |_, http| http.shards = 2);
    play(&server, steps);
}

fn play(server: &TestServer, steps: &[Step]) {
    let mut client = server.connect();
    let mut map = Map::new();
    for step in steps {
        match step {
            Step::Put(id, value) => {
                assert_eq!(client.write("PUT", id, value).status, 201);
                map.insert(id.clone(), value.clone());
            }
            Step::Delete(id) => {
                assert_eq!(client.write("DELETE", id, b"").status, 202);
                map.remove(id);
            }
            Step::Range(start, end) => {
                let found = Chunks::ask(server, start, end.as_deref()).rest();
                assert_eq!(found, expected(&map, start, end.as_deref()));
            }
        }
    }
    let found = Chunks::ask(server, b"\0", None).rest();
    assert_eq!(found, records(map.iter()));
}

/// Goal: the same on a cluster, however many partitions it has; few cases, as each takes a keyspace.
#[cfg(feature = "distributed")]
#[test]
fn ranges_of_a_cluster_agree_with_a_sorted_map() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for settings in [
        "buckets=1",
        "buckets=7",
        "buckets=64",
        "buckets=3&conditions=on",
    ] {
        let steps = steps().new_tree(&mut runner).unwrap().current();
        crate::support::cluster::play(settings, |server| play(server, &steps));
    }
}

proptest! {
    // Each case starts two servers and opens a database.
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Goal: after any writes, on both engines, a range shows what a sorted map shows: order by
    /// unsigned bytes, bounds, one chunk for each record.
    #[test]
    fn ranges_agree_with_a_sorted_map(steps in steps()) {
        agrees(&Arc::new(MemoryStore::new()), &steps);
        let (_directory, store) = rocksdb();
        agrees(&store, &steps);
    }
}

fn on_both(scene: impl Fn(&TestServer)) {
    let small = |_: &mut EntityConfig, http: &mut millpond_http::ServeConfig| http.shards = 2;
    scene(&TestServer::start(&Arc::new(MemoryStore::new()), small));
    let (_directory, store) = rocksdb();
    scene(&TestServer::start(&store, small));
}

/// And on a cluster, where there is one.
fn on_all(scene: impl Fn(&TestServer)) {
    #[cfg(feature = "distributed")]
    crate::support::cluster::play("buckets=16", &scene);
    on_both(scene);
}

/// More than the sockets of this test hold.
const LARGE_COUNT: usize = 600;
const LARGE_BYTES: usize = 32 * 1024;

fn load_large(client: &mut Client, count: usize) -> Map {
    let mut map = Map::new();
    for n in 0..count {
        let id = format!("{n:08}").into_bytes();
        let value = vec![n as u8; LARGE_BYTES];
        assert_eq!(client.write("PUT", &id, &value).status, 201);
        map.insert(id, value);
    }
    map
}

/// A large record was copied whole into its connection's output.
///
/// Goal: records that are longer than an output's block leave as one chunk each, whatever they lie beside.
#[test]
fn long_records_are_one_chunk_each() {
    on_both(|server| {
        let mut client = server.connect();
        let mut map = Map::new();
        for (n, bytes) in [10, 40_000, 0, 32_768, 3_000_000, 131_072, 1, 700_000]
            .into_iter()
            .enumerate()
        {
            let id = format!("{n:08}").into_bytes();
            let value: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            assert_eq!(client.write("PUT", &id, &value).status, 201);
            map.insert(id, value);
        }
        let mut chunks = Chunks::ask(server, b"0", None);
        for (id, value) in &map {
            let chunk = chunks.next().unwrap().unwrap();
            assert!(chunk == [&id[..], b"\n", value].concat(), "{id:?}");
        }
        assert!(chunks.next().unwrap().is_none());
    });
}

/// Goal: a range is what was there when it began, however long its reader takes and whatever is
/// written meanwhile; the next one sees all of that.
#[test]
fn range_shows_one_moment() {
    on_both(|server| {
        let mut client = server.connect();
        let before = load_large(&mut client, LARGE_COUNT);
        let mut chunks = Chunks::ask(server, b"0", None);
        let mut found = vec![chunks.next().unwrap().unwrap()];
        let mut after = before.clone();
        for (n, id) in before.keys().enumerate() {
            if n % 2 == 0 {
                assert_eq!(client.write("DELETE", id, b"").status, 202);
                after.remove(id);
            } else {
                assert_eq!(client.write("PUT", id, b"new").status, 201);
                after.insert(id.clone(), b"new".to_vec());
            }
            let id = [id, &b"+"[..]].concat();
            assert_eq!(client.write("PUT", &id, b"added").status, 201);
            after.insert(id, b"added".to_vec());
        }
        found.extend(chunks.rest());
        assert!(found == records(before.iter()), "a later write shows");
        let found = Chunks::ask(server, b"0", None).rest();
        assert!(
            found == records(after.iter()),
            "an earlier write is missing"
        );
    });
}

/// Goal: the server runs ahead of a slow reader by what sockets hold and one turn, never by more,
/// at no moment; other connections do not notice; the reader gets everything in the end.
#[test]
fn slow_reader_keeps_memory_flat() {
    on_all(|server| {
        let mut client = server.connect();
        let sockets_bytes = RECEIVE_BYTES + send_buffer_bytes_max();
        // A turn of one record and a block of output; and the last send may pass the socket's limit.
        let ahead_bytes_max = sockets_bytes + (1 << 20);
        // Twice of what would be enough without any back-pressure.
        let count = (2 * ahead_bytes_max / LARGE_BYTES as u64) as usize;
        let map = load_large(&mut client, count);
        let mut chunks = Chunks::ask(server, b"0", None);
        let (mut found, mut read_bytes, mut before) = (Vec::new(), 0, u64::MAX);
        for _ in 0..20 {
            let chunk = chunks.next().unwrap().unwrap();
            read_bytes += chunk.len() as u64;
            found.push(chunk);
            // The reader waits until the server has nothing more to do for it.
            loop {
                let written = client.metric("millpond_entity_range_bytes_total ");
                assert!(
                    written <= read_bytes + ahead_bytes_max,
                    "{written} bytes written, {read_bytes} read"
                );
                if std::mem::replace(&mut before, written) == written {
                    break;
                }
                // Turns are read in the order they are asked for.
                assert!(Chunks::ask(server, b"none behind", None).rest().is_empty());
            }
            assert_eq!(client.get(b"00000000").status, 200);
        }
        assert_eq!(client.metric("millpond_entity_ranges_open "), 1);
        found.extend(chunks.rest());
        assert!(found == records(map.iter()), "the response is not whole");
        assert_eq!(client.metric("millpond_entity_ranges_open "), 0);
    });
}

/// Maximum bytes the reading end holds back.
const RECEIVE_BYTES: u64 = 256 * 1024;

/// Maximum bytes the kernel keeps of an unread response.
fn send_buffer_bytes_max() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap();
    let max = text.split_whitespace().last().unwrap();
    max.parse().unwrap()
}

/// Goal: a client that leaves in the middle takes its snapshot with it, and the server goes on.
#[test]
fn reader_that_leaves_is_forgotten() {
    on_all(|server| {
        let mut client = server.connect();
        load_large(&mut client, LARGE_COUNT);
        for _ in 0..10 {
            let mut chunks = Chunks::ask(server, b"0", None);
            chunks.next().unwrap().unwrap();
        }
        wait_until(|| client.metric("millpond_entity_ranges_open ") == 0);
        assert_eq!(client.metric("millpond_entity_ranges_total "), 10);
        assert_eq!(Chunks::ask(server, b"0", None).rest().len(), LARGE_COUNT);
    });
}

/// Goal: an invalid range is 400, another method 405, HEAD has the head alone; the connection lives on, and a range may
/// be in the middle of a pipeline.
#[test]
fn refusals_heads_and_pipelines() {
    on_all(|server| {
        let mut client = server.connect();
        assert_eq!(client.put(b"a", b"1"), 201);
        for bad in [
            "/v0/entities",
            "/v0/entities?end=b",
            "/v0/entities?start=",
            "/v0/entities?start=a&end=",
            "/v0/entities?start=%4",
            &format!("/v0/entities?start={}", "k".repeat(1025)),
            &format!("/v0/entities?start=a&end={}", "k".repeat(1025)),
        ] {
            assert_eq!(client.request("GET", bad, b"").status, 400, "{bad}");
            assert_eq!(client.request("HEAD", bad, b"").status, 400, "{bad}");
        }
        let reply = client.request("DELETE", "/v0/entities?start=a", b"");
        assert_eq!(reply.status, 405);
        assert_eq!(reply.field("Allow"), Some("GET, HEAD, OPTIONS"));
        let reply = client.request("HEAD", "/v0/entities?start=a", b"");
        assert_eq!(reply.status, 200);
        assert_eq!(reply.field("Transfer-Encoding"), Some("chunked"));
        client
            .send(
                b"GET /v0/entities?start=a HTTP/1.1\r\nHost: h\r\n\r\n\
                GET /v0/entities?start=b HTTP/1.1\r\nHost: h\r\n\r\n\
                GET /v0/nothing HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            )
            .unwrap();
        let mut all = String::new();
        client.stream.read_to_string(&mut all).unwrap();
        let (full, rest) = all.split_once("3\r\na\n1\r\n0\r\n\r\n").expect(&all);
        let (empty, refused) = rest.split_once("0\r\n\r\n").expect(&all);
        assert!(full.starts_with("HTTP/1.1 200"), "{all}");
        assert!(empty.starts_with("HTTP/1.1 200"), "{all}");
        assert!(refused.starts_with("HTTP/1.1 400"), "{all}");
    });
}

/// Goal: one range more than may be open is 503 with Retry-After at once, and the next one goes
/// when one has ended.
#[test]
fn too_many_ranges_are_refused() {
    let store = Arc::new(MemoryStore::new());
    let server = TestServer::start(&store, |config, _| config.scans_max = 2);
    let mut client = server.connect();
    load_large(&mut client, LARGE_COUNT);
    let mut open: Vec<Chunks> = (0..2).map(|_| Chunks::ask(&server, b"0", None)).collect();
    let refused = client.request("GET", "/v0/entities?start=0", b"");
    assert_eq!(
        (refused.status, refused.field("Retry-After")),
        (503, Some("1"))
    );
    assert_eq!(client.get(b"00000000").status, 200);
    assert_eq!(open.pop().unwrap().rest().len(), LARGE_COUNT);
    assert_eq!(Chunks::ask(&server, b"0", None).rest().len(), LARGE_COUNT);
}

/// Goal: an engine that fails at once is 503; one that fails in the middle cuts the response before its last chunk, so
/// that it is not taken for whole. A panic has the same effect, is counted, and ends no thread: the next range gets its
/// response too.
#[test]
fn failed_scan_is_seen() {
    for (visit, begins) in [(1, false), (3, true)] {
        let failed = Faults {
            failed_visit: Some(visit),
            ..Faults::default()
        };
        let panicking = Faults {
            panicking_visit: Some(visit),
            ..Faults::default()
        };
        for (faults, panics_each) in [(failed, 0), (panicking, 1)] {
            let server = TestServer::start(&Arc::new(of_hundred_records(faults)), |_, _| {});
            for asked in 1..=3 {
                match begins {
                    true => assert_is_cut_after_two(&server),
                    false => {
                        let mut client = server.connect();
                        let reply = client.request("GET", "/v0/entities?start=%00", b"");
                        assert_eq!(reply.status, 503);
                    }
                }
                let mut client = server.connect();
                wait_until(|| client.metric("millpond_entity_ranges_open ") == 0);
                let panics = "millpond_entity_thread_panics_total{thread=\"scanner\"}";
                assert_eq!(client.metric(panics), asked * panics_each);
            }
        }
    }
}

/// Records of which a turn holds one.
pub(crate) fn of_hundred_records(faults: Faults) -> FaultyStore<MemoryStore> {
    let store = FaultyStore::new(MemoryStore::new(), faults);
    let head = Head {
        version: Version(1),
        expires_ms: 0,
        content_type: b"",
        content_encoding: b"",
    };
    let value = encode(&head, &[7; 20_000]);
    for n in 0..100_u8 {
        let write = millpond_entity::store::Write::Put {
            key: &[n],
            head: b"",
            value: &value,
        };
        store
            .commit([write].into_iter(), 0, Durability::Synced)
            .unwrap();
    }
    store
}

fn assert_is_cut_after_two(server: &TestServer) {
    let mut chunks = Chunks::ask(server, b"\0", None);
    let mut count = 0;
    let error = loop {
        match chunks.next() {
            Ok(Some(_)) => count += 1,
            Ok(None) => panic!("a cut response looks whole"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(count, 2, "a turn holds one such record");
}

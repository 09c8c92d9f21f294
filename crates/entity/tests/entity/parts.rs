//! Values in parts: longer than one part, received and sent part by part.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::support::process::ServerProcess;
use crate::support::{Client, TestServer, request, request_with, target, wait_until};
use base64::Engine as _;
use millpond_entity::parts::PART_BYTES;
use millpond_entity::store::faulty::{Faults, FaultyStore};
use millpond_entity::store::memory::MemoryStore;
use millpond_entity::store::{Held as _, Snapshot as _};
use millpond_entity::{EntityConfig, ID_BYTES_MAX, Store, open};

fn value(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.u8(..)).collect()
}

const NDJSON: &str = "Accept: application/x-ndjson\r\n";

/// Lengths around the borders of parts.
const LENGTHS: [usize; 7] = [
    PART_BYTES - 1,
    PART_BYTES,
    PART_BYTES + 1,
    2 * PART_BYTES,
    2 * PART_BYTES + 1,
    3 * PART_BYTES - 1,
    5_000_003,
];

fn chunked(id: &[u8], value: &[u8], chunk_bytes: usize) -> Vec<u8> {
    let mut request = format!(
        "PUT {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        target(id)
    )
    .into_bytes();
    for chunk in value.chunks(chunk_bytes) {
        request.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        request.extend_from_slice(chunk);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    request
}

/// Keys of parts in the store.
fn part_keys<S: Store>(store: &S) -> usize {
    let mut count = 0;
    let held = store.hold().unwrap();
    let visit = &mut |key: &[u8], _: &[u8]| {
        count += usize::from(key.len() > ID_BYTES_MAX);
        ControlFlow::Continue(())
    };
    held.snapshot().visit(b"\0", None, visit).unwrap();
    count
}

/// Goal: whatever its length and however it is sent, a value comes back unchanged, HEAD and 304 have the same fields
/// without it, and ranges have it among the others.
#[test]
fn values_of_all_lengths_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let stores = [
        Backend::Memory(Arc::new(MemoryStore::new())),
        Backend::Disk(Arc::new(
            open(&EntityConfig::new(directory.path().join("data"))).unwrap(),
        )),
    ];
    for store in stores {
        let server = store.serve();
        let mut client = server.connect();
        for (n, len) in (0_u8..).zip(LENGTHS) {
            let value = value(len, len as u64);
            let reply = client.request("PUT", &target(&[n, 1]), &value);
            assert_eq!(reply.status, 201, "{len}");
            client.send(&chunked(&[n, 2], &value, 100_001)).unwrap();
            let chunked = client.read_reply(false).unwrap().unwrap();
            assert_eq!(chunked.status, 201, "{len} in chunks");
            for (id, tag) in [([n, 1], &reply), ([n, 2], &chunked)] {
                assert_reads(&mut client, &id, &value, tag.field("ETag").unwrap());
            }
        }
        client.send(&chunked(b"z", b"", 1)).unwrap();
        assert_eq!(client.read_reply(false).unwrap().unwrap().status, 201);
        assert_eq!(client.put(b"zz", b"short"), 201);
        let range = request("GET", "/v0/entities?start=%00", b"");
        client.send(&range).unwrap();
        assert_eq!(client.read_reply(false).unwrap().unwrap().status, 200);
        let records = client.read_chunks().unwrap();
        let mut expected: Vec<Vec<u8>> = Vec::new();
        for (n, len) in (0_u8..).zip(LENGTHS) {
            let value = value(len, len as u64);
            expected.push([&[n, 1, b'\n'][..], &value].concat());
            expected.push([&[n, 2, b'\n'][..], &value].concat());
        }
        expected.extend([b"z\n".to_vec(), b"zz\nshort".to_vec()]);
        assert!(records == expected, "{} records", records.len());
        let lines = request_with("GET", "/v0/entities?start=%00", NDJSON, b"");
        client.send(&lines).unwrap();
        assert_eq!(client.read_reply(false).unwrap().unwrap().status, 200);
        let text = client.read_chunks().unwrap().concat();
        let lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
        // The last line, and nothing behind it.
        assert_eq!(lines.len(), expected.len() + 2);
        for (line, record) in lines.iter().zip(&expected) {
            let line: serde_json::Value = serde_json::from_slice(line).unwrap();
            let id = line["id"].as_str().unwrap().as_bytes();
            let value = line["value_base64"].as_str().unwrap();
            let value = base64::engine::general_purpose::STANDARD
                .decode(value)
                .unwrap();
            assert!([id, b"\n", &value].concat() == *record, "{id:?}");
        }
    }
}

fn assert_reads(client: &mut Client, id: &[u8], value: &[u8], tag: &str) {
    let len = value.len().to_string();
    for _ in 0..2 {
        let found = client.get(id);
        assert_eq!(found.status, 200);
        assert_eq!(found.field("ETag"), Some(tag));
        assert!(found.body == value, "{len} bytes, another value");
        let head = client.request("HEAD", &target(id), b"");
        assert_eq!(head.status, 200);
        assert_eq!(head.field("ETag"), Some(tag));
        assert_eq!(head.field("Content-Length"), Some(&*len));
    }
    let unmodified = format!(
        "GET {} HTTP/1.1\r\nHost: a\r\nIf-None-Match: {tag}\r\n\r\n",
        target(id)
    );
    client.send(unmodified.as_bytes()).unwrap();
    let reply = client.read_reply(false).unwrap().unwrap();
    assert_eq!(reply.status, 304);
}

enum Backend {
    Memory(Arc<MemoryStore>),
    Disk(Arc<millpond_entity::store::rocksdb::RocksDbStore>),
}

impl Backend {
    fn serve(&self) -> TestServer {
        match self {
            Self::Memory(store) => TestServer::start(store, |_, _| {}),
            Self::Disk(store) => TestServer::start(store, |_, _| {}),
        }
    }
}

/// Goal: dead parts are deleted automatically, of values that were overwritten, deleted, ended or cut off while they
/// were sent; those of others stay.
#[test]
fn dead_parts_go_by_themselves() {
    let store = Arc::new(MemoryStore::new());
    let server = TestServer::start(&store, |_, _| {});
    let mut client = server.connect();
    let long = value(3 * PART_BYTES, 1);
    // Cut off in its second part.
    let mut other = server.connect();
    let all = request("PUT", &target(b"g"), &long);
    other.send(&all[..PART_BYTES + 100_000]).unwrap();
    wait_until(|| part_keys(&*store) == 2);
    drop(other);
    // Refused in the middle: the following bytes are not a chunk.
    let mut other = server.connect();
    let mut malformed = chunked(b"h", &long[..2 * PART_BYTES], 100_000);
    malformed.truncate(malformed.len() - 5);
    malformed.extend_from_slice(b"no chunk\r\n");
    other.send(&malformed).unwrap();
    assert_eq!(other.read_reply(false).unwrap().unwrap().status, 400);
    wait_until(|| part_keys(&*store) == 0);
    for id in [b"a", b"b", b"c", b"d", b"e"] {
        assert_eq!(client.put(id, &long), 201);
    }
    let ended = client.request("PUT", &(target(b"f") + "&expires=%2B1"), &long);
    assert_eq!(ended.status, 201);
    assert_eq!(client.put(b"a", b"short"), 201);
    assert_eq!(client.put(b"b", &long[1..]), 201);
    assert_eq!(client.delete(b"c"), 202);
    wait_until(|| part_keys(&*store) == 3 * 4);
    for (id, expected) in [
        (b"a", &b"short"[..]),
        (b"b", &long[1..]),
        (b"d", &long),
        (b"e", &long),
    ] {
        assert!(client.get(id).body == expected, "{id:?}");
    }
    for id in [b"c", b"f", b"g", b"h"] {
        assert_eq!(client.get(id).status, 404);
    }
    // Of `g` one had been written, of `h` one or two; and all of four others.
    let mut deleted = || client.metric("millpond_entity_dead_parts_deleted_total ");
    wait_until(|| deleted() >= 4 * 3 + 2);
    assert!(deleted() <= 4 * 3 + 3);
}

/// Goal: a response that has begun is complete, however often its value is overwritten meanwhile, and the next one has the
/// newest.
#[test]
fn readers_get_what_they_began_with() {
    let store = Arc::new(MemoryStore::new());
    let server = TestServer::start(&store, |_, _| {});
    let old = value(40 * PART_BYTES, 1);
    let mut writer = server.connect();
    assert_eq!(writer.put(b"a", &old), 201);
    let mut reader = server.connect();
    reader.send(&request("GET", &target(b"a"), b"")).unwrap();
    let mut first = vec![0; 1000];
    reader.stream.read_exact(&mut first).unwrap();
    let before = part_keys(&*store);
    let new = value(2 * PART_BYTES, 2);
    assert_eq!(writer.put(b"a", &new), 201);
    assert_eq!(writer.put(b"b", &new), 201);
    assert_eq!(writer.delete(b"b"), 202);
    // That of `b` is deleted, and the same search would delete that of `a`.
    wait_until(|| part_keys(&*store) == before + 3);
    assert!(writer.get(b"a").body == new);
    let mut rest = Vec::new();
    let head_len = find_body(&first);
    rest.extend_from_slice(&first[head_len..]);
    let mut bytes = vec![0; 1 << 16];
    while rest.len() < old.len() {
        let count = reader.stream.read(&mut bytes).unwrap();
        assert!(count > 0, "cut after {} bytes", rest.len());
        rest.extend_from_slice(&bytes[..count]);
    }
    assert!(rest == old);
    wait_until(|| part_keys(&*store) == 3);
}

fn find_body(bytes: &[u8]) -> usize {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    end.expect("a whole head") + 4
}

/// Goal: many at once that write, overwrite, delete and read long values of a few ids get only whole values that were
/// put, and no part of the others is left in the end.
#[test]
fn readers_and_writers_meet() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&EntityConfig::new(directory.path().join("data"))).unwrap());
    let server = TestServer::start(&store, |config, http| {
        http.shards = 2;
        config.large_bytes_max = 8 << 20;
    });
    std::thread::scope(|scope| {
        for seed in 0..6_u64 {
            let server = &server;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut client = server.connect();
                for _ in 0..60 {
                    meet(&mut client, &mut random);
                }
            });
        }
    });
    let mut client = server.connect();
    let mut left = 0;
    for id in 0..4_u8 {
        let found = client.get(&[id]);
        if found.status == 200 && found.body.len() > PART_BYTES {
            left += 1 + found.body.len().div_ceil(PART_BYTES);
        }
    }
    wait_until(|| part_keys(&*store) == left);
}

/// A value says by its first byte what the rest is.
fn meet(client: &mut Client, random: &mut fastrand::Rng) {
    let id = [random.u8(..4)];
    match random.u8(..8) {
        0 => assert_eq!(client.delete(&id), 202),
        1..=3 => {
            let value = vec![random.u8(..); random.usize(1..4 * PART_BYTES)];
            assert_eq!(client.put(&id, &value), 201);
        }
        _ => {
            let found = client.get(&id);
            assert!(matches!(found.status, 200 | 404), "{}", found.status);
            assert!(found.body.iter().all(|&byte| byte == found.body[0]));
        }
    }
}

/// Goal: a request that will be refused is refused before 100 Continue.
#[test]
fn refusals_come_before_the_body() {
    let store = Arc::new(MemoryStore::new());
    let server = TestServer::start(&store, |config, _| config.value_bytes_max = 2_000_000);
    let mut client = server.connect();
    assert_eq!(client.put(b"a", b"old"), 201);
    let expecting = |field: &str, length: usize| {
        format!(
            "PUT {} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n{field}\r\n",
            target(b"a")
        )
    };
    for (field, length, status) in [
        ("If-None-Match: *\r\n", 1_000_000, 412),
        ("If-Match: \"0000000000000000\"\r\n", 1_000_000, 412),
        ("", 2_000_001, 413),
        ("", 1_000_000, 100),
    ] {
        let mut client = server.connect();
        client.send(expecting(field, length).as_bytes()).unwrap();
        let reply = client.read_reply(false).unwrap().unwrap();
        assert_eq!(reply.status, status, "{field}");
        if status == 100 {
            client.send(&vec![7; length]).unwrap();
            let reply = client.read_reply(false).unwrap().unwrap();
            assert_eq!(reply.status, 201);
        }
    }
    // Not announced: refused where it becomes too long.
    let mut client = server.connect();
    let _ = client.send(&chunked(b"b", &value(2_000_001, 1), 50_000));
    assert_eq!(client.read_reply(false).unwrap().unwrap().status, 413);
    let mut client = server.connect();
    assert_eq!(client.get(b"b").status, 404);
    assert_eq!(client.get(b"a").body.len(), 1_000_000);
}

/// Goal: where a part cannot be written the value is not there, and the server goes on.
#[test]
fn failed_parts_put_nothing() {
    for failing in 1..=6 {
        let faults = Faults {
            broken_after_commits: Some(failing - 1),
            ..Faults::default()
        };
        let store = Arc::new(FaultyStore::new(MemoryStore::new(), faults));
        let server = TestServer::start(&store, |_, _| {});
        let mut client = server.connect();
        let sent = client.send(&request("PUT", &target(b"a"), &value(4 * PART_BYTES, 1)));
        let reply = sent.and_then(|()| client.read_reply(false));
        // The refusal may be lost with the connection: it came while the body was being sent.
        if let Ok(Some(reply)) = reply {
            assert_eq!(reply.status, 503, "commit {failing}");
        }
        assert_eq!(server.connect().get(b"a").status, 404, "commit {failing}");
    }
}

/// Goal: whenever the process is killed, each id has a value that was put whole, and what was acknowledged; the next start
/// finds what is left of the others and deletes it.
#[test]
fn a_kill_leaves_whole_values() {
    let parent = tempfile::tempdir().unwrap();
    let data = parent.path().join("data");
    let mut acknowledged: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    for round in 0..4_u64 {
        let mut server = ServerProcess::start(&data);
        let mut client = Client::connect(server.address);
        for (id, value) in &acknowledged {
            assert!(client.get(&[*id]).body == *value, "{id} in round {round}");
        }
        for id in 0..3_u8 {
            let value = value(
                2_000_000 + 1000 * round as usize,
                round * 10 + u64::from(id),
            );
            assert_eq!(client.put(&[id], &value), 201);
            acknowledged.insert(id, value);
        }
        // One is on its way.
        let all = request("PUT", &target(b"way"), &value(2_000_000, round));
        client
            .send(&all[..1_000_000 + 200_000 * round as usize])
            .unwrap();
        server.kill();
    }
    let store = Arc::new(open(&EntityConfig::new(data)).unwrap());
    let server = TestServer::start(&store, |_, _| {});
    assert_eq!(server.connect().get(b"way").status, 404);
    let expected = acknowledged
        .values()
        .map(|value| 1 + value.len().div_ceil(PART_BYTES));
    let expected: usize = expected.sum();
    wait_until(|| part_keys(&*store) == expected);
    for (id, value) in &acknowledged {
        assert!(server.connect().get(&[*id]).body == *value);
    }
}

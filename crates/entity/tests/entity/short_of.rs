//! Temporary shortages of a machine: descriptors, room, or a thread that panicked. Writes get 503 meanwhile and go on
//! automatically; a restart is never needed, and nothing that was acknowledged is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::support::disk::{Disk, Fault};
use crate::support::process::ServerProcess;
use crate::support::{Client, TestServer, request, rocksdb, target, wait_until};
use millpond_entity::store::faulty::{Faults, FaultyStore};

/// Goal: a store that is short of a resource responds with 503 and Retry-After, reports it in its status, and writes
/// again without a restart; old cached values are not served instead of newer ones.
#[test]
fn writes_go_on_when_there_is_enough_again() {
    let (_directory, inner) = rocksdb();
    let inner = Arc::into_inner(inner).unwrap();
    let store = Arc::new(FaultyStore::new(inner, Faults::default()));
    let server = TestServer::start(&store, |_, _| {});
    let mut client = server.connect();
    assert_eq!(client.put(b"one", b"1"), 201);
    assert_eq!(client.get(b"one").body, b"1");
    store.run_short(true);
    // The first gets the failure, the second the refusal at once.
    for _ in 0..2 {
        let reply = client.request("PUT", &target(b"one"), b"2");
        assert_eq!(reply.status, 503);
        assert!(reply.field("Retry-After").is_some());
    }
    let status = client.request("GET", "/v0/status", b"");
    assert_eq!(status.status, 503);
    assert!(status.field("Retry-After").is_some());
    assert_eq!(client.metric("millpond_entity_paused "), 1);
    wait_until(|| store.recoveries() >= 2);
    assert_eq!(client.get(b"one").body, b"1", "reads go on");
    assert_eq!(client.put(b"two", b"2"), 503);
    store.run_short(false);
    wait_until(|| client.put(b"one", b"3") == 201);
    assert_eq!(client.get(b"one").body, b"3");
    assert_eq!(client.get(b"one").body, b"3", "from the cache");
    assert_eq!(client.request("GET", "/v0/status", b"").status, 200);
    for (metric, expected) in [("poisoned", 0), ("paused", 0), ("recoveries_total", 1)] {
        let name = format!("millpond_entity_{metric} ");
        assert_eq!(client.metric(&name), expected, "{metric}");
    }
    let hits = "millpond_entity_value_cache_lookups_total{result=\"hit\"} ";
    assert!(
        client.metric(hits) > 0,
        "the failed batch's ids are cached again"
    );
}

/// The engine recovers from a full disk by itself, with the same log file where nothing is to be written out, and a
/// library with assertions ended the server at the next write: that file had failed.
///
/// Goal: a log that had no room at its first write is gone on from, and what is acknowledged then is there behind a kill.
#[test]
fn a_log_without_room_for_its_first_write_ends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    for number in 1..=2 {
        let disk = Disk::new(directory.path(), "data");
        let fault = Fault {
            kind: "write",
            only: ".log",
            number,
            is_lasting: false,
            is_full: true,
        };
        let mut server = ServerProcess::start_on(&disk, Some(fault), &data).unwrap();
        let mut client = Client::connect(server.address);
        let key = [number as u8];
        let refused = (0..number).any(|_| client.put(&key, b"first") == 503);
        assert!(refused, "no write met the fault");
        wait_until(|| client.put(&key, b"second") == 201);
        assert!(server.is_running());
        server.kill();
        let server = ServerProcess::start(&data);
        assert_eq!(Client::connect(server.address).get(&key).body, b"second");
    }
}

/// Lets a process open no more than so many files. Returns what the limit was.
fn limit_descriptors(server: &ServerProcess, current: Option<u64>) -> Option<u64> {
    let pid = Pid::from_raw(server.id().cast_signed()).unwrap();
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let limit = Rlimit { current, maximum };
    let before = prlimit(Some(pid), Resource::Nofile, limit).unwrap();
    before.current
}

/// Lets a process open nothing more. Returns what the limit was.
fn exhaust_descriptors(server: &ServerProcess) -> Option<u64> {
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap();
    limit_descriptors(server, Some(open.count() as u64))
}

/// Puts values until one is refused, and notes those that were acknowledged.
fn put_until_refused(
    client: &mut Client,
    random: &mut fastrand::Rng,
    acknowledged: &mut BTreeMap<Vec<u8>, Vec<u8>>,
) -> bool {
    (0..2_000_u32).any(|_| {
        let key = random.u64(..).to_be_bytes().to_vec();
        // Random bytes: compression must not make them fit.
        let value: Vec<u8> = (0..20_000).map(|_| random.u8(..)).collect();
        let reply = client.request("PUT", &target(&key), &value);
        match (reply.status, reply.field("Retry-After")) {
            (201, _) => {
                acknowledged.insert(key, value);
                false
            }
            (503, Some(_)) => client.metric("millpond_entity_paused ") == 1,
            other => panic!("{other:?}: {}", String::from_utf8_lossy(&reply.body)),
        }
    })
}

/// `ulimit -n 1024`, 1,500 idle connections and 16 MB of puts: "writes are refused until a restart".
///
/// Goal: a RocksDB without descriptors refuses writes only as long as there are none, again and again, and
/// after a kill all that was acknowledged is there.
#[test]
fn descriptors_that_come_back_need_no_restart() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut server = ServerProcess::start(&data);
    let mut client = Client::connect(server.address);
    let mut random = fastrand::Rng::with_seed(33);
    let mut acknowledged = BTreeMap::new();
    let mut ranging = Client::connect(server.address);
    for round in 0..3_u8 {
        let known: Vec<Vec<u8>> = acknowledged.keys().cloned().collect();
        // Accepted, or there would be no descriptor for it, and the idle connection would make room.
        assert_eq!(ranging.request("GET", "/v0/status", b"").status, 200);
        ranging
            .send(&request("GET", "/v0/entities?start=%00", b""))
            .unwrap();
        let at_start = exhaust_descriptors(&server);
        let is_refused = put_until_refused(&mut client, &mut random, &mut acknowledged);
        assert!(is_refused, "40 MB took no descriptor");
        thread::sleep(Duration::from_millis(600));
        assert_eq!(client.put(b"refused", b""), 503);
        limit_descriptors(&server, at_start);
        wait_until(|| client.put(b"again", &[round]) == 201);
        wait_until(|| client.request("GET", "/v0/status", b"").status == 200);
        assert_eq!(client.metric("millpond_entity_poisoned "), 0);
        assert_ranges_over(&mut ranging, &known);
    }
    assert_holds(&mut client, &acknowledged);
    server.kill();
    let server = ServerProcess::start(&data);
    let mut client = Client::connect(server.address);
    assert_holds(&mut client, &acknowledged);
    assert_eq!(client.get(b"again").body, [2]);
}

/// A range read that began before the engine was opened again goes on after it: its entities come once, in order.
fn assert_ranges_over(client: &mut Client, known: &[Vec<u8>]) {
    assert_eq!(client.read_reply(false).unwrap().unwrap().status, 200);
    let chunks = client.read_chunks().unwrap();
    // The keys of this test have 8 bytes, and one has 5.
    let keys: Vec<&[u8]> = chunks
        .iter()
        .map(|chunk| &chunk[..8.min(chunk.len())])
        .collect();
    assert!(keys.is_sorted_by(|before, after| before < after));
    for key in known {
        assert!(keys.binary_search(&&key[..]).is_ok(), "{key:?} is missing");
    }
}

fn assert_holds(client: &mut Client, acknowledged: &BTreeMap<Vec<u8>, Vec<u8>>) {
    for (key, value) in acknowledged {
        let reply = client.get(key);
        assert_eq!(reply.status, 200, "{key:?}");
        assert!(reply.body == *value, "{key:?} holds something else");
    }
}

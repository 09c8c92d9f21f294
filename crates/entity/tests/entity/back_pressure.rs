//! Temporary refusals that end without a restart: by an engine that has stopped writes, and by a disk without room.

use std::sync::Arc;

use crate::support::{TestServer, request, target, wait_until};
use millpond_entity::store::Disk;
use millpond_entity::store::faulty::{Faults, FaultyStore};
use millpond_entity::store::memory::MemoryStore;

/// Goal: while the engine has stopped writes they are refused at once and not queued, reads go on, and
/// afterwards all is as before.
#[test]
fn stopped_engine_refuses_writes_and_answers_reads() {
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), Faults::default()));
    let server = TestServer::start(&store, |_, _| {});
    let mut client = server.connect();
    assert_eq!(client.put(b"id", b"before"), 201);
    store.stop_writes(true);
    wait_until(|| client.put(b"other", b"value") == 503);
    let reply = client.request("PUT", &target(b"id"), b"after");
    assert_eq!(reply.status, 503);
    assert_eq!(reply.field("Retry-After"), Some("1"));
    assert_eq!(client.delete(b"id"), 503);
    assert_eq!(client.get(b"id").body, b"before");
    assert_eq!(client.metric("millpond_entity_engine_writes_stopped "), 1);
    assert_eq!(client.request("GET", "/v0/status", b"").status, 200);
    store.stop_writes(false);
    wait_until(|| client.put(b"id", b"after") == 201);
    assert_eq!(client.get(b"id").body, b"after");
}

/// Goal: with less than the reserve left deletes alone go on, with less than half of it nothing does, and
/// room is noticed without a restart.
#[test]
fn full_disk_refuses_puts_first_and_takes_them_again() {
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), Faults::default()));
    let disk = |free_bytes| Disk {
        free_bytes,
        reserve_bytes: 1000,
    };
    store.set_disk(disk(1000));
    let server = TestServer::start(&store, |_, _| {});
    let mut client = server.connect();
    assert_eq!(client.put(b"id", b"value"), 201);
    store.set_disk(disk(999));
    wait_until(|| client.put(b"id", b"more") == 507);
    assert_eq!(client.delete(b"other"), 202);
    store.set_disk(disk(499));
    wait_until(|| client.delete(b"other") == 507);
    assert!(client.metric("millpond_entity_disk_full_total ") >= 2);
    assert_eq!(client.get(b"id").status, 200);
    assert_eq!(client.metric("millpond_entity_poisoned "), 0);
    store.set_disk(disk(1000));
    wait_until(|| client.delete(b"id") == 202);
    // The monitor may have checked the disk before there was room, and publish that only now.
    wait_until(|| client.put(b"id", b"again") == 201);
    assert_eq!(client.get(b"id").body, b"again");
}

/// Goal: while the disk takes a write and does not come back, every shard serves requests that need no disk: thousands
/// of responses in the time of one sync, which ends only when they are all there.
#[test]
fn shards_answer_while_the_disk_hangs() {
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), Faults::default()));
    let server = TestServer::start(&store, |_, http| http.shards = 2);
    let mut client = server.connect();
    assert_eq!(client.put(b"before", b"value"), 201);
    store.hold();
    // Enough connections that both shards have some that wait and some that ask.
    let mut waiting: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for client in &mut waiting {
        client
            .send(&request("PUT", &target(b"held"), b"value"))
            .unwrap();
    }
    for mut client in (0..8).map(|_| server.connect()) {
        for _ in 0..250 {
            assert_eq!(client.request("GET", "/v0/status", b"").status, 200);
            assert_eq!(client.get(b"before").body, b"value");
            assert_eq!(client.get(b"held").status, 404);
        }
    }
    assert_eq!(client.metric("millpond_entity_puts_total "), 1);
    store.release();
    for client in &mut waiting {
        assert_eq!(client.read_reply(false).unwrap().unwrap().status, 201);
    }
    assert_eq!(client.metric("millpond_entity_puts_total "), 9);
}

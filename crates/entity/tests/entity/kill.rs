//! kill -9 in the middle of pipelines of writes, then a restart: a prefix of each pipeline is left, whatever keys it
//! changed. Connections that share keys: `crash`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::process::ServerProcess;
use crate::support::{Client, request, target, wait_until};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// One change; `None` deletes.
#[derive(Clone)]
struct Change {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

/// One connection's load. It alone writes its keys, so it knows what they must be.
struct Writer {
    number: usize,
    random: fastrand::Rng,
    sequence: u64,
    /// Requests sent before the first response is read.
    pipeline: usize,
    acknowledged: Map,
    /// Sent and not acknowledged when the server died, in the order they were sent.
    unanswered: Vec<Change>,
}

impl Writer {
    fn new(number: usize, seed: u64) -> Self {
        Self {
            number,
            random: fastrand::Rng::with_seed(seed ^ number as u64),
            sequence: 0,
            pipeline: if number.is_multiple_of(2) { 1 } else { 8 },
            acknowledged: Map::new(),
            unanswered: Vec::new(),
        }
    }

    /// Writes until the connection ends, which is the only way it ends. All acknowledged writes are counted.
    fn run(&mut self, mut client: Client, acknowledged: &AtomicU64) {
        loop {
            let mut bytes = Vec::new();
            while self.unanswered.len() < self.pipeline {
                let change = self.next_change();
                bytes.extend(match &change.value {
                    Some(value) => request("PUT", &target(&change.key), value),
                    None => request("DELETE", &target(&change.key), b""),
                });
                self.unanswered.push(change);
            }
            if client.send(&bytes).is_err() {
                return;
            }
            let Ok(Some(reply)) = client.read_reply(false) else {
                return;
            };
            let change = self.unanswered.remove(0);
            if reply.status == 503 && reply.field("Retry-After").is_some() {
                // Merging has fallen behind on a machine that has other things to do: it was not begun.
                continue;
            }
            let expected = if change.value.is_some() { 201 } else { 202 };
            assert_eq!(
                reply.status,
                expected,
                "{}",
                String::from_utf8_lossy(&reply.body)
            );
            apply(&mut self.acknowledged, &change);
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A value that no other change has, of a length that crosses log and memory blocks.
    fn next_change(&mut self) -> Change {
        self.sequence += 1;
        let key = format!("writer {} key {}", self.number, self.random.u32(..300)).into_bytes();
        if self.random.u32(..10) == 0 {
            return Change { key, value: None };
        }
        let stamp = format!("{}:{};", self.number, self.sequence).into_bytes();
        let len = [0, 10, 1000, 40_000][self.random.usize(..4)] + self.random.usize(..100);
        let value = stamp
            .iter()
            .copied()
            .cycle()
            .take(stamp.len() + len)
            .collect();
        Change {
            key,
            value: Some(value),
        }
    }

    /// Reads all keys back. They must be what was acknowledged plus some first part of what was
    /// not: a whole number of changes, in order, none of them torn.
    fn verify(&mut self, address: SocketAddr, round: usize) {
        let mut client = Client::connect(address);
        let mut found = Map::new();
        for index in 0..300 {
            let key = format!("writer {} key {index}", self.number).into_bytes();
            let reply = client.get(&key);
            match reply.status {
                200 => drop(found.insert(key, reply.body)),
                404 => {}
                other => panic!("reading back gave {other}"),
            }
        }
        let mut possible = self.acknowledged.clone();
        let mut durable = self.unanswered.drain(..);
        while found != possible {
            let Some(change) = durable.next() else {
                let lost = self
                    .acknowledged
                    .iter()
                    .find(|&(key, value)| found.get(key) != Some(value));
                panic!(
                    "round {round}, writer {}: an acknowledged write is lost or a torn one visible; \
                     first difference: {:?}",
                    self.number,
                    lost.map(|(key, _)| String::from_utf8_lossy(key).into_owned()),
                );
            };
            apply(&mut possible, &change);
        }
        drop(durable);
        self.acknowledged = found;
    }
}

fn apply(map: &mut Map, change: &Change) {
    match &change.value {
        Some(value) => map.insert(change.key.clone(), value.clone()),
        None => map.remove(&change.key),
    };
}

/// A server is killed when it has acknowledged so many more.
const ACKNOWLEDGED_MAX: u64 = 800;

/// Rounds of load, kill and check on one data directory; returns the acknowledged writes.
fn kill_rounds(rounds: usize, seed: u64) -> u64 {
    let parent = tempfile::tempdir().unwrap();
    let data = parent.path().join("data");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut writers: Vec<Writer> = (0..6).map(|number| Writer::new(number, seed)).collect();
    let acknowledged = AtomicU64::new(0);
    for round in 0..rounds {
        let mut server = ServerProcess::start(&data);
        let address = server.address;
        verify_all(&mut writers, address, round);
        let wanted = acknowledged.load(Ordering::Relaxed) + random.u64(1..ACKNOWLEDGED_MAX);
        std::thread::scope(|scope| {
            for writer in &mut writers {
                let (client, acknowledged) = (Client::connect(address), &acknowledged);
                scope.spawn(move || writer.run(client, acknowledged));
            }
            wait_until(|| acknowledged.load(Ordering::Relaxed) >= wanted);
            // Not just behind a response.
            std::thread::sleep(Duration::from_micros(random.u64(..3000)));
            server.kill();
        });
    }
    let server = ServerProcess::start(&data);
    verify_all(&mut writers, server.address, rounds);
    acknowledged.into_inner()
}

fn verify_all(writers: &mut [Writer], address: SocketAddr, round: usize) {
    std::thread::scope(|scope| {
        for writer in writers {
            scope.spawn(move || writer.verify(address, round));
        }
    });
}

/// Goal: kill -9 at any moment loses nothing that was acknowledged and tears nothing.
#[test]
fn kill_9_loses_no_acknowledged_write() {
    let acknowledged = kill_rounds(12, fastrand::u64(..));
    println!("12 kills, {acknowledged} acknowledged writes, none lost");
    assert!(acknowledged > 0, "the rounds must have written something");
}

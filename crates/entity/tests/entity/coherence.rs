//! Many threads against the caches: an acknowledged write is what every reader sees from then on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Client, TestServer};
use millpond_entity::commit::{Job, JobKind, Outcome};
use millpond_entity::condition::Condition;
use millpond_entity::executor::{Answer, Executor, ExecutorConfig, ShardLink};
use millpond_entity::record::{Head, Version, encode};
use millpond_entity::store::faulty::{Faults, FaultyStore};
use millpond_entity::store::memory::MemoryStore;
use millpond_entity::store::{CachedRead, Durability, Write};
use millpond_entity::value_cache::{Lookup, ValueCache};
use millpond_entity::{EntityConfig, Store, SyncPolicy, open};
use millpond_http::RequestToken;
use millpond_io::{Driver, EpollDriver};
use millpond_mempool::{BlockPool, Buffer, Checks, PoolMode};

const KEYS: usize = 6;

/// The newest acknowledged version of each key.
#[derive(Default)]
struct Acknowledged([AtomicU64; KEYS]);

impl Acknowledged {
    fn raise(&self, key: usize, version: u64) {
        self.0[key].fetch_max(version, Ordering::SeqCst);
    }

    fn floor(&self, key: usize) -> u64 {
        self.0[key].load(Ordering::SeqCst)
    }
}

/// Last version of each key that one reader saw: versions never go back for it either.
#[derive(Default)]
struct Seen([u64; KEYS]);

impl Seen {
    fn check(&mut self, key: usize, floor: u64, version: u64) {
        assert!(
            version >= floor,
            "key {key}: {version}, acknowledged {floor}"
        );
        let last = self.0[key];
        assert!(version >= last, "key {key}: {version} after {last}");
        self.0[key] = version;
    }
}

/// A version as a value, long enough that a torn one would show.
fn value_of(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(1 + version as usize % 40)
}

/// The version, if the value is whole.
fn version_of(value: &[u8]) -> u64 {
    let version = u64::from_le_bytes(value[..8].try_into().unwrap());
    assert_eq!(value, value_of(version), "torn");
    version
}

/// A shard without sockets: the work of `handler`, on a thread of the test.
struct Shard<S> {
    store: Arc<S>,
    link: ShardLink,
    cache: ValueCache,
    blocks: BlockPool,
    answers: Vec<Answer>,
    hits: u64,
}

impl<S: Store> Shard<S> {
    fn new(store: &Arc<S>, executor: &Executor, shard_index: usize, mode: PoolMode) -> Self {
        let driver = EpollDriver::new(mode).unwrap();
        let counters = Arc::clone(&executor.shard_counters()[shard_index]);
        Self {
            store: Arc::clone(store),
            link: executor.link(shard_index, driver.waker()),
            // Room for a few: eviction mixes in.
            cache: ValueCache::new(8 << 10, executor.stamps(), counters),
            blocks: BlockPool::new("test", mode),
            answers: Vec::new(),
            hits: 0,
        }
    }

    fn buffer(&self, bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::with_capacity(&self.blocks, bytes.len()).unwrap();
        buffer.append_within_capacity(bytes);
        buffer
    }

    fn submit(
        &mut self,
        kind: JobKind,
        key: &[u8],
        value: &[u8],
        stamp: Option<millpond_entity::stamps::Stamp>,
    ) {
        let job = Job {
            shard_index: self.link.shard_index(),
            request: RequestToken::from_bits(0),
            kind,
            head: Buffer::new(),
            condition: Condition::default(),
            acks: 1,
            attempt: 0,
            refusal: None,
            key: self.buffer(key),
            value: self.buffer(value),
            stamp,
            hold: None,
        };
        self.link.admit(job.kind, job.bytes()).unwrap();
        self.link.submit(job);
    }

    /// Waits for the one response; the version a read found.
    fn settle(&mut self) -> (Outcome, u64) {
        self.link.flush();
        let start = Instant::now();
        while self.answers.is_empty() {
            assert!(start.elapsed() < Duration::from_secs(60), "no response");
            self.link.take_answers(&mut self.answers);
            // A thread that yields gives whole slices to other programs; one that sleeps comes back soon.
            std::thread::sleep(Duration::from_micros(20));
        }
        self.blocks.drain_remote();
        let Answer { job, outcome } = self.answers.pop().unwrap();
        let mut version = 0;
        match (outcome, job.kind, job.stamp) {
            (Outcome::Found, _, stamp) => {
                version = version_of(&job.value);
                if let Some(stamp) = stamp {
                    self.cache
                        .fill_late(&self.blocks, &job.key, &job.value, stamp);
                }
            }
            (Outcome::Written, JobKind::Put, Some(stamp)) => {
                self.cache.insert(&self.blocks, job.key, job.value, stamp);
            }
            (Outcome::Written, JobKind::Delete, _) => self.cache.remove(&job.key),
            _ => {}
        }
        (outcome, version)
    }

    /// The version a GET sees; 0 for an absent key.
    fn get(&mut self, key: &[u8]) -> u64 {
        let missed = match self.cache.get(key) {
            Lookup::Hit(value) => {
                self.hits += 1;
                return version_of(value);
            }
            Lookup::Miss(missed) => missed,
        };
        let read = self.store.get_cached(key, |value| {
            self.cache.fill(&self.blocks, key, value, missed);
            version_of(value)
        });
        match read.unwrap() {
            CachedRead::Found(version) => version,
            CachedRead::Absent => 0,
            CachedRead::NotCached => {
                self.submit(JobKind::Get, key, b"", missed.stamp);
                self.settle().1
            }
        }
    }
}

fn executor<S: Store>(store: &Arc<S>, stamp_count: usize, mode: PoolMode) -> Executor {
    let config = ExecutorConfig {
        contended_grace_ns: u64::MAX,
        shards: 3,
        read_threads: 2,
        jobs_in_flight_max: 1000,
        bytes_in_flight_max: 1 << 30,
        large_bytes_max: 1 << 30,
        large_wait_max: Duration::from_secs(5),
        batch_bytes_max: 8 << 20,
        stamp_count,
        pool_mode: mode,
    };
    Executor::start(store, SyncPolicy::Always, &config).unwrap()
}

/// Each shard's, on each of 18 stores.
const ROUNDS: u64 = 2_000;

/// Hits that show that the caches took part.
const HITS_MIN: u64 = 100;

/// Two shards write and read all keys, a third one only reads, until each has had its rounds and the caches
/// of all have had `hits_min` hits: how threads take turns is the machine's affair.
fn run_shards<S: Store>(
    store: &Arc<S>,
    stamp_count: usize,
    mode: PoolMode,
    rounds: u64,
    hits_min: u64,
) {
    let executor = &executor(store, stamp_count, mode);
    let acknowledged = &Acknowledged::default();
    let next = &AtomicU64::new(1);
    let hits = &AtomicU64::new(0);
    let turns = &std::array::from_fn::<_, KEYS, _>(|_| std::sync::Mutex::new(()));
    std::thread::scope(|scope| {
        for shard_index in 0..3 {
            scope.spawn(move || {
                let mut shard = Shard::new(store, executor, shard_index, mode);
                let mut seen = Seen::default();
                let mut random = fastrand::Rng::with_seed(shard_index as u64);
                let mut round = 0;
                while round < rounds || hits.load(Ordering::Relaxed) < hits_min {
                    round += 1;
                    let key = random.usize(..KEYS);
                    // One writer of a key at a time, or "older" would mean nothing.
                    if shard_index < 2 && random.u8(..4) == 0 {
                        let _turn = turns[key].lock();
                        let version = next.fetch_add(1, Ordering::SeqCst);
                        shard.submit(JobKind::Put, &[key as u8], &value_of(version), None);
                        if shard.settle().0 == Outcome::Written {
                            acknowledged.raise(key, version);
                        }
                    }
                    for _ in 0..4 {
                        let key = random.usize(..KEYS);
                        let floor = acknowledged.floor(key);
                        seen.check(key, floor, shard.get(&[key as u8]));
                    }
                    hits.fetch_add(std::mem::take(&mut shard.hits), Ordering::Relaxed);
                }
            });
        }
    });
}

/// Goal: over caches, stamps, store threads and commits of three shards at once, no read sees
/// less than was acknowledged before it began, nor less than the same reader saw before.
#[test]
fn no_shard_reads_less_than_was_acknowledged() {
    for stamp_count in [1, 4, 1024] {
        for mode in [
            PoolMode::On,
            PoolMode::Off,
            PoolMode::Checked(Checks::default()),
        ] {
            for cold in [false, true] {
                let faults = Faults {
                    cold,
                    ..Faults::default()
                };
                let store = Arc::new(FaultyStore::new(MemoryStore::new(), faults));
                run_shards(&store, stamp_count, mode, ROUNDS, HITS_MIN);
            }
        }
    }
}

/// Goal: the same on the real engine.
#[test]
fn no_shard_reads_less_than_was_acknowledged_from_rocksdb() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&EntityConfig::new(directory.path().join("data"))).unwrap();
    run_shards(&Arc::new(store), 4, PoolMode::On, ROUNDS, HITS_MIN);
}

/// Goal: a commit that fails in the middle of it all, whether its batch shows or not, makes no
/// cache say less than was acknowledged, and readers go on agreeing with the store.
#[test]
fn failed_commit_leaves_no_stale_value() {
    let failed_sync = Faults {
        failed_sync: Some(100),
        ..Faults::default()
    };
    let disk_full = Faults {
        broken_after_commits: Some(100),
        ..Faults::default()
    };
    for faults in [failed_sync, disk_full] {
        let store = Arc::new(FaultyStore::new(MemoryStore::new(), faults));
        run_shards(&store, 1024, PoolMode::On, 2 * ROUNDS, 0);
        assert!(store.commits() >= 100, "the fault was not met");
    }
}

/// Goal: over real sockets, 64 connections on two shards never see less than was acknowledged to another.
#[test]
fn no_connection_reads_less_than_another_was_told() {
    for mode in [
        PoolMode::On,
        PoolMode::Off,
        PoolMode::Checked(Checks::default()),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(open(&EntityConfig::new(directory.path().join("data"))).unwrap());
        let server = TestServer::start(&store, |config, http| {
            http.shards = 2;
            http.pool_mode = mode;
            config.cache_bytes = 256 << 10;
        });
        let acknowledged = &Acknowledged::default();
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let mut client = server.connect();
                scope.spawn(move || write_versions(&mut client, acknowledged, writer));
            }
            for reader in 0..62 {
                let mut client = server.connect();
                scope.spawn(move || read_versions(&mut client, acknowledged, reader));
            }
        });
        let mut client = server.connect();
        // A disk that takes its time over the first writes has shown the readers nothing to keep.
        for _ in 0..200 {
            assert_eq!(client.get(&[0]).status, 200);
        }
        let lookups = "millpond_entity_value_cache_lookups_total";
        assert!(client.metric(&format!("{lookups}{{result=\"hit\"}}")) > 100);
        assert!(client.metric("millpond_entity_value_cache_bytes ") <= 256 << 10);
    }
}

fn write_versions(client: &mut Client, acknowledged: &Acknowledged, writer: usize) {
    for version in 1..=600 {
        let key = 2 * (version as usize % (KEYS / 2)) + writer;
        assert_eq!(client.put(&[key as u8], &value_of(version)), 201);
        acknowledged.raise(key, version);
    }
}

fn read_versions(client: &mut Client, acknowledged: &Acknowledged, reader: u64) {
    let mut seen = Seen::default();
    let mut random = fastrand::Rng::with_seed(reader);
    for _ in 0..200 {
        let key = random.usize(..KEYS);
        let floor = acknowledged.floor(key);
        let reply = client.get(&[key as u8]);
        let version = match reply.status {
            404 => 0,
            status => {
                assert_eq!(status, 200);
                version_of(&reply.body)
            }
        };
        seen.check(key, floor, version);
    }
}

/// Goal: a shard serves its own writes without the engine; it requests a value from a read thread once; deleted values
/// are gone.
#[test]
fn written_and_cold_values_become_hot() {
    let cold = Faults {
        cold: true,
        ..Faults::default()
    };
    for mode in [
        PoolMode::On,
        PoolMode::Off,
        PoolMode::Checked(Checks::default()),
    ] {
        let store = Arc::new(FaultyStore::new(MemoryStore::new(), cold));
        let head = Head {
            version: Version(1),
            expires_ms: 0,
            content_type: b"",
            content_encoding: b"",
        };
        let old = [(&b"old"[..], &encode(&head, b"from before")[..])];
        let writes = old.iter().map(|&(key, value)| Write::Put {
            key,
            head: b"",
            value,
        });
        store.commit(writes, 0, Durability::Synced).unwrap();
        let server = TestServer::start(&store, |_, http| http.pool_mode = mode);
        let mut client = server.connect();
        assert_eq!(client.put(b"new", b"just written"), 201);
        for _ in 0..3 {
            assert_eq!(client.get(b"new").body, b"just written");
            assert_eq!(client.get(b"old").body, b"from before");
        }
        assert_eq!(client.metric("millpond_entity_cold_reads_total "), 1);
        let lookups = "millpond_entity_value_cache_lookups_total";
        assert_eq!(client.metric(&format!("{lookups}{{result=\"hit\"}}")), 5);
        assert_eq!(client.metric("millpond_entity_value_cache_entries "), 2);
        assert_eq!(client.delete(b"old"), 202);
        assert_eq!(client.delete(b"new"), 202);
        assert_eq!(client.get(b"old").status, 404);
        assert_eq!(client.get(b"new").status, 404);
        assert_eq!(client.metric("millpond_entity_value_cache_entries "), 0);
        // Their slots are still there, and count.
        assert!(client.metric("millpond_entity_value_cache_bytes ") < 256);
    }
}

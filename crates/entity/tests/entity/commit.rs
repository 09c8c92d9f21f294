//! Group commit against an oracle, on both stores, with planted faults.

use crate::support::{buffer, wait_until};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millpond_entity::commit::{Committer, Job, JobKind, Outcome};
use millpond_entity::condition::Condition;
use millpond_entity::executor::{Answer, Executor, ExecutorConfig, ShardLink};
use millpond_entity::metrics::CommitCounters;
use millpond_entity::record::{Head, Version, encode};
use millpond_entity::stamps::Stamps;
use millpond_entity::store::faulty::{Faults, FaultyStore};
use millpond_entity::store::memory::MemoryStore;
use millpond_entity::store::{CachedRead, Durability, Write};
use millpond_entity::{EntityConfig, Store, SyncPolicy, open};
use millpond_http::RequestToken;
use millpond_io::{Driver, EpollDriver};
use millpond_mempool::{BlockPool, Buffer, PoolMode};
use proptest::prelude::*;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// One change as the oracle sees it; `None` deletes.
type Change = (Vec<u8>, Option<Vec<u8>>);

fn job(blocks: &BlockPool, request: u64, change: &Change) -> Job {
    let (key, value) = change;
    Job {
        shard_index: 0,
        request: RequestToken::from_bits(request),
        kind: if value.is_some() {
            JobKind::Put
        } else {
            JobKind::Delete
        },
        head: Buffer::new(),
        condition: Condition::default(),
        acks: 1,
        attempt: 0,
        refusal: None,
        key: buffer(blocks, key),
        value: value
            .as_ref()
            .map_or_else(Buffer::new, |value| buffer(blocks, value)),
        stamp: None,
        hold: None,
    }
}

fn apply(map: &mut Map, batch: &[Change]) {
    for (key, value) in batch {
        match value {
            Some(value) => map.insert(key.clone(), value.clone()),
            None => map.remove(key),
        };
    }
}

/// Few keys, so that changes meet; values from empty to larger than a block of the engine.
fn changes() -> impl Strategy<Value = Vec<Change>> {
    let key = prop_oneof![
        proptest::collection::vec(0..3_u8, 1..3),
        proptest::collection::vec(any::<u8>(), 1..40),
    ];
    let value = prop_oneof![
        3 => proptest::collection::vec(any::<u8>(), 0..20).prop_map(Some),
        1 => (any::<u8>(), 0..6000_usize).prop_map(|(byte, len)| Some(vec![byte; len])),
        1 => Just(None),
    ];
    proptest::collection::vec((key, value), 1..20)
}

fn faults() -> impl Strategy<Value = Faults> {
    prop_oneof![
        Just(Faults::default()),
        (1..8_u64).prop_map(|n| Faults {
            failed_sync: Some(n),
            ..Faults::default()
        }),
        (0..8_u64).prop_map(|n| Faults {
            broken_after_commits: Some(n),
            ..Faults::default()
        }),
    ]
}

/// All that a store holds of `keys`, read the slow way and, if in memory, the fast way.
fn contents<'a>(store: &impl Store, keys: impl Iterator<Item = &'a Vec<u8>>) -> Map {
    let mut map = Map::new();
    for key in keys {
        let slow = store.get(key, <[u8]>::to_vec).unwrap();
        match store.get_cached(key, <[u8]>::to_vec).unwrap() {
            CachedRead::Found(fast) => assert_eq!(Some(fast), slow),
            CachedRead::Absent => assert_eq!(slow, None),
            CachedRead::NotCached => {}
        }
        if let Some(value) = slow {
            map.insert(key.clone(), value);
        }
    }
    map
}

/// Known state after a run: the acknowledged writes, and those with the failed batch.
struct Known {
    acknowledged: Map,
    with_failed_batch: Option<Map>,
}

/// Commits the batches and checks the rules that hold on every store: an outcome is `Written`
/// until the first failure and never after, and reads show what was acknowledged.
fn run<S: Store>(store: &Arc<FaultyStore<S>>, batches: &[Vec<Change>]) -> Known {
    let blocks = BlockPool::new("test", PoolMode::On);
    let counters = Arc::new(CommitCounters::default());
    let (_stamps, stamp_writer) = Stamps::new(8);
    let mut committer = Committer::new(
        Arc::clone(store),
        SyncPolicy::Always,
        Arc::clone(&counters),
        stamp_writer,
    );
    let mut known = Known {
        acknowledged: Map::new(),
        with_failed_batch: None,
    };
    for batch in batches {
        let mut jobs: Vec<Job> = batch.iter().map(|change| job(&blocks, 0, change)).collect();
        match committer.commit(&mut jobs) {
            Outcome::Written => {
                assert!(
                    known.with_failed_batch.is_none(),
                    "acknowledged after a failure"
                );
                apply(&mut known.acknowledged, batch);
                let keys = batch.iter().map(|(key, _)| key);
                let seen = contents(&**store, keys.clone());
                let expected: Map = keys
                    .filter_map(|key| known.acknowledged.get_key_value(key))
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                assert_eq!(seen, expected);
            }
            Outcome::Refused if known.with_failed_batch.is_none() => {
                let mut map = known.acknowledged.clone();
                apply(&mut map, batch);
                known.with_failed_batch = Some(map);
            }
            Outcome::Refused => {}
            other => panic!("a write ended as {other:?}"),
        }
    }
    assert_eq!(counters.is_poisoned(), known.with_failed_batch.is_some());
    assert_eq!(
        counters.syncs.value(),
        counters.commits.value(),
        "one sync per batch"
    );
    known
}

/// Acknowledged changes are all there, and the failed batch is there whole or not at all.
fn assert_nothing_lost(found: &Map, known: &Known) {
    if found != &known.acknowledged {
        assert_eq!(Some(found), known.with_failed_batch.as_ref());
    }
}

fn open_rocksdb(path: &Path) -> millpond_entity::store::rocksdb::RocksDbStore {
    open(&EntityConfig::new(path.to_owned())).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Goal: on the oracle store, a power loss at the end takes nothing that was acknowledged.
    #[test]
    fn memory_store_loses_nothing_acknowledged(
        batches in proptest::collection::vec(changes(), 1..10),
        faults in faults(),
    ) {
        let store = Arc::new(FaultyStore::new(MemoryStore::new(), faults));
        let known = run(&store, &batches);
        assert_nothing_lost(&store.inner().after_power_loss(), &known);
        assert_nothing_lost(&store.inner().contents(), &known);
    }
}

proptest! {
    // Each case opens two databases, so there are few; the memory store covers the logic.
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Goal: RocksDB agrees with the oracle, before and after it is opened again.
    #[test]
    fn rocksdb_loses_nothing_acknowledged(
        batches in proptest::collection::vec(changes(), 1..10),
        faults in faults(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let keys: std::collections::BTreeSet<Vec<u8>> =
            batches.iter().flatten().map(|(key, _)| key.clone()).collect();
        let known = {
            let store = Arc::new(FaultyStore::new(open_rocksdb(&path), faults));
            let known = run(&store, &batches);
            assert_nothing_lost(&contents(store.inner(), keys.iter()), &known);
            known
        };
        let reopened = open_rocksdb(&path);
        assert_nothing_lost(&contents(&reopened, keys.iter()), &known);
    }
}

/// Goal: while memtables become tables, tables are merged and every cache is warm and too small,
/// both ways of reading agree with the oracle.
#[test]
fn reads_agree_while_tables_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = EntityConfig::new(directory.path().join("data"));
    config.memtable_bytes = 3 << 20;
    config.cache_bytes = 1 << 20;
    let store = open(&config).unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    let mut oracle = Map::new();
    for round in 0..400_u32 {
        let batch: Vec<Change> = (0..50)
            .map(|_| {
                let mut value = round.to_le_bytes().to_vec();
                value.extend((0..random.usize(..2000)).map(|_| random.u8(..)));
                let key = random.u16(..3000).to_be_bytes().to_vec();
                (key, (random.u8(..8) > 0).then_some(value))
            })
            .collect();
        let writes = batch.iter().map(|(key, value)| match value {
            Some(value) => Write::Put {
                key,
                head: b"",
                value,
            },
            None => Write::Delete { key },
        });
        store.commit(writes, 0, Durability::Written).unwrap();
        apply(&mut oracle, &batch);
        let keys: Vec<_> = (0..50)
            .map(|_| random.u16(..3000).to_be_bytes().to_vec())
            .collect();
        let expected: Map = keys
            .iter()
            .filter_map(|key| oracle.get_key_value(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        assert_eq!(contents(&store, keys.iter()), expected, "round {round}");
    }
    let tables = std::fs::read_dir(directory.path().join("data"))
        .unwrap()
        .filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .path()
                .extension()
                .is_some_and(|e| e == "sst")
        });
    assert!(tables.count() > 0, "nothing was ever written to a table");
}

/// A shard's end of an executor, without sockets: results are polled without wakes.
struct TestShard {
    link: ShardLink,
    blocks: BlockPool,
    answers: Vec<Answer>,
}

impl TestShard {
    fn new(executor: &Executor, shard_index: usize) -> Self {
        // Only its waker is used; waking it is harmless.
        let driver = EpollDriver::new(PoolMode::On).unwrap();
        Self {
            link: executor.link(shard_index, driver.waker()),
            blocks: BlockPool::new("test", PoolMode::On),
            answers: Vec::new(),
        }
    }

    fn submit(&mut self, request: u64, change: &Change) {
        let mut job = job(&self.blocks, request, change);
        job.shard_index = self.link.shard_index();
        self.link.admit(job.kind, job.bytes()).unwrap();
        self.link.submit(job);
    }

    /// Waits until all jobs have results; returns their requests and outcomes, in order.
    fn settle(&mut self) -> Vec<(u64, Outcome)> {
        wait_until(|| {
            self.link.take_answers(&mut self.answers);
            self.link.jobs_in_flight() == 0
        });
        let outcome = |answer: Answer| (answer.job.request.to_bits(), answer.outcome);
        self.answers.drain(..).map(outcome).collect()
    }
}

fn executor<S: Store>(store: &Arc<S>, shards: usize, policy: SyncPolicy) -> Executor {
    let config = ExecutorConfig {
        shards,
        read_threads: 2,
        jobs_in_flight_max: 1000 * shards,
        bytes_in_flight_max: 1 << 30,
        large_bytes_max: 1 << 30,
        large_wait_max: Duration::from_secs(5),
        contended_grace_ns: u64::MAX,
        batch_bytes_max: 8 << 20,
        stamp_count: 8,
        pool_mode: PoolMode::On,
    };
    Executor::start(store, policy, &config).unwrap()
}

fn put(key: &str, value: &str) -> Change {
    (key.as_bytes().to_vec(), Some(value.as_bytes().to_vec()))
}

/// Goal: jobs queued while a commit runs form the next batch; a batch over the byte limit is split; results come in
/// order.
#[test]
fn what_queued_during_a_commit_is_the_next_batch() {
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), Faults::default()));
    let executor = executor(&store, 1, SyncPolicy::Always);
    let counters = executor.commit_counters();
    let mut shard = TestShard::new(&executor, 0);
    store.hold();
    shard.submit(0, &put("first", "alone"));
    shard.link.flush();
    wait_until(|| store.commits() == 1);
    for request in 1..=100 {
        shard.submit(request, &put("same key", &request.to_string()));
        shard.link.flush();
    }
    store.release();
    let answers = shard.settle();
    assert_eq!(
        answers,
        (0..=100).map(|n| (n, Outcome::Written)).collect::<Vec<_>>()
    );
    assert_eq!((counters.commits.value(), counters.syncs.value()), (2, 2));
    assert_eq!(counters.batch_jobs_max.value(), 100);
    assert_eq!(
        store.inner().contents()[&b"same key"[..]],
        b"100",
        "the last one wins"
    );

    store.hold();
    shard.submit(0, &put("first", "alone"));
    shard.link.flush();
    wait_until(|| store.commits() == 3);
    let large = (b"large".to_vec(), Some(vec![1; 5 << 20]));
    for request in 1..=3 {
        shard.submit(request, &large);
    }
    shard.link.flush();
    store.release();
    assert_eq!(shard.settle().len(), 4);
    assert_eq!(
        counters.commits.value(),
        6,
        "5 MiB values do not share a batch of 8 MiB"
    );
}

/// Goal: several shards write and read at once; each gets its own responses, in its order, and the
/// store ends as the oracle says.
#[test]
fn shards_share_commits_but_not_answers() {
    let store = Arc::new(MemoryStore::new());
    let executor = executor(&store, 4, SyncPolicy::Always);
    std::thread::scope(|scope| {
        for shard_index in 0..4 {
            let executor = &executor;
            scope.spawn(move || {
                let mut shard = TestShard::new(executor, shard_index);
                for round in 0..50_u64 {
                    for n in 0..20 {
                        let key = format!("shard {shard_index} key {n}");
                        shard.submit(round * 20 + n, &put(&key, &round.to_string()));
                    }
                    shard.link.flush();
                    let answers = shard.settle();
                    let expected = (0..20).map(|n| (round * 20 + n, Outcome::Written));
                    assert_eq!(answers, expected.collect::<Vec<_>>());
                }
            });
        }
    });
    let contents = store.contents();
    assert_eq!(contents.len(), 80);
    assert!(contents.values().all(|value| value == b"49"));
    assert_eq!(store.after_power_loss(), contents);
    assert_eq!(executor.commit_counters().batch_jobs.value(), 4000);
}

/// A batch was counted with what it refused: under clients that race for one id most of its figures were
/// of writes that never were.
///
/// Goal: counters are of what was written.
#[test]
fn refused_writes_are_not_counted() {
    let blocks = BlockPool::new("test", PoolMode::On);
    let counters = Arc::new(CommitCounters::default());
    let (_stamps, stamp_writer) = Stamps::new(8);
    let store = Arc::new(MemoryStore::new());
    let mut committer = Committer::new(
        store,
        SyncPolicy::Always,
        Arc::clone(&counters),
        stamp_writer,
    );
    let head = Head {
        version: Version(1),
        expires_ms: 0,
        content_type: b"",
        content_encoding: b"",
    };
    let change = (b"key".to_vec(), Some(encode(&head, b"value")));
    let mut batch: Vec<Job> = (0..3).map(|n| job(&blocks, n, &change)).collect();
    for late in &mut batch[1..] {
        late.condition.add_field(false, b"*").unwrap();
    }
    assert_eq!(committer.commit(&mut batch), Outcome::Written);
    let refused = Some(Outcome::PreconditionFailed);
    let refusals: Vec<_> = batch.iter().map(|job| job.refusal).collect();
    assert_eq!(refusals, [None, refused, refused]);
    assert_eq!(counters.batch_jobs.value(), 1);
    assert_eq!(counters.batch_jobs_max.value(), 1);
    assert_eq!(counters.batch_bytes.value(), batch[0].bytes() as u64);
}

/// Goal: the failed commit and everything queued behind it is refused, also from other shards.
#[test]
fn failure_refuses_all_that_queued_behind_it() {
    let faults = Faults {
        failed_sync: Some(2),
        ..Faults::default()
    };
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), faults));
    let executor = executor(&store, 2, SyncPolicy::Always);
    let (mut one, mut two) = (TestShard::new(&executor, 0), TestShard::new(&executor, 1));
    one.submit(1, &put("acknowledged", "yes"));
    one.link.flush();
    assert_eq!(one.settle(), [(1, Outcome::Written)]);
    store.hold();
    one.submit(2, &put("failed", "?"));
    one.link.flush();
    wait_until(|| store.commits() == 2);
    two.submit(3, &put("behind", "?"));
    two.link.flush();
    store.release();
    assert_eq!(one.settle(), [(2, Outcome::Refused)]);
    assert_eq!(two.settle(), [(3, Outcome::Refused)]);
    assert!(two.link.is_poisoned());
    two.submit(4, &put("later", "?"));
    two.link.flush();
    assert_eq!(
        two.settle(),
        [(4, Outcome::Refused)],
        "the next sync would succeed: not asked"
    );
    assert_eq!(
        store.inner().after_power_loss(),
        Map::from([(b"acknowledged".to_vec(), b"yes".to_vec())])
    );
}

/// Goal: under an interval policy a write is acknowledged before its sync, and the sync follows automatically; at the
/// end everything is synced. Without any sync, a failed one cannot happen.
#[test]
fn interval_policy_syncs_later_and_off_never() {
    let interval = |ms| SyncPolicy::Interval {
        ms: NonZeroU32::new(ms).unwrap(),
    };
    let store = Arc::new(MemoryStore::new());
    let executor_soon = executor(&store, 1, interval(10));
    let mut shard = TestShard::new(&executor_soon, 0);
    shard.submit(1, &put("key", "value"));
    shard.link.flush();
    assert_eq!(shard.settle(), [(1, Outcome::Written)]);
    wait_until(|| store.after_power_loss().len() == 1);
    wait_until(|| executor_soon.commit_counters().syncs.value() == 1);

    let store = Arc::new(MemoryStore::new());
    let executor_late = executor(&store, 1, interval(3_600_000));
    let mut shard = TestShard::new(&executor_late, 0);
    shard.submit(1, &put("key", "value"));
    shard.link.flush();
    assert_eq!(shard.settle(), [(1, Outcome::Written)]);
    assert!(
        store.after_power_loss().is_empty(),
        "an hour has not passed"
    );
    drop(executor_late);
    assert_eq!(store.after_power_loss().len(), 1, "a graceful end syncs");

    let faults = Faults {
        failed_sync: Some(1),
        ..Faults::default()
    };
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), faults));
    let executor_off = executor(&store, 1, SyncPolicy::Off);
    let mut shard = TestShard::new(&executor_off, 0);
    shard.submit(1, &put("key", "value"));
    shard.link.flush();
    assert_eq!(shard.settle(), [(1, Outcome::Written)]);
}

/// Goal: a failed background sync poisons too.
#[test]
fn failed_interval_sync_refuses_later_writes() {
    let faults = Faults {
        failed_sync: Some(1),
        ..Faults::default()
    };
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), faults));
    let executor = executor(
        &store,
        1,
        SyncPolicy::Interval {
            ms: NonZeroU32::MIN,
        },
    );
    let mut shard = TestShard::new(&executor, 0);
    shard.submit(1, &put("key", "value"));
    shard.link.flush();
    assert_eq!(shard.settle(), [(1, Outcome::Written)]);
    wait_until(|| executor.commit_counters().is_poisoned());
    shard.submit(2, &put("key", "newer"));
    shard.link.flush();
    assert_eq!(shard.settle(), [(2, Outcome::Refused)]);
}

/// Goal: jobs submitted before the end are committed, although no client waits for the response.
#[test]
fn end_commits_what_is_queued() {
    let store = Arc::new(FaultyStore::new(MemoryStore::new(), Faults::default()));
    let executor = executor(&store, 1, SyncPolicy::Always);
    let mut shard = TestShard::new(&executor, 0);
    store.hold();
    for n in 0..10 {
        shard.submit(n, &put(&n.to_string(), "value"));
        shard.link.flush();
    }
    wait_until(|| store.commits() == 1);
    store.release();
    drop(executor);
    assert_eq!(store.inner().after_power_loss().len(), 10);
    assert_eq!(shard.settle().len(), 10, "the responses are in the mailbox");
}

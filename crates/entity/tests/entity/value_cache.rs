//! The value cache: its bound, its eviction, and that it never returns stale values.

use crate::memory::own_resident_bytes;
use crate::support::buffer;
use crate::support::process::is_alone;
use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_entity::commit::{Job, JobKind};
use millpond_entity::condition::Condition;
use millpond_entity::metrics::ShardCounters;
use millpond_entity::stamps::{Stamp, StampWriter, Stamps};
use millpond_entity::value_cache::{Lookup, Missed, ValueCache};
use millpond_http::RequestToken;
use millpond_mempool::{BlockPool, Buffer, Checks, PoolMode};
use proptest::prelude::*;

fn job(blocks: &BlockPool, key: &[u8], value: Option<&[u8]>) -> Job {
    Job {
        shard_index: 0,
        request: RequestToken::from_bits(0),
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
        value: value.map_or_else(Buffer::new, |value| buffer(blocks, value)),
        stamp: None,
        hold: None,
    }
}

/// A cache of one shard without a server, in either pool mode.
struct Bench {
    cache: ValueCache,
    blocks: BlockPool,
    counters: Arc<ShardCounters>,
    writer: StampWriter,
}

impl Bench {
    fn new(memory_bytes: usize, stamp_count: usize, mode: PoolMode) -> Self {
        let (stamps, writer) = Stamps::new(stamp_count);
        let counters = Arc::<ShardCounters>::default();
        Self {
            cache: ValueCache::new(memory_bytes, stamps, Arc::clone(&counters)),
            blocks: BlockPool::new("test", mode),
            counters,
            writer,
        }
    }

    fn missed(&mut self, key: &[u8]) -> Missed {
        match self.cache.get(key) {
            Lookup::Hit(value) => panic!("{key:?} is cached as {value:?}"),
            Lookup::Miss(missed) => missed,
        }
    }

    fn hit(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        match self.cache.get(key) {
            Lookup::Hit(value) => Some(value.to_vec()),
            Lookup::Miss(_) => None,
        }
    }

    fn fill(&mut self, key: &[u8], value: &[u8]) {
        let missed = self.missed(key);
        self.cache.fill(&self.blocks, key, value, missed);
    }

    /// A whole batch: marks, writes, unmarks; returns the values it would cache.
    fn write(&mut self, changes: &[(&[u8], Option<&[u8]>)]) -> Vec<Job> {
        let jobs = changes.iter().map(|(k, v)| job(&self.blocks, k, *v));
        let mut jobs: Vec<Job> = jobs.collect();
        self.writer.begin(&jobs);
        self.writer.finish(&mut jobs);
        jobs
    }
}

/// Goal: whatever is put in, the cache stays within its bytes, the pool's accounting agrees with
/// its own, and what it evicts goes back to the pool.
#[test]
fn memory_is_bounded_and_comes_back() {
    for mode in [
        PoolMode::On,
        PoolMode::Off,
        PoolMode::Checked(Checks::default()),
    ] {
        let mut bench = Bench::new(1 << 20, 1 << 16, mode);
        let mut random = fastrand::Rng::with_seed(5);
        for n in 0..20_000_u32 {
            let key = (n % 7_000).to_le_bytes();
            let value = vec![n as u8; random.usize(..3_000)];
            if bench.hit(&key).is_none() {
                bench.fill(&key, &value);
            }
            assert!(bench.cache.used_bytes() <= bench.cache.limit_bytes());
            let live_bytes = bench.blocks.stats().live_bytes as usize;
            assert!(live_bytes <= bench.cache.limit_bytes());
        }
        let counters = &bench.counters.value_cache;
        assert!(bench.cache.used_bytes() > bench.cache.limit_bytes() * 9 / 10);
        assert!(counters.evictions.value() > 1_000);
        assert_eq!(counters.bytes.value(), bench.cache.used_bytes() as u64);
        assert_eq!(counters.entries.value(), bench.cache.len() as u64);
        assert_eq!(counters.hits.value() + counters.misses.value(), {
            20_000 + counters.misses.value() / 2
        });
        for n in 0..7_000_u32 {
            bench.cache.remove(&n.to_le_bytes());
        }
        assert!(bench.cache.is_empty());
        // The rest are the slots: under 100 bytes for each place of the index.
        assert!(bench.cache.used_bytes() <= (1 << 20) / 256 * 100);
        assert_eq!(bench.blocks.stats().live_objects, 0);
    }
}

/// Goal: tiny values fill the index's buckets before the bytes; the count is bounded too.
#[test]
fn full_buckets_evict_instead_of_growing() {
    let mut bench = Bench::new(64 << 10, 1 << 12, PoolMode::On);
    for n in 0..5_000_u32 {
        bench.fill(&n.to_le_bytes(), b"");
        assert_eq!(
            bench.hit(&n.to_le_bytes()),
            Some(Vec::new()),
            "the newest stays"
        );
    }
    assert!(bench.cache.len() <= (64 << 10) / 256);
    assert!(bench.cache.len() > 64);
}

/// Goal: the slots of many tiny values count after these have gone, so that large ones do not come
/// on top of them: it was a third more than the limit.
#[test]
fn slots_count_for_as_long_as_they_are_there() {
    let mut bench = Bench::new(1 << 20, 1 << 16, PoolMode::On);
    for n in 0..20_000_u32 {
        bench.fill(&n.to_le_bytes(), b"");
    }
    let slots = bench.cache.len();
    for n in 20_000..25_000_u32 {
        bench.fill(&n.to_le_bytes(), &[3; 4_000]);
    }
    assert!(
        bench.cache.len() < slots / 8,
        "large values took their place"
    );
    let live_bytes = bench.blocks.stats().live_bytes as usize;
    let slot_bytes = slots * 64;
    assert!(live_bytes + slot_bytes <= bench.cache.limit_bytes());
    assert!(live_bytes > bench.cache.limit_bytes() / 2);
}

/// Goal: a cache of any size, even one that its own slots could fill, ends each call.
#[test]
fn caches_of_a_few_hundred_bytes() {
    for memory_bytes in 0..3_000 {
        let mut bench = Bench::new(memory_bytes, 16, PoolMode::On);
        for n in 0..40_u32 {
            bench.fill(&n.to_le_bytes(), &vec![1; n as usize]);
            assert!(bench.cache.used_bytes() <= bench.cache.limit_bytes());
        }
    }
}

/// Goal: values read between two rounds of the hand stay; the others go.
#[test]
fn values_in_use_outlive_values_passing_by() {
    let mut bench = Bench::new(256 << 10, 1 << 12, PoolMode::On);
    let used: Vec<[u8; 4]> = (0..20_u32).map(u32::to_le_bytes).collect();
    for key in &used {
        bench.fill(key, &[7; 1000]);
    }
    for n in 1_000..6_000_u32 {
        for key in &used {
            assert!(bench.hit(key).is_some(), "evicted while in use, at {n}");
        }
        bench.fill(&n.to_le_bytes(), &[1; 1000]);
    }
    assert!(bench.hit(&1_000_u32.to_le_bytes()).is_none());
}

/// Free blocks of lengths that came no more stayed beside the new ones until the sweeps of seconds later.
///
/// Goal: however lengths change, the cache and what it evicted take little more memory than the cache may.
#[test]
fn other_lengths_take_the_memory_of_those_before() {
    const MEMORY_BYTES: usize = 64 << 20;
    if !is_alone("value_cache::other_lengths_take_the_memory_of_those_before") {
        return;
    }
    let mut bench = Bench::new(MEMORY_BYTES, 1 << 16, PoolMode::On);
    let before_bytes = own_resident_bytes();
    let mut n = 0_u32;
    for value_bytes in [16_000, 6000, 7000, 12_000] {
        let value = vec![1; value_bytes];
        for _ in 0..2 * MEMORY_BYTES / value_bytes {
            n += 1;
            bench.fill(&n.to_le_bytes(), &value);
        }
        let taken_bytes = own_resident_bytes() - before_bytes;
        assert!(bench.cache.used_bytes() > MEMORY_BYTES / 2);
        assert!(
            taken_bytes < MEMORY_BYTES / 16 * 18,
            "{taken_bytes} bytes with values of {value_bytes}"
        );
    }
}

/// Goal: a value that would push out much of the rest is not kept, and no memory means no cache.
#[test]
fn large_values_and_no_memory() {
    let mut bench = Bench::new(64 << 10, 16, PoolMode::On);
    bench.fill(b"small", b"stays");
    bench.fill(b"large", &[1; 9 << 10]);
    assert_eq!(bench.hit(b"large"), None);
    assert_eq!(bench.hit(b"small").unwrap(), b"stays");
    let mut none = Bench::new(0, 16, PoolMode::On);
    none.fill(b"key", b"");
    let mut jobs = none.write(&[(b"key", Some(b"value"))]);
    let job = jobs.pop().unwrap();
    none.cache
        .insert(&none.blocks, job.key, job.value, job.stamp.unwrap());
    assert_eq!(none.hit(b"key"), None);
    assert!(none.cache.is_empty());
}

/// Goal: each way a fill can come too late, and the write that kills an entry.
#[test]
fn stamps_refuse_what_a_write_overtook() {
    let mut bench = Bench::new(64 << 10, 1 << 10, PoolMode::On);
    let before = bench.missed(b"key");
    bench.write(&[(b"key", Some(b"new"))]);
    bench.cache.fill(&bench.blocks, b"key", b"old", before);
    assert_eq!(bench.hit(b"key"), None, "a write ended during the read");

    let before = bench.missed(b"key");
    let batch = [job(&bench.blocks, b"key", Some(b"newer"))];
    bench.writer.begin(&batch);
    bench.cache.fill(&bench.blocks, b"key", b"newer", before);
    assert_eq!(bench.hit(b"key"), None, "a write began during the read");
    let during = bench.missed(b"key");
    assert!(during.stamp.is_none());
    let mut batch = batch;
    bench.writer.finish(&mut batch);
    bench.cache.fill(&bench.blocks, b"key", b"new", during);
    assert_eq!(bench.hit(b"key"), None, "the read began during a write");

    bench.fill(b"key", b"newer");
    assert_eq!(bench.hit(b"key").unwrap(), b"newer");
    let other = [job(&bench.blocks, b"key", None)];
    bench.writer.begin(&other);
    assert_eq!(bench.hit(b"key"), None, "a write is under way");
    assert!(bench.cache.is_empty(), "dead entries are dropped when met");
}

/// Goal: of several writes that share a stamp in one batch only the last may be cached, whether
/// they share the key or not; a failed batch caches nothing, then or later.
#[test]
fn only_the_last_write_of_a_stamp_comes_home() {
    let mut bench = Bench::new(64 << 10, 1, PoolMode::On);
    let jobs = bench.write(&[(b"a", Some(b"1")), (b"b", Some(b"1")), (b"a", Some(b"2"))]);
    let stamps: Vec<Option<Stamp>> = jobs.iter().map(|job| job.stamp).collect();
    assert!(stamps[0].is_none() && stamps[1].is_none() && stamps[2].is_some());
    let jobs = bench.write(&[(b"a", Some(b"3")), (b"a", None)]);
    assert!(jobs[0].stamp.is_none(), "deleted in the same batch");

    let failed = [job(&bench.blocks, b"a", Some(b"?"))];
    bench.writer.begin(&failed);
    for _ in 0..3 {
        bench.fill(b"a", b"whatever the engine says");
        assert_eq!(bench.hit(b"a"), None);
    }
}

type Map = BTreeMap<u8, u8>;

/// One step of one participant, in a run that mixes the steps of all.
#[derive(Clone, Debug)]
enum Step {
    /// The writer's next: begin a batch, apply it, finish it (or fail), in turn.
    Write(Vec<(u8, Option<u8>)>, bool),
    /// Shard 0 or 1 looks up, and on a miss begins to read.
    Get(usize, u8),
    /// The engine is read by the n-th read under way.
    Read(usize),
    /// The n-th result of the engine is offered to its cache.
    Fill(usize),
    /// The n-th job that waits for its shard returns, to either shard.
    Home(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let batch = proptest::collection::vec((0..12_u8, any::<Option<u8>>()), 1..5);
    let step = prop_oneof![
        3 => (batch, proptest::bool::weighted(0.97)).prop_map(|(b, ok)| Step::Write(b, ok)),
        4 => (0..2_usize, 0..12_u8).prop_map(|(shard, key)| Step::Get(shard, key)),
        2 => (0..4_usize).prop_map(Step::Read),
        2 => (0..4_usize).prop_map(Step::Fill),
        2 => (0..2_usize, 0..4_usize).prop_map(|(shard, n)| Step::Home(shard, n)),
    ];
    proptest::collection::vec(step, 1..200)
}

/// A value with a distinct length, whose block is always the smallest.
fn value_of(seed: u8) -> Vec<u8> {
    vec![seed; 1 + usize::from(seed % 40)]
}

/// A batch between two steps of the writer.
enum Writing {
    Nothing,
    Begun(Vec<Job>),
    Applied(Vec<Job>),
    Poisoned,
}

struct Read {
    shard: usize,
    key: u8,
    missed: Missed,
    seen: Option<Option<u8>>,
}

struct Model {
    caches: Vec<ValueCache>,
    blocks: BlockPool,
    writer: StampWriter,
    engine: Map,
    writing: Writing,
    reads: Vec<Read>,
    homecoming: Vec<Job>,
    hits: usize,
}

impl Model {
    fn new(stamp_count: usize) -> Self {
        let (stamps, writer) = Stamps::new(stamp_count);
        // Room for eight of the twelve entries: eviction mixes in.
        let cache = || ValueCache::new(1_800, Arc::clone(&stamps), Arc::default());
        Self {
            caches: vec![cache(), cache()],
            blocks: BlockPool::new("test", PoolMode::On),
            writer,
            engine: Map::new(),
            writing: Writing::Nothing,
            reads: Vec::new(),
            homecoming: Vec::new(),
            hits: 0,
        }
    }

    fn write(&mut self, batch: &[(u8, Option<u8>)], succeeds: bool) {
        self.writing = match std::mem::replace(&mut self.writing, Writing::Nothing) {
            Writing::Nothing => {
                let jobs = batch.iter().map(|&(key, value)| {
                    let value = value.map(value_of);
                    job(&self.blocks, &[key], value.as_deref())
                });
                let jobs: Vec<Job> = jobs.collect();
                self.writer.begin(&jobs);
                Writing::Begun(jobs)
            }
            Writing::Begun(jobs) => {
                for job in &jobs {
                    match job.kind {
                        JobKind::Put => self.engine.insert(job.key[0], job.value[0]),
                        _ => self.engine.remove(&job.key[0]),
                    };
                }
                Writing::Applied(jobs)
            }
            Writing::Applied(mut jobs) if succeeds => {
                self.writer.finish(&mut jobs);
                self.homecoming.append(&mut jobs);
                Writing::Nothing
            }
            Writing::Applied(_) | Writing::Poisoned => Writing::Poisoned,
        };
    }

    fn get(&mut self, shard: usize, key: u8) {
        match self.caches[shard].get(&[key]) {
            Lookup::Hit(value) => {
                let expected = self.engine.get(&key).expect("cached, but not there");
                assert_eq!(value, value_of(*expected));
                self.hits += 1;
            }
            Lookup::Miss(missed) => self.reads.push(Read {
                shard,
                key,
                missed,
                seen: None,
            }),
        }
    }

    fn read(&mut self, n: usize) {
        if let Some(read) = self.reads.iter_mut().filter(|r| r.seen.is_none()).nth(n) {
            read.seen = Some(self.engine.get(&read.key).copied());
        }
    }

    fn fill(&mut self, n: usize) {
        let answered = |(_, read): &(usize, &Read)| read.seen.is_some();
        let found = self.reads.iter().enumerate().filter(answered).nth(n);
        let Some((index, _)) = found else { return };
        let read = self.reads.swap_remove(index);
        if let Some(Some(value)) = read.seen {
            let value = value_of(value);
            self.caches[read.shard].fill(&self.blocks, &[read.key], &value, read.missed);
        }
    }

    fn home(&mut self, shard: usize, n: usize) {
        if n >= self.homecoming.len() {
            return;
        }
        let job = self.homecoming.swap_remove(n);
        match (job.kind, job.stamp) {
            (JobKind::Put, Some(stamp)) => {
                self.caches[shard].insert(&self.blocks, job.key, job.value, stamp);
            }
            (JobKind::Delete, _) => self.caches[shard].remove(&job.key),
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Goal: in every order in which a writer, two shards, reads under way and jobs coming home
    /// can mix, with one, few or many stamps, a hit is what the engine holds at that moment.
    #[test]
    fn hits_agree_with_the_oracle_in_every_order(
        steps in steps(),
        stamp_count in prop_oneof![Just(1_usize), Just(3), Just(64)],
    ) {
        let mut model = Model::new(stamp_count);
        for step in &steps {
            match step {
                Step::Write(batch, succeeds) => model.write(batch, *succeeds),
                Step::Get(shard, key) => model.get(*shard, *key),
                Step::Read(n) => model.read(*n),
                Step::Fill(n) => model.fill(*n),
                Step::Home(shard, n) => model.home(*shard, *n),
            }
        }
    }
}

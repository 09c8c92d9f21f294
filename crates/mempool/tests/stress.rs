//! Memory that changes hands while threads come and go.
//!
//! Each thread lends from pools of its own and from malloc, leaves some of it in bins that all threads share, takes
//! blocks of others out, checks them, and frees them or passes them on. Threads end at any point of this, their pools
//! with them, and new ones take their places. Allocator bugs hide in such patterns more than in any one call. Not a
//! benchmark, and no order of events is expected.
#![allow(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "the helpers of these tests are tests too"
)]

use millpond_mempool::{
    BlockPool, Buffer, Checks, Pool, PoolMode, Pooled, flush_remote_frees, malloc,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

const BINS: usize = 16;
const THREADS_AT_ONCE: usize = 4;
/// Threads that follow one another in each place, and steps of each: little under Miri.
const GENERATIONS: u64 = if cfg!(miri) { 2 } else { 12 };
const STEPS_MAX: u64 = if cfg!(miri) { 40 } else { 2500 };
/// More than this is not kept in a bin, or memory would grow without bound.
const BIN_LEN_MAX: usize = 200;

/// splitmix64.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Mostly small, sometimes around the largest block, seldom far above.
    fn size_bytes(&mut self) -> usize {
        match self.below(20) {
            0 => 30_000 + self.below(6_000),
            1 => self.below(300_000),
            2..=6 => self.below(4_000),
            _ => self.below(300),
        }
    }
}

/// Objects made and not dropped.
static LIVE_OBJECTS: AtomicI64 = AtomicI64::new(0);

/// An object that is counted and knows what it was made of.
struct Counted([u64; 7]);

impl Counted {
    fn new(number: u64) -> Self {
        LIVE_OBJECTS.fetch_add(1, Ordering::Relaxed);
        Self([number; 7])
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert_eq!(self.0, [self.0[0]; 7], "another holder wrote here");
        LIVE_OBJECTS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Which bytes of that many are checked: all of a few, a sample of many that has both ends.
fn looked_at(len: usize) -> impl Iterator<Item = usize> {
    let step = match len {
        _ if cfg!(miri) => len / 8 + 1,
        0..512 => 1,
        _ => 251,
    };
    (0..len).step_by(step).chain(len.checked_sub(1))
}

/// A block of malloc's. Its length's low byte is in each byte that is checked.
struct Raw {
    start: *mut u8,
    len: usize,
}

// SAFETY: the block is its holder's, on whatever thread.
unsafe impl Send for Raw {}

impl Raw {
    fn new(noise: &mut Noise) -> Self {
        let len = noise.size_bytes().max(1);
        let start = match noise.below(4) {
            0 => malloc::allocate_aligned(1 << noise.below(14), len),
            1 => malloc::allocate_zeroed(len),
            _ => malloc::allocate(len),
        };
        assert!(!start.is_null(), "the system has memory");
        let raw = Self { start, len };
        raw.fill(0);
        raw
    }

    fn looked_at(&self) -> impl Iterator<Item = usize> {
        looked_at(self.len)
    }

    fn fill(&self, from: usize) {
        for index in self.looked_at().filter(|&index| index >= from) {
            // SAFETY: below the block's length.
            unsafe { self.start.add(index).write(self.len as u8) };
        }
    }

    /// Another size: bytes within both stay.
    fn resize(&mut self, len: usize) {
        let kept_len = self.len.min(len);
        // SAFETY: only the result is used from here on.
        self.start = unsafe { malloc::reallocate(self.start, len) };
        assert!(!self.start.is_null(), "the system has memory");
        self.check(kept_len);
        self.len = len;
        self.fill(0);
    }

    fn check(&self, kept_len: usize) {
        for index in self.looked_at().filter(|&index| index < kept_len) {
            // SAFETY: below what the block has and had.
            let found = unsafe { self.start.add(index).read() };
            assert_eq!(found, self.len as u8, "another holder wrote here");
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.check(self.len);
        // SAFETY: lent, and given up here.
        unsafe { malloc::free(self.start) };
    }
}

/// Objects that change owners.
enum Load {
    Bytes(Buffer),
    Object(Pooled<Counted>),
    Raw(Raw),
}

impl Load {
    fn check(&self) {
        match self {
            Self::Bytes(buffer) => {
                let len = buffer.len();
                assert!(looked_at(len).all(|index| buffer[index] == len as u8));
            }
            Self::Object(object) => assert_eq!(object.0, [object.0[0]; 7]),
            Self::Raw(raw) => raw.check(raw.len),
        }
    }
}

type Bins = [Mutex<Vec<Load>>; BINS];

/// One thread's life.
struct Worker<'a> {
    noise: Noise,
    blocks: BlockPool,
    objects: Pool<Counted>,
    held: Vec<Load>,
    bins: &'a Bins,
}

impl<'a> Worker<'a> {
    fn new(seed: u64, bins: &'a Bins) -> Self {
        let mode = match seed % 8 {
            6 => PoolMode::Off,
            // It checks every byte of a slot, which takes minutes under Miri.
            7 if !cfg!(miri) => PoolMode::Checked(Checks::default()),
            _ => PoolMode::On,
        };
        Self {
            noise: Noise(seed),
            blocks: BlockPool::new("stress", mode),
            objects: Pool::new("stress", mode),
            held: Vec::new(),
            bins,
        }
    }

    fn run(mut self) {
        for _ in 0..self.noise.next() % STEPS_MAX {
            self.step();
        }
        assert!(self.blocks.stats().identity_holds() && self.objects.stats().identity_holds());
        // Half of what it holds outlives it; the rest and the pools go with it, in an order that
        // changes.
        let kept_count = self.held.len() / 2;
        for load in self.held.split_off(kept_count) {
            self.leave(load);
        }
        if self.noise.below(2) == 0 {
            self.held.clear();
        }
    }

    fn step(&mut self) {
        match self.noise.below(100) {
            0..=29 => {
                let load = self.lend();
                self.held.push(load);
            }
            30..=49 => {
                let load = self.lend();
                self.leave(load);
            }
            50..=69 => self.take_over(),
            70..=89 if !self.held.is_empty() => {
                let index = self.noise.below(self.held.len());
                self.held.swap_remove(index).check();
            }
            90 | 91 => flush_remote_frees(),
            92..=95 => {
                self.blocks.drain_remote();
                self.blocks.go_on_trimming();
                self.objects.drain_remote();
            }
            96 => {
                self.blocks.begin_trim();
                self.objects.trim();
            }
            97 => {
                malloc::trim();
            }
            _ => {}
        }
    }

    fn lend(&mut self) -> Load {
        match self.noise.below(3) {
            0 => {
                let len = self.noise.size_bytes();
                let mut buffer = Buffer::new();
                buffer
                    .extend_from_slice(&self.blocks, &vec![len as u8; len])
                    .unwrap();
                Load::Bytes(buffer)
            }
            1 => {
                let object = Counted::new(self.noise.next());
                Load::Object(self.objects.insert(object).unwrap())
            }
            _ => Load::Raw(Raw::new(&mut self.noise)),
        }
    }

    fn leave(&mut self, load: Load) {
        let bin = &self.bins[self.noise.below(BINS)];
        let mut bin = bin.lock().unwrap();
        if bin.len() < BIN_LEN_MAX {
            bin.push(load);
        }
    }

    /// Takes a handful out of a bin: frees most, resizes some, holds some.
    fn take_over(&mut self) {
        let loads = {
            let mut bin = self.bins[self.noise.below(BINS)].lock().unwrap();
            let kept_count = bin.len() - self.noise.below(40).min(bin.len());
            bin.split_off(kept_count)
        };
        for mut load in loads {
            load.check();
            if let Load::Raw(raw) = &mut load
                && self.noise.below(3) == 0
            {
                raw.resize(self.noise.size_bytes().max(1));
            }
            if self.noise.below(4) == 0 {
                self.held.push(load);
            }
        }
    }
}

/// Goal: no block is written by two holders, lost or freed twice; and when all is over, not one chunk of the process is
/// lent.
#[test]
fn memory_changes_hands_while_threads_die() {
    for seed in 1..=if cfg!(miri) { 1 } else { 2 } {
        let bins: Bins = std::array::from_fn(|_| Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for place in 0..THREADS_AT_ONCE as u64 {
                let bins = &bins;
                scope.spawn(move || {
                    for generation in 0..GENERATIONS {
                        let seed = seed * 1000 + generation * THREADS_AT_ONCE as u64 + place;
                        let life = || Worker::new(seed, bins).run();
                        thread::scope(|inner| inner.spawn(life).join().unwrap());
                    }
                });
            }
        });
        for bin in bins {
            for load in bin.into_inner().unwrap() {
                load.check();
            }
        }
        flush_remote_frees();
        malloc::trim();
        assert_eq!(LIVE_OBJECTS.load(Ordering::Relaxed), 0);
        let stats = malloc::stats();
        let left = (stats.live_count, stats.mapped_count, stats.chunk_bytes);
        assert_eq!(left, (0, 0, 0), "seed {seed}: {stats:?}");
        assert!(
            stats.heap_count <= 2 * THREADS_AT_ONCE + 2,
            "heaps are adopted"
        );
    }
}

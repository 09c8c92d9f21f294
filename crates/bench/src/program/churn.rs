//! A day of a busy server, without the waiting: what is left of its memory.
//!
//! Live bytes follow the load: from a peak at noon down to a quarter of it at night, and up to the peak again: what a
//! day leaves shows at the same load. Seven blocks of ten are short-lived (one of 512 places, at random); the others
//! live until the load has no room for them (a random one goes). Sizes are the recorded ones, half as large again in
//! the second quarter of the day and a quarter smaller in the last, so that holes of the morning do not fit the
//! afternoon. When the day is over, 5 % of the peak stay alive and nothing happens any more but one small request each
//! second.
//!
//! Idle memory goes back on a tick: the pools' owner calls `trim` 288 times in the day, and once a
//! second when idle. An allocator that goes by the clock finds a day of seconds, and ten of them
//! idle; it gets no calls. The tables of what is alive are made, and written to, beforehand.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec;
use fastrand::Rng;

use crate::counters::Timed;
use crate::memory;
use crate::memory::{Memory, Objects, Placed};
use crate::sizes::Sizes;
use crate::tagged::{TAGGED_BYTES_MIN, Tagged};

use super::{ALLOCATIONS_PER_ITERATION, Outcome, Plan, Retention, WARM_UP_ITERATIONS};

/// Memory readings, and ticks of the owner: every five minutes of the day.
const TICK_COUNT: u64 = 288;
/// By then the first blocks have filled the memory to what the load asks for.
const FILLED_TICK: u64 = TICK_COUNT / 8;
/// The part of a day's allocations that is alive at the peak.
const TURNOVER: u64 = 75;
/// Of the recorded sizes.
const MEAN_BYTES: u64 = 340;
const LIVE_PEAK_BYTES_MIN: u64 = 1 << 20;
/// Load of the night as a part of the peak.
const NIGHT: f64 = 0.25;
const SHORT_COUNT: usize = 512;
const SHORT_OF_TEN: u8 = 7;
/// The part of the peak that survives the day.
const SURVIVING: f64 = 0.05;
/// One in so many bytes of live memory may be a table entry.
const BYTES_PER_ENTRY: u64 = 200;
/// Blocks of the one request per idle second.
const HEARTBEAT_COUNT: usize = 16;
/// Enough of the peak to call it given back.
const RETURNED_ENOUGH: f64 = 0.8;

/// The objects that are alive when the day is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Survivors {
    /// The oldest objects: caches, settings, connections that stay.
    Oldest,
    /// Any allocator: one block in twenty, wherever it is, is bad for every allocator that cannot
    /// move blocks.
    Random,
}

struct Day<M: Memory> {
    memory: M,
    rng: Rng,
    sizes: Sizes,
    short: Vec<Option<Tagged<M::Block>>>,
    /// The first `long_count` are there.
    long: Vec<Option<Tagged<M::Block>>>,
    long_count: usize,
    live_bytes: u64,
    live_peak_bytes: u64,
    step: u64,
    checksum: u64,
}

/// RSS beside live bytes, over the day.
#[derive(Default)]
struct Watch {
    base_bytes: u64,
    live_peak_bytes: u64,
    rss_peak_bytes: u64,
    at_peak: f64,
    worst: f64,
}

impl Watch {
    fn rss(&self) -> u64 {
        memory::anonymous_bytes().saturating_sub(self.base_bytes)
    }

    fn look(&mut self, live_bytes: u64, is_filled: bool) {
        let rss_bytes = memory::anonymous_bytes_quickly().saturating_sub(self.base_bytes);
        self.rss_peak_bytes = self.rss_peak_bytes.max(rss_bytes);
        let ratio = rss_bytes as f64 / live_bytes.max(1) as f64;
        if live_bytes > self.live_peak_bytes {
            self.live_peak_bytes = live_bytes;
            self.at_peak = ratio;
        }
        if is_filled {
            self.worst = self.worst.max(ratio);
        }
    }
}

impl<M: Memory> Day<M> {
    fn new(plan: &Plan) -> Self {
        let mut rng = Rng::with_seed(plan.seed);
        let allocated_bytes = plan.iterations * ALLOCATIONS_PER_ITERATION * MEAN_BYTES;
        let live_peak_bytes = (allocated_bytes / TURNOVER).max(LIVE_PEAK_BYTES_MIN);
        let empty = |count: usize| (0..count).map(|_| None).collect();
        Self {
            memory: M::new(),
            sizes: Sizes::draw(&mut rng),
            rng,
            short: empty(SHORT_COUNT),
            long: empty((live_peak_bytes / BYTES_PER_ENTRY) as usize),
            long_count: 0,
            live_bytes: 0,
            live_peak_bytes,
            step: 0,
            checksum: 0,
        }
    }

    /// All of it; returns what was seen of the memory.
    #[inline(never)]
    fn live_through(&mut self, steps: u64, watch: &mut Watch) {
        for tick in 0..TICK_COUNT {
            let time = (tick + 1) as f64 / TICK_COUNT as f64;
            let target_bytes = (self.live_peak_bytes as f64 * load_at(time)) as u64;
            let (numerator, denominator) = scale_at(tick);
            let until = steps * (tick + 1) / TICK_COUNT;
            while self.step < until {
                let size_bytes = self.sizes.next() * numerator / denominator;
                self.allocate(size_bytes.max(TAGGED_BYTES_MIN));
                while self.live_bytes > target_bytes && self.long_count > 0 {
                    self.free_any();
                }
            }
            self.memory.trim();
            watch.look(self.live_bytes, tick >= FILLED_TICK);
        }
    }

    fn allocate(&mut self, size_bytes: usize) {
        self.step += 1;
        let block = Tagged::new(self.memory.block(size_bytes), size_bytes, self.step);
        self.live_bytes += size_bytes as u64;
        if self.rng.u8(..10) < SHORT_OF_TEN {
            let place = self.rng.usize(..SHORT_COUNT);
            if let Some(old) = self.short[place].replace(block) {
                self.free(old);
            }
            return;
        }
        if self.long_count == self.long.len() {
            self.free_any();
        }
        self.long[self.long_count] = Some(block);
        self.long_count += 1;
    }

    /// A random one of the long-lived.
    fn free_any(&mut self) {
        let place = self.rng.usize(..self.long_count);
        self.long_count -= 1;
        self.long.swap(place, self.long_count);
        if let Some(block) = self.long[self.long_count].take() {
            self.free(block);
        }
    }

    fn free(&mut self, mut block: Tagged<M::Block>) {
        self.checksum = self.checksum.wrapping_add(block.tag());
        self.live_bytes -= block.size_bytes() as u64;
    }

    /// Frees all but the survivors.
    fn drop_the_rest(&mut self, survivors: Survivors) {
        for place in 0..SHORT_COUNT {
            if let Some(block) = self.short[place].take() {
                self.free(block);
            }
        }
        let alive = &mut self.long[..self.long_count];
        match survivors {
            Survivors::Oldest => {
                alive.sort_unstable_by_key(|block| block.as_ref().map(Tagged::tag_half));
            }
            Survivors::Random => self.rng.shuffle(alive),
        }
        let kept_bytes = (self.live_peak_bytes as f64 * SURVIVING) as u64;
        let mut kept = 0_u64;
        for place in 0..self.long_count {
            let size_bytes = self.long[place].as_ref().map_or(0, Tagged::size_bytes) as u64;
            if kept + size_bytes <= kept_bytes {
                kept += size_bytes;
            } else if let Some(block) = self.long[place].take() {
                self.free(block);
            }
        }
    }

    /// The one request of an idle second.
    fn heartbeat(&mut self) {
        for _ in 0..HEARTBEAT_COUNT {
            let size_bytes = self.sizes.next();
            let mut block = Tagged::new(self.memory.block(size_bytes), size_bytes, 0);
            self.checksum = self.checksum.wrapping_add(block.tag());
        }
    }
}

/// Load at a time from 0 to 1: noon, night, noon.
fn load_at(time: f64) -> f64 {
    let wave = (1.0 + (time * std::f64::consts::TAU).cos()) / 2.0;
    NIGHT + (1.0 - NIGHT) * wave
}

/// Sizes of the tick as a fraction of the recorded ones.
const fn scale_at(tick: u64) -> (usize, usize) {
    match 4 * tick / TICK_COUNT {
        1 => (3, 2),
        3 => (3, 4),
        _ => (1, 1),
    }
}

pub(super) fn run<M: Memory>(plan: &Plan, survivors: Survivors) -> Outcome {
    let mut day = Day::<M>::new(plan);
    let mut watch = Watch {
        base_bytes: memory::anonymous_bytes(),
        ..Watch::default()
    };
    let steps = plan.iterations * ALLOCATIONS_PER_ITERATION;
    let timed = Timed::of(|| day.live_through(steps, &mut watch));
    let (live_end_bytes, rss_end_bytes) = (day.live_bytes, watch.rss());
    (plan.on_idle)();
    day.drop_the_rest(survivors);
    let rss_peak_bytes = watch.rss_peak_bytes.max(rss_end_bytes);
    let kept = |rss_bytes: u64| rss_bytes as f64 / rss_peak_bytes.max(1) as f64;
    // The peak was seen in passing and may be a few pages too low.
    let returned = |rss_bytes: u64| (1.0 - kept(rss_bytes)).max(0.0);
    let (mut rss_idle_bytes, mut returned_after_s) = (watch.rss(), None);
    for second in 1..=plan.idle_seconds {
        thread::sleep(Duration::from_secs(1));
        day.heartbeat();
        day.memory.trim();
        rss_idle_bytes = watch.rss();
        if returned_after_s.is_none() && returned(rss_idle_bytes) >= RETURNED_ENOUGH {
            returned_after_s = Some(second);
        }
    }
    let ratio = |rss_bytes: u64, live_bytes: u64| rss_bytes as f64 / live_bytes.max(1) as f64;
    let retention = Retention {
        live_peak_bytes: watch.live_peak_bytes,
        rss_peak_bytes,
        rss_per_live_at_peak: watch.at_peak,
        rss_per_live_worst: watch.worst,
        live_end_bytes,
        rss_end_bytes,
        rss_per_live_end: ratio(rss_end_bytes, live_end_bytes),
        live_idle_bytes: day.live_bytes,
        rss_idle_bytes,
        returned_share: returned(rss_idle_bytes),
        returned_after_s,
    };
    let mut outcome = Outcome::new(2 * steps, timed, day.checksum);
    outcome.retention = Some(retention);
    outcome
}

// Blocks of recorded sizes that live for a random time.
//
// Most objects die young: three blocks of four replace a random one of 64 young ones,
// the fourth in that of a random one of 16,384 old ones. Places and sizes are drawn beforehand.

const YOUNG_COUNT: u16 = 64;
const OLD_COUNT: u16 = 16_384;
/// Of four blocks, how many are young.
const YOUNG_OF_FOUR: u8 = 3;
/// As many as are drawn beforehand.
const PLACE_COUNT: usize = 1 << 16;

/// The blocks of one thread.
pub(super) struct Mixed<M: Memory> {
    memory: M,
    blocks: Vec<Tagged<M::Block>>,
    places: Vec<u16>,
    sizes: Sizes,
    step: u64,
}

impl<M: Memory> Mixed<M> {
    /// Fills every place once.
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let places = (0..PLACE_COUNT).map(|_| {
            if rng.u8(..4) < YOUNG_OF_FOUR {
                rng.u16(..YOUNG_COUNT)
            } else {
                YOUNG_COUNT + rng.u16(..OLD_COUNT)
            }
        });
        let places = places.collect();
        let mut sizes = Sizes::draw(&mut rng);
        let memory = M::new();
        let blocks = (0..YOUNG_COUNT + OLD_COUNT).map(|place| {
            let size_bytes = sizes.next();
            Tagged::new(memory.block(size_bytes), size_bytes, u64::from(place))
        });
        Self {
            blocks: blocks.collect(),
            memory,
            places,
            sizes,
            step: 0,
        }
    }

    /// The checksum is of the blocks that were replaced.
    #[inline(never)]
    pub(super) fn iterate(&mut self, iterations: u64) -> u64 {
        let mut checksum = 0_u64;
        for _ in 0..iterations * ALLOCATIONS_PER_ITERATION {
            let place = usize::from(self.places[self.step as usize % PLACE_COUNT]);
            let size_bytes = self.sizes.next();
            self.step += 1;
            let fresh = Tagged::new(self.memory.block(size_bytes), size_bytes, self.step);
            let mut old = std::mem::replace(&mut self.blocks[place], fresh);
            checksum = checksum.wrapping_add(old.tag());
        }
        checksum
    }
}

pub(super) const fn operations(iterations: u64) -> u64 {
    2 * ALLOCATIONS_PER_ITERATION * iterations
}

pub(super) fn mixed_run<M: Memory>(plan: &Plan) -> Outcome {
    let mut mixed = Mixed::<M>::new(plan.seed);
    mixed.iterate(WARM_UP_ITERATIONS);
    let mut checksum = 0;
    let timed = Timed::of(|| checksum = mixed.iterate(plan.iterations));
    Outcome::new(operations(plan.iterations), timed, checksum)
}

// The earlier program, rebuilt from its facts.
//
// One iteration is two passes; a pass makes a fresh vector and 70 objects of 56 bytes with a short
// string inside, then destroys them in the order in which they were made. The vector grows as
// `std::vector` does: a new one of twice the size, copied, the old one freed. In `objects` it is
// malloc's with every kind of memory, as it was there, and so are its 16 growths per iteration; in
// `objects-vector` it comes from the same memory as the objects.
// Without allocation the objects are placed into an array. In `objects` the vector stays then, since
// it is part of what surrounds the objects; in `objects-vector` one with room for all is kept.

/// Over the 64 that a chunk of the earlier pool held, so that it needed two.
const OBJECT_COUNT: u32 = 70;
const PASS_COUNT: u64 = 2;

/// A string as `std::string` keeps a short one: 32 bytes, nothing on the heap.
#[derive(Clone, Copy)]
#[repr(C)]
struct Name {
    len: u64,
    bytes: [u8; 24],
}

impl Name {
    /// `Child` and a number below 100. Put together in a register and written at once: bytes written
    /// one by one and then copied as a whole stall the processor, which is not what is to be timed.
    #[inline]
    fn of_child(number: u32) -> Self {
        let (tens, ones) = (u64::from(number / 10), u64::from(number % 10));
        let child = u64::from_le_bytes(*b"Child\0\0\0");
        let (digits, digit_count) = if tens > 0 {
            ((u64::from(b'0') + tens) | (u64::from(b'0') + ones) << 8, 2)
        } else {
            (u64::from(b'0') + ones, 1)
        };
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&(child | digits << 40).to_le_bytes());
        Self {
            len: 5 + digit_count,
            bytes,
        }
    }

    #[inline]
    fn last(&self) -> u8 {
        self.bytes[(self.len as usize - 1) % 24]
    }
}

/// Fields in the order and of the sizes of the earlier object.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Child {
    name: Name,
    number: u32,
    /// Address of the parent; none has one.
    parent: usize,
    has_parent: bool,
}

const _: () = assert!(size_of::<Child>() == 56);

impl Child {
    #[inline]
    fn new(number: u32) -> Self {
        Self {
            name: Name::of_child(number),
            number,
            parent: 0,
            has_parent: false,
        }
    }

    /// Of all that is in it.
    #[inline]
    fn checksum(&self) -> u64 {
        let flags = u64::from(self.has_parent) + self.parent as u64;
        u64::from(self.number) + self.name.len + u64::from(self.name.last()) + flags
    }
}

/// An array instead of allocations.
pub(super) fn placed() -> Placed<Child> {
    Placed::new(OBJECT_COUNT as usize, Child::new(0))
}

/// With fresh vectors out of `vectors`.
pub(super) fn objects_run<O: Objects<Child>, A: Allocator>(
    objects: &mut O,
    vectors: &A,
    plan: &Plan,
) -> Outcome {
    run_with(objects, plan, |_| Vec::new_in(vectors))
}

/// With one vector that has room for all: nothing is allocated.
pub(super) fn run_without_growth<O: Objects<Child>>(objects: &mut O, plan: &Plan) -> Outcome {
    run_with(objects, plan, |used: Option<Vec<O::Handle>>| {
        used.unwrap_or_else(|| Vec::with_capacity(OBJECT_COUNT as usize))
    })
}

fn run_with<O: Objects<Child>, A: Allocator + Copy>(
    objects: &mut O,
    plan: &Plan,
    mut next: impl FnMut(Option<Vec<O::Handle, A>>) -> Vec<O::Handle, A>,
) -> Outcome {
    let mut checksum = iterate(objects, WARM_UP_ITERATIONS, &mut next);
    let timed = Timed::of(|| checksum = iterate(objects, plan.iterations, &mut next));
    let operations = 2 * PASS_COUNT * u64::from(OBJECT_COUNT) * plan.iterations;
    Outcome::new(operations, timed, checksum)
}

/// `next` makes the vector of a pass, given the empty one of the pass before.
#[inline(never)]
fn iterate<O: Objects<Child>, A: Allocator + Copy>(
    objects: &mut O,
    iterations: u64,
    next: &mut impl FnMut(Option<Vec<O::Handle, A>>) -> Vec<O::Handle, A>,
) -> u64 {
    let (mut checksum, mut used) = (0_u64, None);
    for _ in 0..iterations * PASS_COUNT {
        let mut handles = next(used.take());
        checksum = checksum.wrapping_add(pass(objects, &mut handles));
        used = Some(handles);
    }
    checksum
}

#[inline(always)]
fn pass<O: Objects<Child>, A: Allocator + Copy>(
    objects: &mut O,
    handles: &mut Vec<O::Handle, A>,
) -> u64 {
    for number in 0..OBJECT_COUNT {
        let child = Child::new(black_box(number));
        let handle = objects.insert(child);
        black_box(objects.get(&handle));
        push(handles, handle);
    }
    let mut checksum = 0_u64;
    for handle in handles.drain(..) {
        checksum = checksum.wrapping_add(objects.get(&handle).checksum());
        objects.remove(handle);
    }
    checksum
}

/// `push_back`: room for one, then for twice as many.
#[inline(always)]
fn push<T, A: Allocator + Copy>(values: &mut Vec<T, A>, value: T) {
    if values.len() == values.capacity() {
        grow(values);
    }
    values.push(value);
}

#[inline(never)]
fn grow<T, A: Allocator + Copy>(values: &mut Vec<T, A>) {
    // `reserve_exact` would ask for a larger block in place, by realloc, which a C++ vector cannot.
    let capacity = (2 * values.len()).max(1);
    let mut larger = Vec::with_capacity_in(capacity, *values.allocator());
    larger.append(values);
    *values = larger;
}

#[cfg(test)]
#[path = "tests/churn.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/objects.rs"]
mod objects_tests;

//! A day of a busy server, without the waiting: what is left of its memory.
//!
//! Live bytes follow the load: from a peak at noon down to a quarter of it at night, and up to the
//! peak again, so that what a day leaves is seen where it began. Seven blocks of ten are short-lived (one of 512 places, at random); the others live until the load has
//! no room for them (a random one goes). Sizes are the recorded ones, half as large again in the
//! second quarter of the day and a quarter smaller in the last, so that holes of the morning do not
//! fit the afternoon. When the day is over, 5 % of the peak stay alive and nothing happens any more
//! but one small request each second.
//!
//! Idle memory goes back on a tick: the pools' owner calls `trim` 288 times in the day, and once a
//! second when idle. An allocator that goes by the clock finds a day of seconds, and ten of them
//! idle; it is not told anything. The tables of what is alive are made, and written to, beforehand.

use super::{ALLOCATIONS_PER_ITERATION, Outcome, Plan, Retention};
use crate::memory::Memory;
use crate::resident;
use crate::sizes::Sizes;
use crate::stopwatch::Timed;
use crate::tagged::{TAGGED_BYTES_MIN, Tagged};
use fastrand::Rng;
use std::thread;
use std::time::Duration;

/// Looks at the memory, and ticks of the owner: every five minutes of the day.
const TICK_COUNT: u64 = 288;
/// By then the first blocks have filled the memory to what the load asks for.
const FILLED_TICK: u64 = TICK_COUNT / 8;
/// Of what is allocated in a day, how much is alive at the peak.
const TURNOVER: u64 = 75;
/// Of the recorded sizes.
const MEAN_BYTES: u64 = 340;
const LIVE_PEAK_BYTES_MIN: u64 = 1 << 20;
/// Load of the night as a part of the peak.
const NIGHT: f64 = 0.25;
const SHORT_COUNT: usize = 512;
const SHORT_OF_TEN: u8 = 7;
/// What survives the day, as a part of the peak.
const SURVIVING: f64 = 0.05;
/// One in so many bytes of live memory may be a table entry.
const BYTES_PER_ENTRY: u64 = 200;
/// Blocks of the one request per idle second.
const HEARTBEAT_COUNT: usize = 16;
/// Enough of the peak to call it given back.
const RETURNED_ENOUGH: f64 = 0.8;

/// Who is alive when the day is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Survivors {
    /// What has been there longest: caches, settings, connections that stay.
    Oldest,
    /// Anyone: one block in twenty, wherever it is, which no allocator that cannot move blocks
    /// handles well.
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
        resident::anonymous_bytes().saturating_sub(self.base_bytes)
    }

    fn look(&mut self, live_bytes: u64, is_filled: bool) {
        let rss_bytes = resident::anonymous_bytes_quickly().saturating_sub(self.base_bytes);
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
        base_bytes: resident::anonymous_bytes(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Malloc;

    /// Goal: the load is a wave from noon to noon.
    #[test]
    fn the_load_is_a_wave() {
        for (time, load) in [(0.0, 1.0), (0.5, NIGHT), (1.0, 1.0)] {
            assert!((load_at(time) - load).abs() < 1e-9);
        }
        assert_eq!(
            [0, 72, 144, 216].map(scale_at),
            [(1, 1), (3, 2), (1, 1), (3, 4)]
        );
    }

    /// Goal: live bytes reach the peak and follow the load down; then what was to survive does, and
    /// of the two ways one keeps the oldest.
    #[test]
    fn a_day_ends_with_its_survivors() {
        let mut mean_births = Vec::new();
        for survivors in [Survivors::Oldest, Survivors::Random] {
            let plan = Plan {
                iterations: 1_000,
                seed: 1,
                idle_seconds: 0,
                on_idle: || {},
            };
            let mut day = Day::<Malloc>::new(&plan);
            let mut watch = Watch::default();
            day.live_through(plan.iterations * ALLOCATIONS_PER_ITERATION, &mut watch);
            let peak_bytes = day.live_peak_bytes as f64;
            assert!(watch.live_peak_bytes as f64 > 0.9 * peak_bytes);
            let part = |bytes: u64| bytes as f64 / peak_bytes;
            assert!(
                (0.9..1.05).contains(&part(day.live_bytes)),
                "{}",
                day.live_bytes
            );
            day.drop_the_rest(survivors);
            assert!(
                (0.03..0.06).contains(&part(day.live_bytes)),
                "{}",
                day.live_bytes
            );
            let births: Vec<u64> = day
                .long
                .iter()
                .flatten()
                .map(|block| u64::from(block.tag_half()))
                .collect();
            mean_births.push(births.iter().sum::<u64>() / births.len() as u64);
        }
        assert!(mean_births[0] < mean_births[1], "{mean_births:?}");
    }
}

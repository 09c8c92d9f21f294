//! The heap trace's file, read.

use std::mem::offset_of;

use millpond_measure::record::{HeapProfile, LifetimeClass, SizeClass};
use millpond_preload_shared::heap_file::{
    BUCKET_ENTRIES, BUCKETS, BUSY, Block, Bucket, Header, HeapFile, LIFETIME_CLASSES, Lifetimes,
    PROCESSES, Process, SIZE_CLASSES, THREADS, Thread, WEIGHT_PARTS, address_of, class_bounds,
    process_of,
};
use millpond_preload_shared::sampling::weight;

use super::HeapCalls;

const WORD_BYTES: usize = size_of::<u64>();
/// Live bytes known more roughly than this say nothing about fragmentation.
const LIVE_ERROR_MAX: f64 = 0.10;

/// What the file said at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeapReading {
    /// The totals.
    pub calls: HeapCalls,
    /// Calls that asked for memory, by class of size.
    sizes: Vec<u64>,
    /// Weights of blocks that were given back, by class of lifetime: blocks and bytes.
    lifetimes: Vec<(u64, u64)>,
    /// Of those blocks, given back by another thread.
    crossed: u64,
    live: Live,
    /// Addresses of sampled blocks that live, of all processes.
    blocks: Vec<u64>,
    peak_live_bytes: u64,
    mean_bytes: u64,
    samples: u64,
    dropped: u64,
}

/// What lives, by the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Live {
    blocks: f64,
    bytes: f64,
    /// Of the bytes.
    variance: f64,
}

/// The file as words; what lies beyond its end is 0, after `parse` has checked its length.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn at(&self, offset: usize) -> u64 {
        let bytes = self.0.get(offset..offset + WORD_BYTES);
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_ne_bytes)
    }
}

impl HeapReading {
    /// `None` if the file is too short. `lives` says which processes are there.
    pub(super) fn parse(bytes: &[u8], lives: &dyn Fn(u64) -> bool) -> Option<Self> {
        if bytes.len() < size_of::<HeapFile>() {
            return None;
        }
        let words = Words(bytes);
        let header = |field: usize| words.at(offset_of!(HeapFile, header) + field);
        let mut reading = Self {
            mean_bytes: header(offset_of!(Header, mean_bytes)),
            samples: header(offset_of!(Header, samples)),
            dropped: header(offset_of!(Header, dropped)),
            peak_live_bytes: header(offset_of!(Header, peak_live_bytes)),
            sizes: vec![0; SIZE_CLASSES],
            ..Self::default()
        };
        reading.calls.processes = header(offset_of!(Header, attached));
        reading.add_threads(&words);
        let lifetimes = offset_of!(HeapFile, lifetimes);
        let of_class =
            |field: usize, class: usize| words.at(lifetimes + field + class * WORD_BYTES);
        reading.lifetimes = (0..LIFETIME_CLASSES)
            .map(|class| {
                let blocks = of_class(offset_of!(Lifetimes, blocks), class);
                (blocks, of_class(offset_of!(Lifetimes, bytes), class))
            })
            .collect();
        reading.crossed = words.at(lifetimes + offset_of!(Lifetimes, crossed));
        reading.add_live(&words, lives);
        Some(reading)
    }

    fn add_threads(&mut self, words: &Words<'_>) {
        let calls = &mut self.calls;
        for index in 0..THREADS {
            let thread = offset_of!(HeapFile, threads) + index * size_of::<Thread>();
            let field = |field: usize| words.at(thread + field);
            calls.frees += field(offset_of!(Thread, frees));
            calls.reallocations += field(offset_of!(Thread, reallocations));
            calls.requested_bytes += field(offset_of!(Thread, bytes));
            for (class, count) in self.sizes.iter_mut().enumerate() {
                *count += field(offset_of!(Thread, sizes) + class * WORD_BYTES);
            }
        }
        // A call in the middle may have been counted in one place and not yet in the other.
        calls.allocations = self
            .sizes
            .iter()
            .sum::<u64>()
            .saturating_sub(calls.reallocations);
    }

    fn add_live(&mut self, words: &Words<'_>, lives: &dyn Fn(u64) -> bool) {
        let living: Vec<bool> = (0..PROCESSES)
            .map(|number| {
                let process = offset_of!(HeapFile, processes) + number * size_of::<Process>();
                let pid = words.at(process + offset_of!(Process, pid));
                pid != 0 && lives(pid)
            })
            .collect();
        for index in 0..BUCKETS {
            let bucket = offset_of!(HeapFile, buckets) + index * size_of::<Bucket>();
            for entry in 0..BUCKET_ENTRIES {
                let key = words.at(bucket + offset_of!(Bucket, keys) + entry * WORD_BYTES);
                if key <= BUSY || !living.get(process_of(key)).copied().unwrap_or(false) {
                    continue;
                }
                self.blocks.push(address_of(key));
                let block = bucket + offset_of!(Bucket, blocks) + entry * size_of::<Block>();
                let size_bytes = words.at(block + offset_of!(Block, size_bytes));
                let one = weight(size_bytes, self.mean_bytes);
                let size = size_bytes as f64;
                self.live.blocks += one;
                self.live.bytes += one * size;
                self.live.variance += size * size * one * (one - 1.0);
            }
        }
    }

    /// What happened since `earlier`, over `requests`; what lives is as now.
    #[must_use]
    pub fn profile_since(
        &self,
        earlier: &Self,
        requests: u64,
        anonymous_bytes: Option<u64>,
    ) -> HeapProfile {
        let calls = self.calls - earlier.calls;
        let crossed = self.crossed.saturating_sub(earlier.crossed) as f64 / WEIGHT_PARTS as f64;
        let lifetimes = self.lifetimes_since(earlier);
        let ended: f64 = lifetimes.iter().map(|class| class.blocks).sum();
        let live = &self.live;
        let live_error = if live.bytes > 0.0 {
            live.variance.sqrt() / live.bytes
        } else {
            1.0
        };
        let known = live_error <= LIVE_ERROR_MAX && self.dropped == 0;
        HeapProfile {
            requests,
            allocations: calls.allocations,
            reallocations: calls.reallocations,
            frees: calls.frees,
            requested_bytes: calls.requested_bytes,
            sizes: self.sizes_since(earlier),
            cross_thread_share: (ended > 0.0).then(|| crossed / ended),
            lifetimes,
            live_bytes: live.bytes.round() as u64,
            live_blocks: live.blocks.round() as u64,
            peak_live_bytes: self.peak_live_bytes,
            live_error,
            anonymous_bytes,
            fragmentation: anonymous_bytes
                .filter(|_| known)
                .map(|bytes| bytes as f64 / live.bytes),
            sample_mean_bytes: self.mean_bytes,
            samples: self.samples,
            dropped_samples: self.dropped,
        }
    }

    /// Addresses of the sampled blocks that live, in order. A forked process has its parent's at the same addresses, and
    /// only the parent's are noted.
    pub(crate) fn block_addresses(&self) -> Vec<u64> {
        let mut addresses = self.blocks.clone();
        addresses.sort_unstable();
        addresses
    }

    fn sizes_since(&self, earlier: &Self) -> Vec<SizeClass> {
        let before = earlier.sizes.iter().copied().chain(std::iter::repeat(0));
        let counts = self.sizes.iter().zip(before).enumerate();
        counts
            .map(|(class, (now, before))| {
                let (from_bytes, to_bytes) = class_bounds(class);
                SizeClass {
                    from_bytes,
                    to_bytes,
                    calls: now.saturating_sub(before),
                }
            })
            .filter(|class| class.calls > 0)
            .collect()
    }

    fn lifetimes_since(&self, earlier: &Self) -> Vec<LifetimeClass> {
        let before = earlier
            .lifetimes
            .iter()
            .copied()
            .chain(std::iter::repeat((0, 0)));
        let weights = self.lifetimes.iter().zip(before).enumerate();
        weights
            .map(|(bits, (now, before))| LifetimeClass {
                from_ns: if bits == 0 { 0 } else { 1 << (bits - 1) },
                to_ns: if bits + 1 < LIFETIME_CLASSES {
                    (1 << bits) - 1
                } else {
                    u64::MAX
                },
                blocks: now.0.saturating_sub(before.0) as f64 / WEIGHT_PARTS as f64,
                bytes: now.1.saturating_sub(before.1) as f64,
            })
            .filter(|class| class.blocks > 0.0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(words: &[(usize, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<HeapFile>()];
        for &(offset, value) in words {
            bytes[offset..offset + WORD_BYTES].copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    /// Goal: a realloc that is under way while the lab reads takes nothing from the allocations of a
    /// server that makes none. It once made eighteen quintillion of them.
    #[test]
    fn a_call_under_way_is_no_overflow() {
        let thread = offset_of!(HeapFile, threads) + size_of::<Thread>();
        let size = thread + offset_of!(Thread, sizes) + 24 * WORD_BYTES;
        let reallocations = thread + offset_of!(Thread, reallocations);
        let read = |bytes: &[u8]| HeapReading::parse(bytes, &|_| true).unwrap();
        let before = read(&file(&[(size, 5)]));
        // Counted as a reallocation, and not yet by its size.
        let during = read(&file(&[(size, 5), (reallocations, 1)]));
        let profile = during.profile_since(&before, 10, None);
        assert_eq!((profile.allocations, profile.reallocations), (0, 1));
    }

    /// Goal: the lab reads every word where the object writes it, adds threads up, and leaves out what
    /// a dead process held.
    #[test]
    fn a_file_is_read() {
        let thread = |index: usize, field: usize| {
            offset_of!(HeapFile, threads) + index * size_of::<Thread>() + field
        };
        let size =
            |index, class: usize| thread(index, offset_of!(Thread, sizes)) + class * WORD_BYTES;
        let process = |number: usize| {
            let at = offset_of!(HeapFile, processes) + number * size_of::<Process>();
            at + offset_of!(Process, pid)
        };
        let bucket = offset_of!(HeapFile, buckets) + 5 * size_of::<Bucket>();
        let key = |entry: usize| bucket + entry * WORD_BYTES;
        let block = |entry: usize| bucket + offset_of!(Bucket, blocks) + entry * size_of::<Block>();
        let header = |field: usize| offset_of!(HeapFile, header) + field;
        let lifetimes = offset_of!(HeapFile, lifetimes);
        let bytes = file(&[
            (header(offset_of!(Header, mean_bytes)), 1),
            (header(offset_of!(Header, attached)), 1),
            (size(0, 24), 7),
            (size(1023, 24), 3),
            (size(2, 100), 1),
            (thread(2, offset_of!(Thread, reallocations)), 1),
            (thread(3, offset_of!(Thread, frees)), 9),
            (thread(3, offset_of!(Thread, bytes)), 400),
            (process(1), 71),
            (process(2), 72),
            (key(0), 1 << 48 | 0x1230),
            (block(0), 100),
            (key(15), 2 << 48 | 0x1230),
            (block(15), 900),
            (key(3), BUSY),
            (lifetimes + 10 * WORD_BYTES, 4 * WEIGHT_PARTS),
            (
                lifetimes + offset_of!(Lifetimes, bytes) + 10 * WORD_BYTES,
                64,
            ),
            (lifetimes + offset_of!(Lifetimes, crossed), WEIGHT_PARTS),
        ]);
        let reading = HeapReading::parse(&bytes, &|pid| pid == 71).unwrap();
        let calls = HeapCalls {
            allocations: 10,
            reallocations: 1,
            frees: 9,
            requested_bytes: 400,
            processes: 1,
        };
        assert_eq!(reading.calls, calls);
        let profile = reading.profile_since(&HeapReading::default(), 5, Some(300));
        let (from_bytes, to_bytes) = class_bounds(24);
        assert_eq!(
            profile.sizes[0],
            SizeClass {
                from_bytes,
                to_bytes,
                calls: 10
            }
        );
        assert_eq!((profile.live_bytes, profile.live_blocks), (100, 1));
        assert_eq!(profile.fragmentation, Some(3.0));
        assert_eq!(profile.cross_thread_share, Some(0.25));
        let lifetime = profile.lifetimes[0];
        assert_eq!((lifetime.from_ns, lifetime.to_ns), (512, 1023));
        assert_eq!((lifetime.blocks, lifetime.bytes), (4.0, 64.0));
        let nothing = reading.profile_since(&reading, 5, None);
        assert!(nothing.sizes.is_empty() && nothing.lifetimes.is_empty());
        let both = HeapReading::parse(&bytes, &|_| true).unwrap();
        assert_eq!(both.profile_since(&both, 1, None).live_bytes, 1000);
        assert_eq!(HeapReading::parse(&bytes[1..], &|_| true), None);
    }
}

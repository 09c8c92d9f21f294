//! The blocks that were sampled and live: entered when they are handed out, taken out when they are
//! given back, in a table of the shared file that needs no lock.
//!
//! `count` calls `insert` for one allocation in thousands, and `remove` for a free whose address the filter does not
//! rule out. A place belongs to the thread that changed its key from 0 to BUSY; the program itself ensures that a block
//! is freed once, after it was handed out. A bucket without room drops the sample and says so in the header.

use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use millpond_preload_shared::heap_file::{
    BUSY, HeapFile, WEIGHT_PARTS, key, lifetime_class, places,
};
use millpond_preload_shared::sampling::weight;

const CLOCK_MONOTONIC: c_int = 1;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: c_long,
}

unsafe extern "C" {
    fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
}

/// The data of a sampled block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Sample {
    pub(crate) size_bytes: u64,
    pub(crate) born_ns: u64,
    /// The number of the thread that asked for it.
    pub(crate) thread: u64,
}

/// The samples of one process in the file.
#[derive(Clone, Copy)]
pub(crate) struct Samples<'a> {
    pub(crate) file: &'a HeapFile,
    /// The process's number; 0 takes no samples.
    pub(crate) process: u64,
}

pub(crate) fn now_ns() -> u64 {
    let mut time = Timespec {
        seconds: 0,
        nanoseconds: 0,
    };
    // SAFETY: the pointer is to a timespec of this stack frame, with libc's layout on 64-bit Linux.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &raw mut time) };
    (time.seconds as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.nanoseconds as u64)
}

fn add(word: &AtomicU64, value: u64) -> u64 {
    word.fetch_add(value, Ordering::Relaxed).wrapping_add(value)
}

impl Samples<'_> {
    /// True if `block` is one of the samples, or may be one: `remove` decides.
    #[inline]
    pub(crate) fn may_hold(&self, block: *const c_void) -> bool {
        let (entry, _) = places(block.addr());
        let count = self.file.filter.get(entry);
        count.is_some_and(|count| count.load(Ordering::Relaxed) != 0)
    }

    /// Enters a block that was just handed out.
    pub(crate) fn insert(&self, block: *const c_void, sample: Sample) {
        let header = &self.file.header;
        let (entry, bucket) = places(block.addr());
        let (Some(bucket), Some(filter)) =
            (self.file.buckets.get(bucket), self.file.filter.get(entry))
        else {
            return;
        };
        let own_key = key(block.addr(), self.process);
        // An allocator may give a block back to itself unseen; its sample would live for ever.
        if self.may_hold(block)
            && bucket
                .keys
                .iter()
                .any(|key| key.load(Ordering::Relaxed) == own_key)
        {
            self.remove(block);
        }
        add(&header.samples, 1);
        let free = bucket.keys.iter().zip(&bucket.blocks).find(|(key, _)| {
            key.compare_exchange(0, BUSY, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        });
        let Some((key, place)) = free else {
            add(&header.dropped, 1);
            return;
        };
        place.size_bytes.store(sample.size_bytes, Ordering::Relaxed);
        place.born_ns.store(sample.born_ns, Ordering::Relaxed);
        place.thread.store(sample.thread, Ordering::Relaxed);
        // A filter entry that once was full stays full: it then costs searches, and is never wrong.
        let _ = filter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            count.checked_add(1)
        });
        key.store(own_key, Ordering::Release);
        let (_, bytes) = self.weigh(sample.size_bytes);
        if let Some(process) = self.file.processes.get(self.process as usize) {
            add(&process.live_bytes, bytes);
        }
        let live_bytes = add(&header.live_bytes, bytes);
        header
            .peak_live_bytes
            .fetch_max(live_bytes, Ordering::Relaxed);
    }

    /// Takes out a block that is about to be given back; `None` if it is no sample.
    #[cold]
    pub(crate) fn remove(&self, block: *const c_void) -> Option<Sample> {
        let (entry, bucket) = places(block.addr());
        let bucket = self.file.buckets.get(bucket)?;
        let own_key = key(block.addr(), self.process);
        let (key, place) = bucket.keys.iter().zip(&bucket.blocks).find(|(key, _)| {
            key.load(Ordering::Relaxed) == own_key
                && key
                    .compare_exchange(own_key, BUSY, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })?;
        let sample = Sample {
            size_bytes: place.size_bytes.load(Ordering::Relaxed),
            born_ns: place.born_ns.load(Ordering::Relaxed),
            thread: place.thread.load(Ordering::Relaxed),
        };
        key.store(0, Ordering::Release);
        if let Some(filter) = self.file.filter.get(entry) {
            let _ = filter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count != u8::MAX).then(|| count.saturating_sub(1))
            });
        }
        let (_, bytes) = self.weigh(sample.size_bytes);
        if let Some(process) = self.file.processes.get(self.process as usize) {
            add(&process.live_bytes, bytes.wrapping_neg());
        }
        add(&self.file.header.live_bytes, bytes.wrapping_neg());
        Some(sample)
    }

    /// Notes how long a block lived that thread number `thread` gives back.
    pub(crate) fn note_end(&self, sample: Sample, thread: u64) {
        let lifetimes = &self.file.lifetimes;
        let (blocks, bytes) = self.weigh(sample.size_bytes);
        let class = lifetime_class(now_ns().saturating_sub(sample.born_ns));
        if let (Some(all), Some(all_bytes)) =
            (lifetimes.blocks.get(class), lifetimes.bytes.get(class))
        {
            add(all, blocks);
            add(all_bytes, bytes);
        }
        if thread != sample.thread {
            add(&lifetimes.crossed, blocks);
        }
    }

    /// The weight of a sample: blocks in parts of one, and bytes.
    fn weigh(&self, size_bytes: u64) -> (u64, u64) {
        let mean_bytes = self.file.header.mean_bytes.load(Ordering::Relaxed);
        let weight = weight(size_bytes, mean_bytes);
        (
            (weight * WEIGHT_PARTS as f64) as u64,
            (weight * size_bytes as f64) as u64,
        )
    }
}

#[cfg(test)]
#[path = "tests/samples.rs"]
mod tests;

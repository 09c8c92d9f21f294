//! When a heap is swept.
//!
//! On the path: a heap asks here whenever it takes one of its slow paths. Some of it came back to its
//! chunks, or a lot of it, or a second went by: then its classes are swept one after the other, some
//! chunks' worth at each of the next slow paths, so that no call pays for a whole heap.
//! A page that goes and is wanted again costs more than all else here, so what merely comes and goes
//! is given time; a heap that shrinks is not, since its program may be about to fall asleep.
//! A sweep leaves the front lists empty. The next allocation therefore takes a slow path, however
//! little the program still does, and what the sweep saw idle goes with the ones that follow.
//! Absent on purpose: a thread that does it. It could not touch a heap without a lock that each
//! owner would have to take; it would have to be stopped across forks; and programs that are one
//! thread by design would not be any more. A thread that never asks for memory again keeps what it
//! has, up to malloc_trim.

use crate::chunk::CHUNK_BYTES;

/// A heap is swept once this share of it, as one in so many bytes, came back to its chunks ...
const PART: usize = 24;
/// ... and at least this much ...
const SPILLED_BYTES_MIN: usize = 1 << 20;
/// ... but not more often than this, ...
const GAP_MS_MIN: u64 = 100;
/// ... nor than one millisecond for so many chunks: looking at them takes a hundredth of that.
const CHUNKS_PER_GAP_MS: usize = 128;
/// At once when this share of the most that was lent since the last sweep is not lent any more.
const SHRUNK_PART: usize = 4;
/// Else after this time.
const PAUSE_MS: u64 = 1000;

/// Chunks to look at in one slow path, about: some ten microseconds.
pub(super) const CHUNKS_AT_ONCE: usize = 256;

/// What a heap remembers between sweeps.
pub(super) struct Pace {
    /// Bytes that came back to chunks since the last sweep began.
    spilled_bytes: usize,
    /// Bytes that chunks have given out, now and at most since the last sweep began.
    out_bytes: usize,
    out_bytes_max: usize,
    /// Chunks the heap had then.
    chunk_count: usize,
    began_at_ms: u64,
}

impl Pace {
    pub(super) const fn new() -> Self {
        Self {
            spilled_bytes: 0,
            out_bytes: 0,
            out_bytes_max: 0,
            chunk_count: 0,
            began_at_ms: 0,
        }
    }

    /// Notes that blocks were taken out of their chunks.
    pub(super) fn note_filled(&mut self, bytes: usize) {
        self.out_bytes += bytes;
        self.out_bytes_max = self.out_bytes_max.max(self.out_bytes);
    }

    /// Notes that blocks were put back to their chunks.
    pub(super) fn note_spilled(&mut self, bytes: usize) {
        self.spilled_bytes += bytes;
        self.out_bytes -= bytes;
    }

    /// Whether a sweep is due.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        let shrunk_bytes = self.out_bytes_max - self.out_bytes;
        if shrunk_bytes > SPILLED_BYTES_MIN.max(self.out_bytes_max / SHRUNK_PART) {
            return true;
        }
        let enough_bytes = SPILLED_BYTES_MIN.max(self.chunk_count * (CHUNK_BYTES / PART));
        let wait_ms = if self.spilled_bytes < enough_bytes {
            PAUSE_MS
        } else {
            GAP_MS_MIN.max((self.chunk_count / CHUNKS_PER_GAP_MS) as u64)
        };
        now_ms.saturating_sub(self.began_at_ms) >= wait_ms
    }

    /// Notes that a sweep begins, of a heap with so many chunks.
    pub(super) fn begin(&mut self, now_ms: u64, chunk_count: usize) {
        self.spilled_bytes = 0;
        self.out_bytes_max = self.out_bytes;
        self.chunk_count = chunk_count;
        self.began_at_ms = now_ms;
    }
}

/// Milliseconds since some start, a few of them too old. No system call, and no function that a
/// program may have put in the place of the C library's: that might allocate.
pub(super) fn now_ms() -> u64 {
    #[cfg(not(miri))]
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    // Miri knows the precise clock only.
    #[cfg(miri)]
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: much that came back makes a sweep due soon, little after a second; in a large heap both
    /// much and soon are more. Much that is not lent any more makes it due at once.
    #[test]
    fn due_by_volume_and_by_the_clock() {
        let (small, large) = (16, 64_000);
        let (small_bytes, large_bytes) = (small * CHUNK_BYTES, large * CHUNK_BYTES);
        let part_bytes = large_bytes / PART;
        let rows = [
            // chunks, bytes out, of which came back, and were lent again, ms later, due
            (small, small_bytes, 0, 0, 999, false),
            (small, small_bytes, 0, 0, 1000, true),
            (small, small_bytes, SPILLED_BYTES_MIN - 1, 0, 999, false),
            (small, small_bytes, SPILLED_BYTES_MIN, 0, 99, false),
            (small, small_bytes, SPILLED_BYTES_MIN, 0, 100, true),
            (small, 2 * small_bytes, SPILLED_BYTES_MIN, 0, 0, false),
            (small, 2 * small_bytes, SPILLED_BYTES_MIN + 1, 0, 0, true),
            (large, large_bytes, SPILLED_BYTES_MIN, 0, 999, false),
            (large, large_bytes, part_bytes, 0, 499, false),
            (large, large_bytes, part_bytes, 0, 500, true),
            (large, large_bytes, large_bytes / 4, 0, 0, false),
            (large, large_bytes, large_bytes / 4 + 1, 0, 0, true),
            (large, large_bytes, large_bytes / 4 + 1, 1, 0, false),
        ];
        for row in rows {
            let (chunk_count, out_bytes, spilled_bytes, filled_bytes, later_ms, is_due) = row;
            let mut pace = Pace::new();
            pace.note_filled(2 * out_bytes);
            pace.note_spilled(out_bytes);
            pace.begin(10_000, chunk_count);
            pace.note_spilled(spilled_bytes);
            pace.note_filled(filled_bytes);
            assert_eq!(pace.is_due(10_000 + later_ms), is_due, "{row:?}");
        }
    }

    /// Goal: the clock goes on.
    #[test]
    fn the_clock_does_not_go_back() {
        let before = now_ms();
        assert!(now_ms() >= before);
    }
}

//! When a heap is swept.
//!
//! On the path: a heap asks here whenever it takes one of its slow paths. A second went by, or most of
//! what was lent came back: then its classes are swept one after the other, some chunks' worth at
//! each of the next slow paths, so that no call pays for a whole heap.
//! A page that goes and is wanted again costs more than all else here, so what merely comes and goes
//! is given time; a heap that falls to a half is not, since its program may be about to fall asleep.
//! A sweep leaves the front lists empty. The next allocation therefore takes a slow path, however
//! little the program still does, and what the sweep saw idle goes with the ones that follow.
//! Absent on purpose: a thread that does it. It could not touch a heap without a lock that each
//! owner would have to take; it would have to be stopped across forks; and programs that are one
//! thread by design would not be any more. A thread that never asks for memory again keeps what it
//! has, up to malloc_trim.

use crate::chunk::CHUNK_BYTES;

/// A heap is swept after this time. A tenth of it cost redis, whose values change size in waves of a
/// second, a tenth of its throughput: pages went in one wave and came back in the next.
const PAUSE_MS: u64 = 1000;
/// A large one less often, one millisecond for so many chunks: looking at them takes a hundredth of
/// that.
const CHUNKS_PER_PAUSE_MS: usize = 128;
/// At once when more than this share of the most that was lent since the last sweep, as one in so
/// many bytes, is not lent any more, ...
const SHRUNK_PART: usize = 2;
/// ... and at least this much.
const SHRUNK_BYTES_MIN: usize = 1 << 20;
/// Less than this share of a heap's chunks is lent in one that gives single pages back.
const LENT_PERCENT_MIN: usize = 40;

/// Chunks to look at in one slow path, about: some ten microseconds.
pub(super) const CHUNKS_AT_ONCE: usize = 256;

/// What a heap remembers between sweeps.
pub(super) struct Pace {
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
        self.out_bytes -= bytes;
    }

    /// Whether a sweep is due.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        let shrunk_bytes = self.out_bytes_max - self.out_bytes;
        if shrunk_bytes > SHRUNK_BYTES_MIN.max(self.out_bytes_max / SHRUNK_PART) {
            return true;
        }
        let wait_ms = PAUSE_MS.max((self.chunk_count / CHUNKS_PER_PAUSE_MS) as u64);
        now_ms.saturating_sub(self.began_at_ms) >= wait_ms
    }

    /// Whether so much of the heap is free that single pages should go. While most of it is lent,
    /// what is free is about to be lent again: then pages would go and come for nothing.
    pub(super) fn is_hollow(&self) -> bool {
        self.out_bytes < self.chunk_count * (CHUNK_BYTES / 100 * LENT_PERCENT_MIN)
    }

    /// Notes that a sweep begins, of a heap with so many chunks.
    pub(super) fn begin(&mut self, now_ms: u64, chunk_count: usize) {
        self.out_bytes_max = self.out_bytes;
        self.chunk_count = chunk_count;
        self.began_at_ms = now_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a sweep is due after a second, in a huge heap later; and at once when more than half of
    /// what was lent is not lent any more.
    #[test]
    fn due_by_the_clock_and_by_shrinking() {
        let (small, huge) = (16, 512_000);
        let (small_bytes, huge_bytes) = (small * CHUNK_BYTES, huge * CHUNK_BYTES);
        let rows = [
            // chunks, bytes out, of which came back, and were lent again, ms later, due
            (small, small_bytes, 0, 0, 999, false),
            (small, small_bytes, 0, 0, 1000, true),
            (small, small_bytes, SHRUNK_BYTES_MIN, 0, 999, false),
            (small, 4 * small_bytes, 2 * small_bytes, 0, 999, false),
            (small, 4 * small_bytes, 2 * small_bytes + 1, 0, 0, true),
            (small, 4 * small_bytes, 2 * small_bytes + 1, 1, 0, false),
            (huge, huge_bytes, 0, 0, 3999, false),
            (huge, huge_bytes, 0, 0, 4000, true),
            (huge, huge_bytes, huge_bytes / 2, 0, 0, false),
            (huge, huge_bytes, huge_bytes / 2 + 1, 0, 0, true),
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

    /// Goal: a heap is hollow below the share of its chunks that the constant says.
    #[test]
    fn hollow_by_share() {
        for (lent_percent, is_hollow) in
            [(LENT_PERCENT_MIN - 1, true), (LENT_PERCENT_MIN + 1, false)]
        {
            let mut pace = Pace::new();
            pace.begin(0, 100);
            pace.note_filled(lent_percent * CHUNK_BYTES);
            assert_eq!(pace.is_hollow(), is_hollow, "{lent_percent}");
        }
    }
}

//! Which parts of a buffer pool's region can have pages.
//!
//! On the path: `buffer_pool` opens a span when no free buffer is left and closes idle ones in a
//! sweep; leasing and returning do not come here.
//! A span is the least that can be given back: whole pages, which hold one buffer or, where that
//! is smaller than a page, several.
//! Absent on purpose: which buffers are free. That is the pool's list, for whose order leases pay.
use crate::PoolError;
use std::cell::Cell;
use std::ops::Range;

/// In `tally`: the span leaves in the sweep under way. More than a span has buffers.
const LEAVING: u8 = u8::MAX;

/// The spans of one region.
/// Invariant: a span is in `closed` or open; `closed` has room for all. Between sweeps `tally` is
/// all zero.
pub(crate) struct BufferSpans {
    /// A span has 2 to the power of this many buffers; the last one perhaps fewer.
    buffers_shift: u32,
    count_max: u16,
    /// The next to open last: the lowest.
    closed: Vec<u16>,
    /// How many idle buffers the sweep has found in each span.
    tally: Vec<u8>,
}

impl BufferSpans {
    /// A span holds at most 2 to the power of this many buffers.
    pub(crate) const BUFFERS_SHIFT_MAX: u32 = 7;

    /// Spans without tables, as many as `count_max` buffers take.
    pub(crate) const fn new(buffers_shift: u32, count_max: u16) -> Self {
        assert!(buffers_shift <= Self::BUFFERS_SHIFT_MAX);
        Self {
            buffers_shift,
            count_max,
            closed: Vec::new(),
            tally: Vec::new(),
        }
    }

    /// All of them, open and closed.
    pub(crate) fn count(&self) -> usize {
        usize::from(self.count_max).div_ceil(1 << self.buffers_shift)
    }

    /// Bytes the tables will take.
    pub(crate) fn table_bytes_needed(&self) -> usize {
        self.count() * (size_of::<u16>() + size_of::<u8>())
    }

    /// Bytes the tables take.
    pub(crate) fn table_bytes(&self) -> usize {
        self.closed.capacity() * size_of::<u16>() + self.tally.capacity()
    }

    /// Makes the tables. All spans are closed then, and will be opened from the first on.
    pub(crate) fn make_tables(&mut self) -> Result<(), PoolError> {
        let count = self.count();
        let requested_bytes = self.table_bytes_needed();
        let (mut closed, mut tally) = (Vec::new(), Vec::new());
        let reserved = closed
            .try_reserve_exact(count)
            .and_then(|()| tally.try_reserve_exact(count));
        reserved.map_err(|_| PoolError::OutOfMemory { requested_bytes })?;
        closed.extend(Self::numbers(0..count));
        tally.resize(count, 0);
        (self.closed, self.tally) = (closed, tally);
        Ok(())
    }

    /// Open spans.
    pub(crate) fn open_count(&self) -> usize {
        self.tally.len() - self.closed.len()
    }

    /// Whether none is left to open.
    pub(crate) fn all_open(&self) -> bool {
        self.closed.is_empty()
    }

    /// Opens one; returns the ids of its buffers.
    pub(crate) fn open(&mut self) -> Option<Range<u16>> {
        self.closed.pop().map(|span| self.ids(usize::from(span)))
    }

    /// Closes spans of which every buffer is `idle`, those named first first, until half of the
    /// idle buffers (rounded up) have left. `give_back` does it for some spans in a row, or says
    /// that it cannot, whereupon they stay open. Returns how many were closed;
    /// [`has_left`](Self::has_left) knows which until [`end_sweep`](Self::end_sweep).
    pub(crate) fn close_idle(
        &mut self,
        idle: &[Cell<u16>],
        mut give_back: impl FnMut(Range<usize>) -> bool,
    ) -> usize {
        self.mark_leaving(idle);
        let closed_before = self.closed.len();
        let mut rest = self.tally.len();
        while let Some(last) = self.tally[..rest].iter().rposition(|&idle| idle == LEAVING) {
            let staying = self.tally[..last].iter().rposition(|&idle| idle != LEAVING);
            let first = staying.map_or(0, |before| before + 1);
            if give_back(first..last + 1) {
                self.closed.extend(Self::numbers(first..last + 1));
            } else {
                self.tally[first..=last].fill(0);
            }
            rest = first;
        }
        // The lowest will be opened first.
        self.closed.sort_unstable_by(|one, other| other.cmp(one));
        self.closed.len() - closed_before
    }

    fn mark_leaving(&mut self, idle: &[Cell<u16>]) {
        for id in idle {
            self.tally[usize::from(id.get() >> self.buffers_shift)] += 1;
        }
        let mut missing_count = idle.len().div_ceil(2);
        for id in idle {
            let span = usize::from(id.get() >> self.buffers_shift);
            let buffer_count = self.ids(span).len();
            if missing_count > 0 && usize::from(self.tally[span]) == buffer_count {
                self.tally[span] = LEAVING;
                missing_count = missing_count.saturating_sub(buffer_count);
            }
        }
    }

    /// Whether the sweep under way has closed the span of this buffer.
    pub(crate) fn has_left(&self, id: u16) -> bool {
        self.tally[usize::from(id >> self.buffers_shift)] == LEAVING
    }

    /// Forgets what the sweep has found.
    pub(crate) fn end_sweep(&mut self) {
        self.tally.fill(0);
    }

    fn ids(&self, span: usize) -> Range<u16> {
        let count_max = usize::from(self.count_max);
        let id = |span: usize| (span << self.buffers_shift).min(count_max) as u16;
        id(span)..id(span + 1)
    }

    /// The spans' numbers, last one first. They fit, as there are no more spans than ids.
    fn numbers(spans: Range<usize>) -> impl Iterator<Item = u16> {
        spans.rev().map(|span| span as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(ids: impl IntoIterator<Item = u16>) -> Vec<Cell<u16>> {
        ids.into_iter().map(Cell::new).collect()
    }

    /// Goal: spans open from the first on, the last one holds what is left, and no id comes twice.
    #[test]
    fn spans_share_out_the_ids() {
        let mut spans = BufferSpans::new(2, 10);
        spans.make_tables().unwrap();
        let opened: Vec<Range<u16>> = std::iter::from_fn(|| spans.open()).collect();
        assert_eq!(opened, [0..4, 4..8, 8..10]);
        assert!(spans.all_open() && spans.open_count() == 3);
    }

    /// Goal: only spans that are idle as a whole leave, half of what is idle and no more, in runs,
    /// and what could not be given back stays open.
    #[test]
    fn whole_idle_spans_leave() {
        let mut spans = BufferSpans::new(1, 12);
        spans.make_tables().unwrap();
        while spans.open().is_some() {}
        // Span 2 is half idle, span 0 not at all: of 9 idle buffers 5 are to leave.
        let all_but = idle([11, 10, 9, 8, 7, 6, 5, 3, 2]);
        let mut asked = Vec::new();
        let closed_count = spans.close_idle(&all_but, |run| {
            asked.push((run.start, run.end));
            true
        });
        assert_eq!((closed_count, asked), (3, vec![(3, 6)]));
        assert!(spans.has_left(6) && spans.has_left(11) && !spans.has_left(3));
        spans.end_sweep();
        assert_eq!(spans.close_idle(&idle([2, 3]), |_| false), 0);
        assert!(!spans.has_left(2));
        spans.end_sweep();
        assert_eq!(spans.open(), Some(6..8));
        assert_eq!(spans.open_count(), 4);
    }
}

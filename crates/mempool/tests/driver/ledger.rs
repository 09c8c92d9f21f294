//! Which memory is lent, and what its holders wrote there.
use std::collections::BTreeMap;

/// Ranges that are lent, by their first address. No two overlap.
#[derive(Default)]
pub(super) struct Ledger {
    lengths: BTreeMap<usize, usize>,
}

impl Ledger {
    /// A range is lent. It must not touch memory lent before; empty ones have none.
    pub(super) fn lend(&mut self, start: *const u8, len: usize) {
        if len == 0 {
            return;
        }
        let start = start.addr();
        if let Some((&below, &below_len)) = self.lengths.range(..=start).next_back() {
            assert!(below + below_len <= start, "two holders have {start:#x}");
        }
        if let Some((&above, _)) = self.lengths.range(start..).next() {
            assert!(start + len <= above, "two holders have {above:#x}");
        }
        self.lengths.insert(start, len);
    }

    /// A range is back.
    pub(super) fn take_back(&mut self, start: *const u8, len: usize) {
        if len > 0 {
            assert_eq!(self.lengths.remove(&start.addr()), Some(len));
        }
    }
}

/// Which bytes of a range a holder writes: all of a short one, a sample of a long one that has its
/// first and its last.
fn written(len: usize) -> impl Iterator<Item = usize> {
    let step = match len {
        _ if cfg!(miri) => len / 8 + 1,
        0..=4096 => 1,
        _ => 509,
    };
    (0..len).step_by(step).chain(len.checked_sub(1))
}

fn expected(mark: u8, index: usize) -> u8 {
    mark.wrapping_add(index as u8)
}

/// Writes the holder's mark.
///
/// # Safety
/// `len` bytes from `start` are the caller's to write to.
pub(super) unsafe fn fill(start: *mut u8, len: usize, mark: u8) {
    for index in written(len) {
        // SAFETY: below `len`.
        unsafe { start.add(index).write(expected(mark, index)) };
    }
}

/// Checks that the mark is still there, in the first `kept_len` bytes of a range filled as `len`.
///
/// # Safety
/// `kept_len` bytes from `start` may be read, and were filled.
pub(super) unsafe fn check(start: *const u8, len: usize, kept_len: usize, mark: u8) {
    for index in written(len).filter(|&index| index < kept_len) {
        // SAFETY: below `kept_len`.
        let found = unsafe { start.add(index).read() };
        assert_eq!(found, expected(mark, index), "byte {index} of {len}");
    }
}

//! Eight bytes at once in a plain `u64`, for CPUs whose vectors are not known here.
//!
//! Every byte is judged in its low seven bits, where sums do not carry into the neighbour; its
//! highest bit is looked at apart. So each mark is exact, not only the first.

use super::block::{Blocks, Judge};

/// Needs nothing of the CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portable;

pub(super) const SCANNER: Blocks<Portable> = Blocks(Portable);

const ONES: u64 = u64::from_le_bytes([0x01; 8]);
const HIGH: u64 = u64::from_le_bytes([0x80; 8]);

const fn all(byte: u8) -> u64 {
    ONES * byte as u64
}

/// The highest bit of each byte from `first` to `last`, both below 0x80.
#[inline(always)]
fn range(block: u64, first: u8, last: u8) -> u64 {
    let low = block & !HIGH;
    let at_least_first = low + all(0x80 - first);
    let beyond_last = low + all(0x7f - last);
    at_least_first & !beyond_last & !block & HIGH
}

#[inline(always)]
fn equal(block: u64, byte: u8) -> u64 {
    range(block, byte, byte)
}

#[inline(always)]
fn letters(block: u64) -> u64 {
    range(block | all(0x20), b'a', b'z')
}

/// Gathers the highest bit of each byte: the product moves the bit of byte `i` to bit `56 + i`, and
/// no two of its terms meet in one bit.
#[inline(always)]
fn mask(marks: u64) -> u64 {
    const GATHER: u64 = 0x0102_0408_1020_4080;
    (marks >> 7).wrapping_mul(GATHER) >> 56
}

#[inline(always)]
fn not_mask(marks: u64) -> u64 {
    mask(marks ^ HIGH)
}

impl Judge for Portable {
    const BYTES: usize = 8;
    type Block = u64;

    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> u64 {
        // SAFETY: the caller's promise is that 8 bytes can be read; no alignment is asked for.
        u64::from_le_bytes(unsafe { from.cast::<[u8; 8]>().read() })
    }

    /// RFC 9110 5.6.2: alphanumeric and `!#$%&'*+-.^_`|~`.
    #[inline(always)]
    fn not_token(self, block: u64) -> u64 {
        let marks = equal(block, b'!')
            | range(block, b'#', b'\'')
            | range(block, b'*', b'+')
            | range(block, b'-', b'.')
            | range(block, b'^', b'`')
            | equal(block, b'|')
            | equal(block, b'~');
        not_mask(letters(block) | range(block, b'0', b'9') | marks)
    }

    #[inline(always)]
    fn not_value(self, block: u64) -> u64 {
        let controls = range(block, 0, 0x1f) & !equal(block, b'\t');
        mask(controls | equal(block, 0x7f))
    }

    /// RFC 3986: all graphic characters but `"#<>\^`{|}`.
    #[inline(always)]
    fn not_target(self, block: u64) -> u64 {
        let marks = equal(block, b'!')
            | range(block, b'$', b';')
            | equal(block, b'=')
            | range(block, b'?', b'[')
            | equal(block, b']')
            | equal(block, b'_')
            | range(block, b'a', b'z')
            | equal(block, b'~');
        not_mask(marks)
    }

    #[inline(always)]
    fn question(self, block: u64) -> u64 {
        mask(equal(block, b'?'))
    }
}

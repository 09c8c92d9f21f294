//! Eight bytes at once in a plain `u64`, for CPUs without vector code here.
//!
//! Every byte is judged in its low seven bits, where sums do not carry into the neighbour; its highest bit is checked
//! separately. So each mark is exact, not only the first.

use super::block::{Blocks, Judge};
use super::{LineEnds, Scanner, TargetEnds, Text};

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

// The reference: one byte at a time, straight from the table of classes.
//
// In service for texts shorter than a vector, and for trailers; in tests as the oracle of the others.

/// Needs nothing of the CPU or the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

fn run_end(bytes: &[u8], at: usize, inside: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let length = rest.iter().position(|&byte| !inside(byte));
    at + length.unwrap_or(rest.len())
}

impl Scanner for Scalar {
    const TEXT_BYTES_MIN: usize = 0;

    fn token_end(self, text: Text<'_, Self>, at: usize) -> usize {
        run_end(text.bytes, at, super::is_token)
    }

    fn value_end(self, text: Text<'_, Self>, at: usize) -> usize {
        run_end(text.bytes, at, super::is_field_value)
    }

    fn line_ends(self, text: Text<'_, Self>, at: usize) -> LineEnds {
        LineEnds {
            name: self.token_end(text, at),
            line: self.value_end(text, at),
        }
    }

    fn target_ends(self, text: Text<'_, Self>, at: usize) -> TargetEnds {
        let target = run_end(text.bytes, at, super::is_target);
        let mark = run_end(text.bytes, at, |byte| byte != b'?');
        TargetEnds {
            target,
            path: mark.min(target),
        }
    }
}

// Comparing a few bytes as whole words, which the compiler does not generate for patterns.

/// Not zero when the bytes differ after the bits of `SET` are set in each of `found`'s. Reads overlap where the length
/// is no multiple, so that any length costs a handful of instructions.
#[inline(always)]
pub(super) fn differ<const N: usize, const SET: u8>(found: &[u8; N], expected: &[u8; N]) -> u64 {
    let mut differences = 0;
    let mut at = 0;
    while at + 8 <= N {
        differences |= differ_8::<N, SET>(found, expected, at);
        at += 8;
    }
    if at == N {
        return differences;
    }
    if N >= 8 {
        return differences | differ_8::<N, SET>(found, expected, N - 8);
    }
    if N >= 4 {
        return differ_4::<N, SET>(found, expected, 0) | differ_4::<N, SET>(found, expected, N - 4);
    }
    if N >= 2 {
        return differ_2::<N, SET>(found, expected, 0) | differ_2::<N, SET>(found, expected, N - 2);
    }
    u64::from((found[0] | SET) ^ expected[0])
}

#[inline(always)]
fn differ_8<const N: usize, const SET: u8>(found: &[u8; N], expected: &[u8; N], at: usize) -> u64 {
    let word = |bytes: &[u8; N]| {
        bytes[at..]
            .first_chunk()
            .map_or(0, |w| u64::from_le_bytes(*w))
    };
    (word(found) | u64::from_le_bytes([SET; 8])) ^ word(expected)
}

#[inline(always)]
fn differ_4<const N: usize, const SET: u8>(found: &[u8; N], expected: &[u8; N], at: usize) -> u64 {
    let word = |bytes: &[u8; N]| {
        bytes[at..]
            .first_chunk()
            .map_or(0, |w| u32::from_le_bytes(*w))
    };
    u64::from((word(found) | u32::from_le_bytes([SET; 4])) ^ word(expected))
}

#[inline(always)]
fn differ_2<const N: usize, const SET: u8>(found: &[u8; N], expected: &[u8; N], at: usize) -> u64 {
    let word = |bytes: &[u8; N]| {
        bytes[at..]
            .first_chunk()
            .map_or(0, |w| u16::from_le_bytes(*w))
    };
    u64::from((word(found) | u16::from_le_bytes([SET; 2])) ^ word(expected))
}

/// Whether `place` begins with `text`; without a call for texts as long as most hosts.
#[inline(always)]
pub(crate) fn begins<const PLACE: usize>(place: &[u8; PLACE], text: &[u8]) -> bool {
    const { assert!(PLACE >= 32) };
    match text.len() {
        8..=16 => begins_with_two::<8, PLACE>(place, text),
        17..=32 => begins_with_two::<16, PLACE>(place, text),
        _ => place.get(..text.len()) == Some(text),
    }
}

/// The same for texts from `N` to twice as many bytes: two words that overlap.
#[inline(always)]
fn begins_with_two<const N: usize, const PLACE: usize>(place: &[u8; PLACE], text: &[u8]) -> bool {
    let last = place
        .get(text.len() - N..)
        .and_then(<[u8]>::first_chunk::<N>);
    place.first_chunk::<N>() == text.first_chunk() && last == text.last_chunk()
}

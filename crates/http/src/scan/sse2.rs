//! 16 bytes at once on any x86-64: SSE2 is part of it.
//!
//! There is no table look-up in SSE2, so classes are unions of ranges.

use super::block::{Blocks, Judge};
use std::arch::x86_64::{
    __m128i, _mm_andnot_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8,
    _mm_or_si128, _mm_set1_epi8, _mm_sub_epi8,
};

/// Every x86-64 has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sse2;

pub(super) const SCANNER: Blocks<Sse2> = Blocks(Sse2);

/// Bytes from `first` to `last` as all ones.
#[inline(always)]
fn range(block: __m128i, first: u8, last: u8) -> __m128i {
    // SAFETY: instructions on registers that every x86-64 has.
    unsafe {
        let offset = _mm_sub_epi8(block, _mm_set1_epi8(first as i8));
        let most = _mm_set1_epi8((last - first) as i8);
        _mm_cmpeq_epi8(_mm_min_epu8(offset, most), offset)
    }
}

#[inline(always)]
fn equal(block: __m128i, byte: u8) -> __m128i {
    // SAFETY: instructions on registers that every x86-64 has.
    unsafe { _mm_cmpeq_epi8(block, _mm_set1_epi8(byte as i8)) }
}

#[inline(always)]
fn either(one: __m128i, other: __m128i) -> __m128i {
    // SAFETY: an instruction on registers that every x86-64 has.
    unsafe { _mm_or_si128(one, other) }
}

#[inline(always)]
fn mask(bytes: __m128i) -> u64 {
    // SAFETY: an instruction on a register that every x86-64 has.
    u64::from(unsafe { _mm_movemask_epi8(bytes) } as u16)
}

#[inline(always)]
fn not_mask(bytes: __m128i) -> u64 {
    mask(bytes) ^ u64::from(u16::MAX)
}

/// Letters of both cases: the bit that tells them apart is set first.
#[inline(always)]
fn letters(block: __m128i) -> __m128i {
    // SAFETY: instructions on registers that every x86-64 has.
    range(
        unsafe { _mm_or_si128(block, _mm_set1_epi8(0x20)) },
        b'a',
        b'z',
    )
}

impl Judge for Sse2 {
    const BYTES: usize = 16;
    type Block = __m128i;

    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> __m128i {
        // SAFETY: the caller's promise is that 16 bytes can be read; no alignment is asked for.
        unsafe { _mm_loadu_si128(from.cast()) }
    }

    /// RFC 9110 5.6.2: alphanumeric and `!#$%&'*+-.^_`|~`.
    #[inline(always)]
    fn not_token(self, block: __m128i) -> u64 {
        let alphanumeric = either(letters(block), range(block, b'0', b'9'));
        let first = either(equal(block, b'!'), range(block, b'#', b'\''));
        let second = either(range(block, b'*', b'+'), range(block, b'-', b'.'));
        let third = either(range(block, b'^', b'`'), equal(block, b'|'));
        let marks = either(either(first, second), either(third, equal(block, b'~')));
        not_mask(either(alphanumeric, marks))
    }

    #[inline(always)]
    fn not_value(self, block: __m128i) -> u64 {
        // SAFETY: an instruction on registers that every x86-64 has.
        let controls = unsafe { _mm_andnot_si128(equal(block, b'\t'), range(block, 0, 0x1f)) };
        mask(either(controls, equal(block, 0x7f)))
    }

    /// RFC 3986: all graphic characters but `"#<>\^`{|}`.
    #[inline(always)]
    fn not_target(self, block: __m128i) -> u64 {
        let first = either(equal(block, b'!'), range(block, b'$', b';'));
        let second = either(equal(block, b'='), range(block, b'?', b'Z'));
        let third = either(equal(block, b'['), equal(block, b']'));
        let fourth = either(equal(block, b'_'), range(block, b'a', b'z'));
        let marks = either(either(first, second), either(third, fourth));
        not_mask(either(marks, equal(block, b'~')))
    }

    #[inline(always)]
    fn question(self, block: __m128i) -> u64 {
        mask(equal(block, b'?'))
    }
}

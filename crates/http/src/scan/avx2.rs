//! 32 bytes at once on x86-64 with AVX2.
//!
//! The functions here carry no `target_feature` of their own but are always inlined into [`run`], which does: only
//! there the intrinsics become single instructions.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_andnot_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8,
    _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8, _mm_sub_epi8, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_min_epu8,
    _mm256_movemask_epi8, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_srli_epi16, _mm256_xor_si256,
};
use std::sync::atomic::{AtomicU8, Ordering};

use super::block::Nibbles;
use super::block::{Blocks, Judge};
use super::block::{TARGET, TOKEN};
use super::{Text, Work};

/// Proof that this CPU has AVX2, BMI1 and BMI2: only [`Self::detect`] makes one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;
static FOUND: AtomicU8 = AtomicU8::new(UNKNOWN);

impl Avx2 {
    /// One load and one comparison after the first call.
    #[inline(always)]
    pub(super) fn detect() -> Option<Blocks<Self>> {
        if FOUND.load(Ordering::Relaxed) == PRESENT {
            return Some(Blocks(Self(())));
        }
        ask()
    }
}

/// Asks the CPU, or remembers that it has not got it.
#[cold]
fn ask() -> Option<Blocks<Avx2>> {
    if FOUND.load(Ordering::Relaxed) == ABSENT {
        return None;
    }
    let is_present = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2");
    FOUND.store(if is_present { PRESENT } else { ABSENT }, Ordering::Relaxed);
    is_present.then_some(Blocks(Avx2(())))
}

/// Does the work, compiled for AVX2.
#[inline(always)]
pub(super) fn run<W: Work>(
    text: Text<'_, Blocks<Avx2>>,
    rules: &W::Rules,
    table: &mut W::Table,
    outcome: &mut W::Outcome,
) -> bool {
    // SAFETY: an `Avx2` exists, so the CPU has what the function was compiled for.
    unsafe { run_compiled::<W>(text, rules, table, outcome) }
}

#[target_feature(enable = "avx2,bmi1,bmi2")]
#[inline(never)]
fn run_compiled<W: Work>(
    text: Text<'_, Blocks<Avx2>>,
    rules: &W::Rules,
    table: &mut W::Table,
    outcome: &mut W::Outcome,
) -> bool {
    W::run(text, rules, table, outcome)
}

/// At the index of their low half: tab and DEL, the two bytes for which "below the space" differs from "not a field
/// value byte". At other indexes a value that no byte matches at its own index: bytes above 0x7f look up zero, so index
/// zero does not hold zero.
const EXCEPTIONS: [u8; 16] = [1, 0, 0, 0, 0, 0, 0, 0, 0, b'\t', 0, 0, 0, 0, 0, 0x7f];

/// The halves of both tables, which the lookup takes per 16 bytes.
#[inline(always)]
fn table(entries: &[u8; 16]) -> __m256i {
    // SAFETY: sixteen bytes are read out of sixteen; the caller holds an `Avx2`.
    unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(entries.as_ptr().cast())) }
}

/// Marks the bytes outside a class.
#[inline(always)]
fn outside(block: __m256i, class: &Nibbles) -> u64 {
    // SAFETY: instructions on registers; the caller holds an `Avx2`.
    unsafe {
        // An index with its highest bit set looks up zero, so no mask is needed for the low half.
        let low = _mm256_shuffle_epi8(table(&class.low), block);
        let halves = _mm256_and_si256(_mm256_srli_epi16::<4>(block), _mm256_set1_epi8(0x0f));
        let high = _mm256_shuffle_epi8(table(&class.high), halves);
        let shared = _mm256_and_si256(low, high);
        mask(_mm256_cmpeq_epi8(shared, _mm256_setzero_si256()))
    }
}

#[inline(always)]
fn mask(bytes: __m256i) -> u64 {
    // SAFETY: an instruction on a register; the caller holds an `Avx2`.
    u64::from(unsafe { _mm256_movemask_epi8(bytes) } as u32)
}

#[inline(always)]
fn equal(block: __m256i, byte: u8) -> __m256i {
    // SAFETY: instructions on registers; the caller holds an `Avx2`.
    unsafe { _mm256_cmpeq_epi8(block, _mm256_set1_epi8(byte as i8)) }
}

impl Judge for Avx2 {
    const BYTES: usize = 32;
    type Block = __m256i;

    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> __m256i {
        // SAFETY: the caller's promise is that 32 bytes can be read; no alignment is asked for.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    fn not_token(self, block: __m256i) -> u64 {
        outside(block, &const { Nibbles::of(TOKEN) })
    }

    /// Controls, but for the tab, and the one that is not below the space.
    #[inline(always)]
    fn not_value(self, block: __m256i) -> u64 {
        // SAFETY: instructions on registers; `self` proves the CPU.
        unsafe {
            let below_space =
                _mm256_cmpeq_epi8(_mm256_min_epu8(block, _mm256_set1_epi8(0x1f)), block);
            let exception =
                _mm256_cmpeq_epi8(_mm256_shuffle_epi8(table(&EXCEPTIONS), block), block);
            mask(_mm256_xor_si256(below_space, exception))
        }
    }

    #[inline(always)]
    fn not_target(self, block: __m256i) -> u64 {
        outside(block, &const { Nibbles::of(TARGET) })
    }

    #[inline(always)]
    fn question(self, block: __m256i) -> u64 {
        mask(equal(block, b'?'))
    }
}

// 16 bytes at once on any x86-64: SSE2 is part of it.
//
// There is no table look-up in SSE2, so classes are unions of ranges.

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
fn sse2_equal(block: __m128i, byte: u8) -> __m128i {
    // SAFETY: instructions on registers that every x86-64 has.
    unsafe { _mm_cmpeq_epi8(block, _mm_set1_epi8(byte as i8)) }
}

#[inline(always)]
fn either(one: __m128i, other: __m128i) -> __m128i {
    // SAFETY: an instruction on registers that every x86-64 has.
    unsafe { _mm_or_si128(one, other) }
}

#[inline(always)]
fn sse2_mask(bytes: __m128i) -> u64 {
    // SAFETY: an instruction on a register that every x86-64 has.
    u64::from(unsafe { _mm_movemask_epi8(bytes) } as u16)
}

#[inline(always)]
fn not_mask(bytes: __m128i) -> u64 {
    sse2_mask(bytes) ^ u64::from(u16::MAX)
}

/// Letters of both cases: the bit that distinguishes them is set first.
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
        let first = either(sse2_equal(block, b'!'), range(block, b'#', b'\''));
        let second = either(range(block, b'*', b'+'), range(block, b'-', b'.'));
        let third = either(range(block, b'^', b'`'), sse2_equal(block, b'|'));
        let marks = either(
            either(first, second),
            either(third, sse2_equal(block, b'~')),
        );
        not_mask(either(alphanumeric, marks))
    }

    #[inline(always)]
    fn not_value(self, block: __m128i) -> u64 {
        // SAFETY: an instruction on registers that every x86-64 has.
        let controls = unsafe { _mm_andnot_si128(sse2_equal(block, b'\t'), range(block, 0, 0x1f)) };
        sse2_mask(either(controls, sse2_equal(block, 0x7f)))
    }

    /// RFC 3986: all graphic characters but `"#<>\^`{|}`.
    #[inline(always)]
    fn not_target(self, block: __m128i) -> u64 {
        let first = either(sse2_equal(block, b'!'), range(block, b'$', b';'));
        let second = either(sse2_equal(block, b'='), range(block, b'?', b'Z'));
        let third = either(sse2_equal(block, b'['), sse2_equal(block, b']'));
        let fourth = either(sse2_equal(block, b'_'), range(block, b'a', b'z'));
        let marks = either(either(first, second), either(third, fourth));
        not_mask(either(marks, sse2_equal(block, b'~')))
    }

    #[inline(always)]
    fn question(self, block: __m128i) -> u64 {
        sse2_mask(sse2_equal(block, b'?'))
    }
}

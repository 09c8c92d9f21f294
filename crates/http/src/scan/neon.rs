//! 16 bytes at once on aarch64: NEON is part of it.

use super::block::Nibbles;
use super::block::{Blocks, Judge};
use super::block::{TARGET, TOKEN};
use std::arch::aarch64::{
    uint8x16_t, vaddv_u8, vandq_u8, vbicq_u8, vceqq_u8, vceqzq_u8, vcltq_u8, vdupq_n_u8,
    vget_high_u8, vget_low_u8, vld1q_u8, vorrq_u8, vqtbl1q_u8, vshrq_n_u8,
};

/// Every aarch64 that Rust's Linux targets name has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neon;

pub(super) const SCANNER: Blocks<Neon> = Blocks(Neon);

/// One bit per byte, which NEON has no instruction for: each byte keeps the bit of its place, and
/// the eight of a half are added up.
#[inline(always)]
fn mask(bytes: uint8x16_t) -> u64 {
    const PLACES: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: sixteen bytes are read out of sixteen, the rest is instructions on registers that
    // every aarch64 has.
    unsafe {
        let bits = vandq_u8(bytes, vld1q_u8(PLACES.as_ptr()));
        let (low, high) = (vaddv_u8(vget_low_u8(bits)), vaddv_u8(vget_high_u8(bits)));
        u64::from(low) | u64::from(high) << 8
    }
}

#[inline(always)]
fn equal(block: uint8x16_t, byte: u8) -> uint8x16_t {
    // SAFETY: instructions on registers that every aarch64 has.
    unsafe { vceqq_u8(block, vdupq_n_u8(byte)) }
}

/// Marks the bytes outside a class.
#[inline(always)]
fn outside(block: uint8x16_t, class: &Nibbles) -> u64 {
    // SAFETY: sixteen bytes are read out of sixteen, twice; the rest is instructions on registers.
    unsafe {
        // A byte above 0x7f has a high half above 7, whose entry is zero.
        let low = vqtbl1q_u8(
            vld1q_u8(class.low.as_ptr()),
            vandq_u8(block, vdupq_n_u8(0x0f)),
        );
        let high = vqtbl1q_u8(vld1q_u8(class.high.as_ptr()), vshrq_n_u8::<4>(block));
        mask(vceqzq_u8(vandq_u8(low, high)))
    }
}

impl Judge for Neon {
    const BYTES: usize = 16;
    type Block = uint8x16_t;

    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> uint8x16_t {
        // SAFETY: the caller's promise is that 16 bytes can be read; no alignment is asked for.
        unsafe { vld1q_u8(from) }
    }

    #[inline(always)]
    fn not_token(self, block: uint8x16_t) -> u64 {
        outside(block, &const { Nibbles::of(TOKEN) })
    }

    #[inline(always)]
    fn not_value(self, block: uint8x16_t) -> u64 {
        // SAFETY: instructions on registers that every aarch64 has.
        unsafe {
            let controls = vcltq_u8(block, vdupq_n_u8(0x20));
            let without_tab = vbicq_u8(controls, equal(block, b'\t'));
            mask(vorrq_u8(without_tab, equal(block, 0x7f)))
        }
    }

    #[inline(always)]
    fn not_target(self, block: uint8x16_t) -> u64 {
        outside(block, &const { Nibbles::of(TARGET) })
    }

    #[inline(always)]
    fn question(self, block: uint8x16_t) -> u64 {
        mask(equal(block, b'?'))
    }
}

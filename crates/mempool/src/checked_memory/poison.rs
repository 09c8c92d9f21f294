//! The bytes that tell fresh, freed and forbidden memory apart, and finding the one that changed.
//!
//! The values are those debuggers' users know from other systems. None is 0 or a letter, which
//! stray writes mostly are, and none makes a pointer.
#![allow(unsafe_code)]
use std::ptr::NonNull;
use std::slice;

/// What a block holds when it is lent: reading it before writing shows.
pub(super) const FRESH: u8 = 0xCD;
/// What a block holds once it is freed.
pub(super) const FREED: u8 = 0xDD;
/// What stands before and behind a lent block.
pub(super) const CANARY: u8 = 0xFD;

/// Offset of the first byte that is not `expected`.
///
/// # Safety
/// `len` bytes from `start` are initialised, readable, and lent to nobody.
pub(super) unsafe fn first_change(start: NonNull<u8>, len: usize, expected: u8) -> Option<usize> {
    // SAFETY: the caller's promise. A program that writes to memory it does not hold races with
    // this read: that is the fault looked for.
    let bytes = unsafe { slice::from_raw_parts(start.as_ptr(), len) };
    // All are the same where each is the same as the next one: one call of the C library's
    // comparison, the quickest there is, and one that Miri has not to interpret.
    let first = bytes.first()?;
    let is_intact = *first == expected && bytes[1..] == bytes[..len - 1];
    if is_intact {
        return None;
    }
    bytes.iter().position(|&byte| byte != expected)
}

/// Offset of the last byte that is not `expected`.
///
/// # Safety
/// As for [`first_change`].
pub(super) unsafe fn last_change(start: NonNull<u8>, len: usize, expected: u8) -> Option<usize> {
    // SAFETY: the caller's promise. The first search is the quick one for memory that is intact.
    unsafe {
        first_change(start, len, expected)?;
        let bytes = slice::from_raw_parts(start.as_ptr(), len);
        bytes.iter().rposition(|&byte| byte != expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the very byte is found from either end, at every place.
    #[test]
    fn the_very_byte_is_found() {
        let mut bytes = [FREED; if cfg!(miri) { 37 } else { 197 }];
        let len = bytes.len();
        let find = |bytes: &mut [u8]| {
            let start = NonNull::from(bytes).cast();
            // SAFETY: the array is this test's.
            unsafe {
                (
                    first_change(start, len, FREED),
                    last_change(start, len, FREED),
                )
            }
        };
        assert_eq!(find(&mut bytes), (None, None));
        for place in 0..len {
            bytes[place] ^= 1;
            assert_eq!(find(&mut bytes), (Some(place), Some(place)));
            bytes[len - 1] = 0;
            assert_eq!(find(&mut bytes), (Some(place), Some(len - 1)));
            bytes[len - 1] = FREED;
            bytes[place] = FREED;
        }
    }
}

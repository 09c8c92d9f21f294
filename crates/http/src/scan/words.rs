//! Comparing a few bytes as whole words, which the compiler does not do for patterns.

/// Not zero when the bytes differ after the bits of `SET` are set in each of `found`'s. Words overlap
/// where the length is no multiple, so that any length costs a handful of instructions.
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

/// Whether `text` is what the first bytes of `place` are, as many as there are in `text`; without a call
/// for texts as long as most hosts.
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

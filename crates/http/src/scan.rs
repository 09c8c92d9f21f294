//! Byte classes and the search for the end of a run: the scalar reference.
//!
//! On the path: `parse` and `body` call this for every byte a peer sends in a head. Eight bytes are
//! judged at once in a plain `u64`, which every CPU has.
//! Absent on purpose: vector instructions. They come as a second implementation behind the same
//! functions, with this one as their oracle.

const TOKEN: u8 = 1;
const TARGET: u8 = 2;
const HOST: u8 = 4;
const QUOTED: u8 = 8;
/// A target byte other than `?`.
const PATH: u8 = 16;

const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        let alphanumeric = b.is_ascii_alphanumeric();
        let mut class = 0;
        if alphanumeric || one_of(b, b"!#$%&'*+-.^_`|~") {
            class |= TOKEN;
        }
        // RFC 3986: unreserved, sub-delims, gen-delims without '#', and '%' of an escape.
        if alphanumeric || one_of(b, b"-._~!$&'()*+,;=:@/?%[]") {
            class |= TARGET;
            if b != b'?' {
                class |= PATH;
            }
        }
        // reg-name, IPv4 and port; the brackets of an IPv6 address are checked by their place.
        if alphanumeric || one_of(b, b"-._~!$&'()*+,;=%") {
            class |= HOST;
        }
        if b == b'\t' || b == b' ' || (b > b' ' && b != 0x7f && b != b'"' && b != b'\\') {
            class |= QUOTED;
        }
        classes[byte] = class;
        byte += 1;
    }
    classes
}

const fn one_of(byte: u8, set: &[u8]) -> bool {
    let mut index = 0;
    while index < set.len() {
        if set[index] == byte {
            return true;
        }
        index += 1;
    }
    false
}

/// tchar of RFC 9110 5.6.2.
#[inline]
pub(crate) fn is_token(byte: u8) -> bool {
    CLASSES[byte as usize] & TOKEN != 0
}

/// A byte that may stand in a request target.
#[inline]
pub(crate) fn is_target(byte: u8) -> bool {
    CLASSES[byte as usize] & TARGET != 0
}

/// A byte that may stand in a host name or IPv4 address.
#[inline]
pub(crate) fn is_host(byte: u8) -> bool {
    CLASSES[byte as usize] & HOST != 0
}

/// qdtext of RFC 9110 5.6.4.
#[inline]
pub(crate) fn is_quoted_text(byte: u8) -> bool {
    CLASSES[byte as usize] & QUOTED != 0
}

/// A byte of a field value: HTAB, SP, VCHAR, obs-text (RFC 9110 5.5).
#[inline]
pub(crate) fn is_field_value(byte: u8) -> bool {
    byte >= b' ' && byte != 0x7f || byte == b'\t'
}

/// First position at or after `from` that is not a token byte; `bytes.len()` when all are.
#[inline]
pub(crate) fn token_end(bytes: &[u8], from: usize) -> usize {
    run_end(bytes, from, is_token)
}

/// First position at or after `from` that is not a target byte; `bytes.len()` when all are.
#[inline]
pub(crate) fn target_end(bytes: &[u8], from: usize) -> usize {
    run_end(bytes, from, is_target)
}

/// First position at or after `from` that is `?` or not a target byte; `bytes.len()` when there is
/// none. Four bytes per step: paths are the longest part of most heads.
#[inline]
pub(crate) fn path_end(bytes: &[u8], from: usize) -> usize {
    let class = |byte: u8| CLASSES[byte as usize];
    let (chunks, _) = bytes.get(from..).unwrap_or_default().as_chunks();
    let mut at = from;
    for &[a, b, c, d] in chunks {
        if class(a) & class(b) & class(c) & class(d) & PATH == 0 {
            break;
        }
        at += 4;
    }
    run_end(bytes, at, |byte| class(byte) & PATH != 0)
}

#[inline]
fn run_end(bytes: &[u8], from: usize, inside: impl Fn(u8) -> bool) -> usize {
    let mut at = from;
    while at < bytes.len() && inside(bytes[at]) {
        at += 1;
    }
    at
}

/// First position at or after `from` that is not a field value byte; `bytes.len()` when all are.
#[inline]
pub(crate) fn field_value_end(bytes: &[u8], from: usize) -> usize {
    let (words, _) = bytes.get(from..).unwrap_or_default().as_chunks();
    let mut at = from;
    for &word in words {
        let controls = control_marks(u64::from_le_bytes(word));
        if controls != 0 {
            at += (controls.trailing_zeros() / 8) as usize;
            break;
        }
        at += 8;
    }
    // A tab, which is allowed, is rare enough to go on byte by byte from it.
    run_end(bytes, at, is_field_value)
}

/// Marks bytes below SP and DEL by their high bit. Exact up to the first mark; above it a borrow
/// may have marked innocent bytes too.
#[inline]
fn control_marks(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let del = word ^ (ONES * 0x7f);
    let is_del = del.wrapping_sub(ONES) & !del;
    (below_space | is_del) & HIGH
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Goal: the word at a time search stops exactly where the byte at a time one does, for every
    /// byte value at every place in a word.
    #[test]
    fn every_byte_at_every_offset_agrees_with_the_naive_search() {
        for length in 0..40 {
            for place in 0..length {
                for byte in 0..=255_u8 {
                    let mut text = vec![b'a'; length];
                    text[place] = byte;
                    let naive = run_end(&text, 0, is_field_value);
                    assert_eq!(field_value_end(&text, 0), naive, "{byte:#x} at {place}");
                }
            }
        }
    }

    proptest! {
        /// Goal: the same on bytes of any kind, from any start.
        #[test]
        fn random_text_agrees_with_the_naive_search(
            text in proptest::collection::vec(any::<u8>(), 0..200), from in 0_usize..200,
        ) {
            let from = from.min(text.len());
            prop_assert_eq!(field_value_end(&text, from), run_end(&text, from, is_field_value));
            let is_path = |byte| is_target(byte) && byte != b'?';
            prop_assert_eq!(path_end(&text, from), run_end(&text, from, is_path));
        }

        /// Goal: and on paths, whose runs are long.
        #[test]
        fn random_paths_agree_with_the_naive_search(path in "[a-z/?%~ ]{0,30}", from in 0_usize..30) {
            let from = from.min(path.len());
            let is_path = |byte| is_target(byte) && byte != b'?';
            let naive = run_end(path.as_bytes(), from, is_path);
            prop_assert_eq!(path_end(path.as_bytes(), from), naive);
        }
    }

    /// Goal: the classes are those of the RFC, spelled out independently.
    #[test]
    fn classes_follow_the_grammar() {
        for byte in 0..=255_u8 {
            let separator = b"()<>@,;:\\\"/[]?={} \t".contains(&byte);
            assert_eq!(
                is_token(byte),
                byte.is_ascii_graphic() && !separator,
                "{byte:#x}"
            );
            let excluded = b"\"<>\\^`{|}#".contains(&byte);
            assert_eq!(
                is_target(byte),
                byte.is_ascii_graphic() && !excluded,
                "{byte:#x}"
            );
        }
    }
}

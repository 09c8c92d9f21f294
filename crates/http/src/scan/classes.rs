//! The classes of bytes that heads are made of, as one table. What they are, RFC 9110 and 3986 say;
//! every scanner is measured against this.

pub(super) const TOKEN: u8 = 1;
pub(super) const TARGET: u8 = 2;
const HOST: u8 = 4;
const QUOTED: u8 = 8;

pub(super) const CLASSES: [u8; 256] = classes();

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
pub(crate) const fn is_token(byte: u8) -> bool {
    CLASSES[byte as usize] & TOKEN != 0
}

/// A byte that may stand in a request target.
#[inline]
pub(crate) const fn is_target(byte: u8) -> bool {
    CLASSES[byte as usize] & TARGET != 0
}

/// A byte that may stand in a host name or IPv4 address.
#[inline]
pub(crate) const fn is_host(byte: u8) -> bool {
    CLASSES[byte as usize] & HOST != 0
}

/// qdtext of RFC 9110 5.6.4.
#[inline]
pub(crate) fn is_quoted_text(byte: u8) -> bool {
    CLASSES[byte as usize] & QUOTED != 0
}

/// A byte of a field value: HTAB, SP, VCHAR, obs-text (RFC 9110 5.5).
#[inline]
pub(crate) const fn is_field_value(byte: u8) -> bool {
    byte >= b' ' && byte != 0x7f || byte == b'\t'
}

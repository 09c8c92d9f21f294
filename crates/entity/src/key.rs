//! What a valid id is: 1 to 1,024 bytes, percent-encoded in the query.
//!
//! On the path: `api` cuts the raw `id` parameter out of the request target, this module turns it
//! into the bytes the store sees; the executor copies them only if the request has to wait.
//! Absent on purpose: character sets and normalisation. An id is bytes: `%C3%A9` and `e` are as
//! good as `%00`, and `+` is a plus sign, not a space (that rule belongs to HTML forms).

/// The longest id, in bytes after decoding. One KiB keeps every id well inside a request line
/// (8 KiB) even when each byte is written as `%XX`.
pub const ID_BYTES_MAX: usize = 1024;

const _: () = assert!(3 * ID_BYTES_MAX < 8 * 1024);

/// Why an id was refused. Every variant is the client's fault and is answered with 400.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum KeyError {
    /// The parameter is there, but has no bytes.
    #[error("the id is empty: give 1 to {ID_BYTES_MAX} bytes")]
    Empty,
    /// More than [`ID_BYTES_MAX`] bytes after decoding.
    #[error("the id has more than {ID_BYTES_MAX} bytes: shorten it")]
    TooLong,
    /// A `%` that two hexadecimal digits do not follow.
    #[error("the id has a bad escape at byte {offset}: write % as %25, and escapes as %XX")]
    BadEscape {
        /// Where the `%` stands in the encoded id.
        offset: usize,
    },
}

/// Room for one decoded id; owned by a shard and used for one request at a time.
pub struct KeyScratch([u8; ID_BYTES_MAX]);

impl KeyScratch {
    /// Empty room.
    #[must_use]
    pub const fn new() -> Self {
        Self([0; ID_BYTES_MAX])
    }
}

impl Default for KeyScratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Decodes an id. Without escapes the answer borrows `encoded`; `scratch` is touched only when
/// there is something to decode.
///
/// # Errors
/// [`KeyError`], naming what is wrong.
pub fn decode_id<'a>(encoded: &'a [u8], scratch: &'a mut KeyScratch) -> Result<&'a [u8], KeyError> {
    if encoded.is_empty() {
        return Err(KeyError::Empty);
    }
    let Some(first_escape) = encoded.iter().position(|&byte| byte == b'%') else {
        return if encoded.len() <= ID_BYTES_MAX {
            Ok(encoded)
        } else {
            Err(KeyError::TooLong)
        };
    };
    let mut len = first_escape;
    let plain = scratch.0.get_mut(..len).ok_or(KeyError::TooLong)?;
    plain.copy_from_slice(&encoded[..first_escape]);
    let mut offset = first_escape;
    while offset < encoded.len() {
        let (byte, step) = match encoded[offset] {
            b'%' => (escaped_byte(encoded, offset)?, 3),
            plain => (plain, 1),
        };
        *scratch.0.get_mut(len).ok_or(KeyError::TooLong)? = byte;
        len += 1;
        offset += step;
    }
    Ok(&scratch.0[..len])
}

/// The byte that the escape at `offset` stands for.
fn escaped_byte(encoded: &[u8], offset: usize) -> Result<u8, KeyError> {
    let digit = |at: usize| encoded.get(at).and_then(|&byte| hex_value(byte));
    match (digit(offset + 1), digit(offset + 2)) {
        (Some(high), Some(low)) => Ok(high << 4 | low),
        _ => Err(KeyError::BadEscape { offset }),
    }
}

const fn hex_value(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(encoded: &[u8]) -> Result<Vec<u8>, KeyError> {
        decode_id(encoded, &mut KeyScratch::new()).map(<[u8]>::to_vec)
    }

    /// Goal: an id without escapes is not copied, so the common GET touches no other memory.
    #[test]
    fn plain_id_is_borrowed_from_the_request() {
        let encoded = b"user+42";
        let mut scratch = KeyScratch::new();
        let id = decode_id(encoded, &mut scratch).unwrap();
        assert_eq!(id.as_ptr(), encoded.as_ptr());
        assert_eq!(id, b"user+42");
    }

    /// Goal: both limits are met exactly, decoded length counting, not encoded length.
    #[test]
    fn length_is_counted_after_decoding() {
        assert_eq!(decode(b""), Err(KeyError::Empty));
        assert_eq!(decode(&[b'k'; 1024]).unwrap().len(), 1024);
        assert_eq!(decode(&[b'k'; 1025]), Err(KeyError::TooLong));
        let escaped = b"%00".repeat(1024);
        assert_eq!(decode(&escaped).unwrap(), [0; 1024]);
        assert_eq!(
            decode(&[&escaped[..], b"k"].concat()),
            Err(KeyError::TooLong)
        );
        assert_eq!(
            decode(&[&[b'k'; 1030][..], b"%41"].concat()),
            Err(KeyError::TooLong)
        );
    }

    /// Goal: every way an escape can be cut short or misspelt is refused, with its place.
    #[test]
    fn bad_escapes_are_refused() {
        for (encoded, offset) in [
            (&b"%"[..], 0),
            (b"a%4", 1),
            (b"ab%g0", 2),
            (b"%0g", 0),
            (b"%%41", 0),
            (b"%41%-1", 3),
        ] {
            assert_eq!(
                decode(encoded),
                Err(KeyError::BadEscape { offset }),
                "{encoded:?}"
            );
        }
    }

    proptest! {
        /// Goal: any bytes survive being encoded, whichever of them the client chose to escape.
        #[test]
        fn encoding_round_trips(
            id in proptest::collection::vec(any::<(u8, bool, bool)>(), 1..=ID_BYTES_MAX),
        ) {
            let mut encoded = Vec::new();
            for &(byte, escape, upper) in &id {
                if escape || byte == b'%' {
                    let text =
                        if upper { format!("%{byte:02X}") } else { format!("%{byte:02x}") };
                    encoded.extend_from_slice(text.as_bytes());
                } else {
                    encoded.push(byte);
                }
            }
            let bytes: Vec<u8> = id.iter().map(|&(byte, ..)| byte).collect();
            prop_assert_eq!(decode(&encoded).unwrap(), bytes);
        }
    }
}

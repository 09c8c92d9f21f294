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

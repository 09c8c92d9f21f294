//! The body decoder: any cut, any chunking, and every trick with chunks.

use millpond_http::{
    BodyDecoder, BodyError, Framing, HeadFields, LimitValues, Limits, parse_trailer_fields,
};
use proptest::prelude::*;

const LIMITS: fn() -> Limits = || {
    LimitValues {
        body_bytes_max: 1 << 20,
        trailer_bytes_max: 64,
        ..LimitValues::default()
    }
    .checked()
    .unwrap()
};

/// Data, bytes used, and whether the body is complete, after feeding the pieces in turn.
fn decode(framing: Framing, pieces: &[&[u8]]) -> Result<(Vec<u8>, usize, bool), BodyError> {
    let mut decoder = BodyDecoder::new(framing, &LIMITS()).unwrap();
    let (mut data, mut used) = (Vec::new(), 0);
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let step = decoder.decode(rest)?;
            assert!(
                step.consumed_bytes > 0,
                "no progress on {}",
                rest.escape_ascii()
            );
            data.extend_from_slice(step.data);
            used += step.consumed_bytes;
            rest = &rest[step.consumed_bytes..];
            if step.is_complete {
                return Ok((data, used, true));
            }
        }
    }
    Ok((data, used, false))
}

fn chunked(bytes: &[u8]) -> Result<(Vec<u8>, usize, bool), BodyError> {
    decode(Framing::Chunked, &[bytes])
}

fn encode(chunks: &[Vec<u8>], trailer: &str) -> Vec<u8> {
    let mut text = Vec::new();
    for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
        text.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        text.extend_from_slice(chunk);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(format!("0\r\n{trailer}\r\n").as_bytes());
    text
}

proptest! {
    /// Goal: whatever the chunks and wherever the cuts, the data comes out and not a byte more is
    /// used.
    #[test]
    fn chunks_join_at_any_cut(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..8),
        cuts in proptest::collection::vec(0_usize..400, 0..6),
    ) {
        let text = encode(&chunks, "X: y\r\n");
        let stream = [&text[..], b"GET / next"].concat();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &stream[w[0]..w[1]]).collect();
        let (data, used, is_complete) = decode(Framing::Chunked, &pieces).unwrap();
        prop_assert_eq!(data, chunks.concat());
        prop_assert_eq!((used, is_complete), (text.len(), true));
    }

    /// Goal: random bytes never panic, and byte by byte they end as they do at once.
    #[test]
    fn random_bytes_end_the_same_way_byte_by_byte(
        text in "[0-9a-f;=\"\\\\ \\r\\nX:]{0,40}",
    ) {
        let whole = chunked(text.as_bytes());
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        prop_assert_eq!(decode(Framing::Chunked, &bytes), whole);
    }
}

/// Goal: a length is exact: later bytes belong to the next message.
#[test]
fn a_length_takes_exactly_its_bytes() {
    let all = decode(Framing::Length(5), &[b"he", b"llo", b"next"]).unwrap();
    assert_eq!(all, (b"hello".to_vec(), 5, true));
    assert_eq!(
        decode(Framing::Length(5), &[b"he"]).unwrap(),
        (b"he".to_vec(), 2, false)
    );
    assert_eq!(
        decode(Framing::Length(2), &[b"hello"]).unwrap(),
        (b"he".to_vec(), 2, true)
    );
}

/// Goal: all forms that the grammar allows are accepted.
#[test]
fn extensions_and_trailers_are_understood() {
    for text in [
        "5\r\nhello\r\n0\r\n\r\n",
        "0005\r\nhello\r\n000\r\n\r\n",
        "5;a\r\nhello\r\n0;b=c;d=\"e;\\\"f\"\r\n\r\n",
        "5\r\nhello\r\n0\r\nX-Sum: 1\r\nY:\r\n\r\n",
    ] {
        let expected = (b"hello".to_vec(), text.len(), true);
        assert_eq!(chunked(text.as_bytes()), Ok(expected), "{text:?}");
    }
}

/// Goal: every way to make two parsers disagree about a chunk is refused.
#[test]
fn chunk_tricks_are_refused() {
    use BodyError as E;
    for (text, error) in [
        ("\r\nhello", E::BadChunkSize),
        (" 5\r\nhello\r\n", E::BadChunkSize),
        ("5 \r\nhello\r\n", E::BadChunkSize),
        ("5\t\r\nhello\r\n", E::BadChunkSize),
        ("+5\r\nhello\r\n", E::BadChunkSize),
        ("-5\r\nhello\r\n", E::BadChunkSize),
        ("0x5\r\nhello\r\n", E::BadChunkSize),
        ("5_\r\nhello\r\n", E::BadChunkSize),
        ("g\r\n", E::BadChunkSize),
        ("5\nhello\r\n", E::BadChunkSize),
        ("5\rhello\r\n", E::BadChunkSize),
        ("00000000000000005\r\nhello\r\n", E::BadChunkSize),
        ("5;\r\nhello\r\n", E::BadChunkExtension),
        ("5; a\r\nhello\r\n", E::BadChunkExtension),
        ("5 ;a\r\nhello\r\n", E::BadChunkSize),
        ("5;a\nhello\r\n", E::BadChunkExtension),
        ("5;a=\r\nhello\r\n", E::BadChunkExtension),
        ("5;a=\"b\nc\"\r\nhello\r\n", E::BadChunkExtension),
        ("5;a=\"b\"c\r\nhello\r\n", E::BadChunkExtension),
        ("5;a\rX\r\n", E::BadChunkSize),
        ("5\r\nhello0\r\n\r\n", E::BadChunkEnd),
        ("5\r\nhello\n0\r\n\r\n", E::BadChunkEnd),
        ("5\r\nhello\rX", E::BadChunkEnd),
        ("5\r\nhelloXX0\r\n\r\n", E::BadChunkEnd),
        ("0\r\nX : y\r\n\r\n", E::BadTrailer),
        ("0\r\n X: y\r\n\r\n", E::BadTrailer),
        ("0\r\nX: y\n\r\n", E::BadTrailer),
        ("0\r\nX: y\r\n folded\r\n\r\n", E::BadTrailer),
        ("0\r\n: y\r\n\r\n", E::BadTrailer),
        ("0\r\n\n", E::BadTrailer),
        ("0\r\n\rX", E::BadTrailer),
        ("0\r\nX: \0\r\n\r\n", E::BadTrailer),
        ("0\r\nHost: b\r\n\r\n", E::ForbiddenTrailer),
        (
            "0\r\nX: y\r\nCONTENT-length: 5\r\n\r\n",
            E::ForbiddenTrailer,
        ),
        (
            "0\r\nTransfer-Encoding: chunked\r\n\r\n",
            E::ForbiddenTrailer,
        ),
        (
            "100001\r\n",
            E::TooLong {
                limit_bytes: 1 << 20,
            },
        ),
        (
            "ffffffffffffffff\r\n",
            E::TooLong {
                limit_bytes: 1 << 20,
            },
        ),
    ] {
        assert_eq!(chunked(text.as_bytes()), Err(error), "{text:?}");
    }
}

/// Goal: extensions and trailers are capped, not only checked.
#[test]
fn extensions_and_trailers_are_capped() {
    let extension = |length: usize| format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(length));
    assert!(chunked(extension(255).as_bytes()).is_ok());
    let too_long = BodyError::ChunkExtensionTooLong { limit_bytes: 256 };
    assert_eq!(chunked(extension(256).as_bytes()), Err(too_long));
    let many = |count: usize| {
        format!(
            "{}0\r\n\r\n",
            format!("1;{}\r\nx\r\n", "a".repeat(127)).repeat(count)
        )
    };
    assert!(chunked(many(128).as_bytes()).is_ok());
    let too_long = BodyError::ChunkExtensionTooLong {
        limit_bytes: 16 * 1024,
    };
    assert_eq!(
        chunked(many(129).as_bytes()),
        Err(too_long),
        "of all chunks together"
    );
    let trailer = |length: usize| format!("0\r\nX:{}\r\n\r\n", "a".repeat(length));
    assert!(chunked(trailer(58).as_bytes()).is_ok());
    let too_long = BodyError::TrailerTooLong { limit_bytes: 64 };
    assert_eq!(chunked(trailer(59).as_bytes()), Err(too_long));
}

/// Goal: trailer fields come out as they stood, wherever the stream is cut, apart from the data;
/// names that only begin like a forbidden one pass.
#[test]
fn trailer_fields_are_handed_out_at_any_cut() {
    let trailer =
        "X-Sum: 1\r\nY:\r\nHostage: a\r\nContent-Lengths: 2\r\nTransfer-Encodingg: \t b \r\n";
    let text = format!("5\r\nhello\r\n0;x\r\n{trailer}\r\nnext");
    let limits = Limits::default();
    for cut in 0..=text.len() {
        let mut decoder = BodyDecoder::new(Framing::Chunked, &limits).unwrap();
        let (mut data, mut gathered, mut used, mut is_complete) = (vec![], vec![], 0, false);
        for piece in [&text.as_bytes()[..cut], &text.as_bytes()[cut..]] {
            let mut rest = piece;
            while !rest.is_empty() && !is_complete {
                let step = decoder.decode(rest).unwrap();
                assert!(step.data.is_empty() || step.trailer.is_empty());
                data.extend_from_slice(step.data);
                gathered.extend_from_slice(step.trailer);
                used += step.consumed_bytes;
                rest = &rest[step.consumed_bytes..];
                is_complete = step.is_complete;
            }
        }
        assert_eq!((data.as_slice(), used), (&b"hello"[..], text.len() - 4));
        assert_eq!(gathered, trailer.as_bytes(), "cut at {cut}");
        let mut fields = HeadFields::new();
        parse_trailer_fields(&gathered, &limits, &mut fields).unwrap();
        assert_eq!(fields.len(), 5);
        assert_eq!(fields.value_of(&gathered, b"x-sum"), Some(&b"1"[..]));
        assert_eq!(
            fields.value_of(&gathered, b"transfer-encodingg"),
            Some(&b"b"[..])
        );
    }
    let mut fields = HeadFields::new();
    let none = parse_trailer_fields(b"", &limits, &mut fields).unwrap();
    assert_eq!(none.into_iter().count(), 0);
    assert!(parse_trailer_fields(b"X: y", &limits, &mut fields).is_err());
}

/// Goal: as many trailer fields as a head may have, and not one more.
#[test]
fn trailer_fields_are_counted() {
    let text = |count: usize| format!("0\r\n{}\r\n", "A:\r\n".repeat(count));
    let limits = Limits::default();
    let decode = |text: &str| {
        let mut decoder = BodyDecoder::new(Framing::Chunked, &limits).unwrap();
        decoder
            .decode(text.as_bytes())
            .map(|step| step.trailer.len())
    };
    assert_eq!(decode(&text(limits.fields_max)), Ok(4 * limits.fields_max));
    let limit = limits.fields_max;
    assert_eq!(
        decode(&text(limit + 1)),
        Err(BodyError::TooManyTrailers { limit })
    );
}

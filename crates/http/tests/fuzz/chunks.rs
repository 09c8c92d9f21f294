//! Chunked bodies: the same data, the same end or the same fault, however the stream is cut; and what
//! was taken for data is what a second reader of the grammar takes.

use millpond_http::{
    BodyDecoder, BodyError, Framing, HeadFields, LimitValues, Limits, parse_trailer_fields,
};

#[derive(Debug, Default, Eq, PartialEq)]
struct Body {
    data: Vec<u8>,
    trailer: Vec<u8>,
    used: usize,
    is_complete: bool,
}

fn limits() -> Limits {
    LimitValues {
        body_bytes_max: 300,
        chunk_extension_bytes_max: 20,
        trailer_bytes_max: 60,
        fields_max: 3,
        ..LimitValues::default()
    }
    .checked()
    .unwrap()
}

fn decode(pieces: &[&[u8]]) -> Result<Body, BodyError> {
    let mut decoder = BodyDecoder::new(Framing::Chunked, &limits()).expect("there is a body");
    let mut body = Body::default();
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() && !body.is_complete {
            let step = decoder.decode(rest)?;
            assert!(step.consumed_bytes > 0 && (step.data.is_empty() || step.trailer.is_empty()));
            body.data.extend_from_slice(step.data);
            body.trailer.extend_from_slice(step.trailer);
            body.used += step.consumed_bytes;
            body.is_complete = step.is_complete;
            rest = &rest[step.consumed_bytes..];
        }
    }
    Ok(body)
}

/// The grammar of RFC 9112 7.1 read in one go by slicing, without extensions: `None` for what it does
/// not know or accept.
fn read_plainly(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut data, mut at) = (Vec::new(), 0);
    loop {
        let rest = &bytes[at..];
        let line_end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let digits = std::str::from_utf8(&rest[..line_end]).ok()?;
        if digits.is_empty() || digits.len() > 16 || !digits.bytes().all(|b| b.is_ascii_hexdigit())
        {
            return None;
        }
        let size = usize::try_from(u64::from_str_radix(digits, 16).ok()?).ok()?;
        at += line_end + 2;
        if size == 0 {
            let ends = bytes[at..].starts_with(b"\r\n");
            return ends.then_some((data, at + 2));
        }
        data.extend_from_slice(bytes.get(at..at.checked_add(size)?)?);
        at += size;
        if bytes.get(at..at + 2)? != b"\r\n" {
            return None;
        }
        at += 2;
    }
}

/// The first byte chooses a cut, the rest is the stream.
pub(crate) fn run(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    let whole = decode(&[bytes]);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(decode(&single), whole, "byte by byte");
    let (first, second) = bytes.split_at(usize::from(choice) * bytes.len() / 256);
    assert_eq!(decode(&[first, second]), whole, "cut at {}", first.len());
    let plain = read_plainly(bytes);
    match whole {
        Ok(body) => {
            assert!(body.data.len() <= 300 && body.trailer.len() <= 60);
            assert!(body.is_complete || body.used == bytes.len());
            if body.is_complete {
                let mut fields = HeadFields::new();
                parse_trailer_fields(&body.trailer, &limits(), &mut fields).expect("checked");
                assert_eq!(fields.is_empty(), body.trailer.is_empty());
                if let Some(plain) = plain {
                    assert_eq!(plain, (body.data, body.used));
                }
            }
        }
        Err(BodyError::TooLong { .. }) => {}
        Err(error) => assert_eq!(plain, None, "{error:?}"),
    }
}

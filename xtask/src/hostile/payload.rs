//! What hostile clients say.

/// A request that is in order.
pub(super) const GET: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: hostile\r\n\r\n";

/// Room for the head of a request in the servers' default limit.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const FIELDS_MAX: usize = 100;

/// `GET`, as many times.
pub(super) fn pipeline(depth: usize) -> Vec<u8> {
    GET.repeat(depth)
}

/// A head with as many fields and bytes as the limits allow, and not one more.
pub(super) fn widest_head() -> Vec<u8> {
    head_of(HEAD_BYTES_MAX, FIELDS_MAX)
}

/// A head of exactly so many bytes and fields.
pub(super) fn head_of(bytes: usize, fields: usize) -> Vec<u8> {
    let mut head = GET[..GET.len() - 2].to_vec();
    for number in 1..fields - 1 {
        head.extend_from_slice(format!("X-{number:03}: {number}\r\n").as_bytes());
    }
    let name = b"X-Filler: ";
    head.extend_from_slice(name);
    let filler_bytes = bytes - head.len() - b"\r\n\r\n".len();
    head.resize(head.len() + filler_bytes, b'f');
    head.extend_from_slice(b"\r\n\r\n");
    head
}

/// Bytes that look like nothing, others for each `seed`; the first is no letter, so that no method
/// begins here by chance, and a line ends among the first few hundred.
pub(super) fn garbage(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes: Vec<u8> = (0..512)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect();
    bytes[0] |= 0x80;
    bytes[300..304].copy_from_slice(b"\r\n\r\n");
    bytes
}

/// The first flight of a TLS 1.3 client: a record of a ClientHello with random, session and a
/// cipher suite.
pub(super) fn client_hello(seed: u64) -> Vec<u8> {
    let noise = garbage(seed);
    let mut hello = vec![0x03, 0x03];
    hello.extend_from_slice(&noise[..32]);
    hello.push(32);
    hello.extend_from_slice(&noise[32..64]);
    // One cipher suite, no compression, one extension: supported versions, TLS 1.3.
    hello.extend_from_slice(&[0, 2, 0x13, 0x01, 1, 0, 0, 7, 0, 43, 0, 3, 2, 3, 4]);
    let mut record = vec![0x16, 0x03, 0x01];
    record.extend_from_slice(&(hello.len() as u16 + 4).to_be_bytes());
    record.extend_from_slice(&[1, 0]);
    record.extend_from_slice(&(hello.len() as u16).to_be_bytes());
    record.extend_from_slice(&hello);
    record
}

/// Asks for more ranges of a file than anybody would answer one by one, overlapping and backwards.
pub(super) fn many_ranges(path: &str) -> Vec<u8> {
    let ranges: Vec<String> = (0..400).rev().map(|first| format!("{first}-")).collect();
    let ranges = ranges.join(",");
    format!("GET {path} HTTP/1.1\r\nHost: hostile\r\nRange: bytes={ranges}\r\n\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the widest head has the size and the number of fields that the limits name.
    #[test]
    fn heads_have_the_size_asked_for() {
        let head = widest_head();
        assert_eq!(head.len(), HEAD_BYTES_MAX);
        assert_eq!(
            head.windows(2).filter(|w| w == b"\r\n").count(),
            FIELDS_MAX + 2
        );
        assert!(head.ends_with(b"f\r\n\r\n"));
    }

    /// Goal: each seed has its own garbage, and none begins like a method.
    #[test]
    fn garbage_is_none_of_a_kind() {
        assert_ne!(garbage(1), garbage(2));
        assert!((0..64).all(|seed| !garbage(seed)[0].is_ascii()));
    }
}

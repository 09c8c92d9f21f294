//! Responses in a stream of bytes, counted by status.
//!
//! As little HTTP as a count needs, and none of our own parser's: a server that framed its answers
//! wrongly would agree with itself.

use std::collections::BTreeMap;

/// A response head of ours is a few hundred bytes; a longer one is something else.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// How far the response at hand is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Place {
    /// Between responses, or inside a head.
    #[default]
    Head,
    /// So much of a body is to come.
    Body(u64),
    /// What came is no response; nothing behind it can be counted.
    Lost,
}

/// What one connection was answered so far.
#[derive(Debug, Default)]
pub(super) struct Answers {
    place: Place,
    head: Vec<u8>,
}

impl Answers {
    /// Counts the responses that end in `bytes` into `statuses`, as 0 what is none.
    pub(super) fn take(&mut self, mut bytes: &[u8], statuses: &mut BTreeMap<u16, u64>) {
        while !bytes.is_empty() && self.place != Place::Lost {
            if let Place::Body(left) = self.place {
                let here = left.min(bytes.len() as u64);
                bytes = &bytes[here as usize..];
                self.place = match left - here {
                    0 => Place::Head,
                    left => Place::Body(left),
                };
                continue;
            }
            let before = self.head.len();
            self.head.extend_from_slice(bytes);
            // The empty line may have begun in what came before.
            let from = before.saturating_sub(3);
            let end = self.head[from..].windows(4).position(|w| w == b"\r\n\r\n");
            let Some(end) = end.map(|at| from + at + 4) else {
                if self.head.len() > HEAD_BYTES_MAX {
                    self.lose(statuses);
                }
                return;
            };
            bytes = &bytes[end - before..];
            match parse(&self.head[..end]) {
                Some((status, length)) => {
                    *statuses.entry(status).or_default() += 1;
                    self.place = if length == 0 {
                        Place::Head
                    } else {
                        Place::Body(length)
                    };
                }
                None => self.lose(statuses),
            }
            self.head.clear();
        }
    }

    fn lose(&mut self, statuses: &mut BTreeMap<u16, u64>) {
        *statuses.entry(0).or_default() += 1;
        self.place = Place::Lost;
    }

    /// In the middle of a response.
    pub(super) fn is_inside(&self) -> bool {
        !self.head.is_empty() || matches!(self.place, Place::Body(_))
    }
}

/// Status and length of the body.
fn parse(head: &[u8]) -> Option<(u16, u64)> {
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.split("\r\n");
    let status: u16 = lines
        .next()?
        .strip_prefix("HTTP/1.1 ")?
        .get(..3)?
        .parse()
        .ok()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<u64>())
    });
    match length {
        None if status < 200 || matches!(status, 204 | 304) => Some((status, 0)),
        // The length in a 304 is that of what is not sent.
        Some(Ok(_)) if status == 304 => Some((status, 0)),
        Some(Ok(length)) => Some((status, length)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the same responses are counted however the stream is cut, interim ones included; what
    /// is none counts as 0.
    #[test]
    fn responses_are_counted_at_every_cut() {
        let stream = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello\
            HTTP/1.1 304 Not Modified\r\n\r\nHTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n";
        let expected = BTreeMap::from([(100, 1), (200, 1), (304, 1), (408, 1)]);
        for cut in 0..stream.len() {
            let (mut answers, mut statuses) = (Answers::default(), BTreeMap::new());
            let (first, second) = stream.split_at(cut);
            answers.take(first, &mut statuses);
            answers.take(second, &mut statuses);
            assert_eq!(
                (&statuses, answers.is_inside()),
                (&expected, false),
                "cut at {cut}"
            );
        }
        let (mut answers, mut statuses) = (Answers::default(), BTreeMap::new());
        answers.take(b"HTTP/1.1 200 OK\r\n\r\nno length", &mut statuses);
        assert_eq!(statuses, BTreeMap::from([(0, 1)]));
    }
}

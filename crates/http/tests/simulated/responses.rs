//! Responses out of bytes, by a reader too simple to share a mistake with the server's parser.

/// A response as it stood on the wire.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// `Connection: close` is among its fields.
    pub(crate) says_close: bool,
}

/// Takes responses off the front of what arrived.
#[derive(Default)]
pub(crate) struct Responses {
    pub(crate) unread: Vec<u8>,
}

impl Responses {
    /// The next response, if all of it is there. `is_head`: it belongs to a HEAD request.
    pub(crate) fn take(&mut self, is_head: bool) -> Option<Answer> {
        let end = self
            .unread
            .windows(4)
            .position(|four| four == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&self.unread[..end]).expect("a head is text");
        let mut lines = head.split("\r\n");
        let status_line = lines.next().unwrap();
        let rest = status_line.strip_prefix("HTTP/1.1 ").expect(status_line);
        let status: u16 = rest[..3].parse().expect(status_line);
        let (mut length, mut says_close, mut has_date) = (0, false, false);
        let mut is_chunked = false;
        for line in lines {
            let (name, value) = line.split_once(": ").expect(line);
            match name {
                "Content-Length" => length = value.parse().expect(line),
                "Connection" => says_close = value == "close",
                "Transfer-Encoding" => is_chunked = value == "chunked",
                "Date" => has_date = true,
                _ => {}
            }
        }
        assert!(has_date || status < 200, "{head}");
        let has_body = !is_head && status >= 200;
        let behind = &self.unread[end + 4..];
        let (body, body_bytes) = match (has_body, is_chunked) {
            (false, _) => (Vec::new(), 0),
            (true, true) => dechunked(behind)?,
            (true, false) => (behind.get(..length)?.to_vec(), length),
        };
        self.unread.drain(..end + 4 + body_bytes);
        Some(Answer {
            status,
            body,
            says_close,
        })
    }
}

/// The body whose chunks `bytes` begins with and how long those are; `None` if some are missing.
fn dechunked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line_len = bytes[at..].windows(2).position(|two| two == b"\r\n")?;
        let line = std::str::from_utf8(&bytes[at..at + line_len]).expect("a chunk's size is text");
        let size = usize::from_str_radix(line, 16).expect(line);
        at += line_len + 2;
        let data = bytes.get(at..at + size + 2)?;
        assert_eq!(&data[size..], b"\r\n", "a chunk's end");
        at += size + 2;
        if size == 0 {
            return Some((body, at));
        }
        body.extend_from_slice(&data[..size]);
    }
}

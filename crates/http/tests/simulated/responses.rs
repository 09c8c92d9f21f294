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
    /// The next response, if all of it is there. `is_head`: it answers a HEAD request.
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
        for line in lines {
            let (name, value) = line.split_once(": ").expect(line);
            match name {
                "Content-Length" => length = value.parse().expect(line),
                "Connection" => says_close = value == "close",
                "Date" => has_date = true,
                _ => {}
            }
        }
        assert!(has_date || status < 200, "{head}");
        if is_head || status < 200 {
            length = 0;
        }
        let whole = end + 4 + length;
        if self.unread.len() < whole {
            return None;
        }
        let body = self.unread[end + 4..whole].to_vec();
        self.unread.drain(..whole);
        Some(Answer {
            status,
            body,
            says_close,
        })
    }
}

//! The `Server` and `Date` lines of every response, written once a second, behind the status line
//! of the most frequent response; and the rest of that response's head, as long as it stays the same.
//!
//! On the path: `server` refreshes it at the first event of a new second; `encode` copies it.

use crate::head_text::FieldValue;
use httpdate::HttpDate;
use std::io::Write;
use std::ptr;
use std::time::SystemTime;

const SECOND_NS: u64 = 1_000_000_000;
const OK_LINE: &str = "HTTP/1.1 200 OK\r\n";
const SERVER_LINE: &str = "Server: millpond\r\n";
const LINES: &str = "Server: millpond\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
const LINES_END: usize = OK_LINE.len() + LINES.len();
/// The longest content type that is worth remembering.
const CONTENT_TYPE_BYTES_MAX: usize = 100;
/// Digits of the largest `usize`.
const DIGITS_MAX: usize = 20;
const TEXT_BYTES: usize = LINES_END
    + "Content-Type: \r\nContent-Length: \r\n\r\n".len()
    + CONTENT_TYPE_BYTES_MAX
    + DIGITS_MAX;

/// Which of these lines a service wrote itself: its own stand in their place.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct GivenLines {
    pub(crate) server: bool,
    pub(crate) date: bool,
}

impl GivenLines {
    pub(crate) const NONE: Self = Self {
        server: false,
        date: false,
    };
}

/// Lines that stand in every response head, and the last 200 OK's whole head.
#[derive(Clone, Debug)]
pub(crate) struct StandingLines {
    /// The status line, the lines, what else was in the last head, and what is left of longer ones.
    text: [u8; TEXT_BYTES],
    /// Where the last head ends.
    head_end: usize,
    content_type: Option<FieldValue<'static>>,
    content_length: usize,
    /// Monotonic time from which the text is too old.
    stale_from_ns: u64,
}

impl StandingLines {
    pub(crate) fn new() -> Self {
        let mut lines = Self {
            text: [b' '; TEXT_BYTES],
            head_end: LINES_END,
            content_type: None,
            content_length: 0,
            stale_from_ns: 0,
        };
        lines.write(SystemTime::now());
        lines.write_head_end(None, 0);
        lines
    }

    /// Asks the wall clock at most once a second; otherwise one comparison.
    #[inline]
    pub(crate) fn refresh(&mut self, now_ns: u64) {
        if now_ns >= self.stale_from_ns {
            let wall_clock = SystemTime::now();
            self.write(wall_clock);
            let into_second_ns = wall_clock
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |since| u64::from(since.subsec_nanos()));
            self.stale_from_ns = now_ns + SECOND_NS - into_second_ns;
        }
    }

    #[cold]
    fn write(&mut self, wall_clock: SystemTime) {
        let date = HttpDate::from(wall_clock);
        let mut rest = &mut self.text[..LINES_END];
        // Cannot fail: an HTTP date has one length, which `LINES_END` was measured with.
        let written = write!(rest, "{OK_LINE}Server: millpond\r\nDate: {date}\r\n");
        debug_assert!(written.is_ok() && rest.is_empty());
    }

    /// The lines, without those that were given.
    #[inline]
    pub(crate) fn lines(&self, given: GivenLines) -> &[u8] {
        let server_end = OK_LINE.len() + SERVER_LINE.len();
        let begin = if given.server {
            server_end
        } else {
            OK_LINE.len()
        };
        let end = if given.date { server_end } else { LINES_END };
        &self.text[begin..end]
    }

    /// The `Date` line alone, for answers whose other lines are somebody else's.
    #[inline]
    pub(crate) fn date_line(&self) -> &[u8] {
        &self.text[OK_LINE.len() + SERVER_LINE.len()..LINES_END]
    }

    /// The status line of 200 OK and the lines, so that one copy writes both.
    #[inline]
    pub(crate) fn after_ok(&self) -> &[u8] {
        &self.text[..LINES_END]
    }

    /// The whole head of a 200 OK without further fields, which keeps the connection. One copy
    /// writes it; it is put together only when it differs from the last. `None` for a content type
    /// that is too long.
    #[inline]
    pub(crate) fn ok_head(
        &mut self,
        content_type: Option<FieldValue<'static>>,
        content_length: usize,
    ) -> Option<&[u8]> {
        // Comparing where the texts lie is enough: neither changes.
        let place = |text: Option<FieldValue<'static>>| {
            let text = text.map(FieldValue::as_bytes);
            let text = text.map_or(ptr::slice_from_raw_parts(ptr::null(), 0), ptr::from_ref);
            (text.cast::<u8>(), text.len())
        };
        let is_same_type = place(self.content_type) == place(content_type);
        if !is_same_type || self.content_length != content_length {
            if content_type.is_some_and(|text| text.len() > CONTENT_TYPE_BYTES_MAX) {
                return None;
            }
            self.write_head_end(content_type, content_length);
        }
        self.text.get(..self.head_end)
    }

    #[inline(never)]
    fn write_head_end(&mut self, content_type: Option<FieldValue<'static>>, content_length: usize) {
        self.head_end = LINES_END;
        if let Some(content_type) = content_type {
            self.push_all([b"Content-Type: ", content_type.as_bytes(), b"\r\n"]);
        }
        let mut digits = itoa::Buffer::new();
        let length = digits.format(content_length).as_bytes();
        self.push_all([b"Content-Length: ", length, b"\r\n\r\n"]);
        self.content_type = content_type;
        self.content_length = content_length;
    }

    fn push_all(&mut self, parts: [&[u8]; 3]) {
        for part in parts {
            let end = self.head_end + part.len();
            self.text[self.head_end..end].copy_from_slice(part);
            self.head_end = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Goal: the line is the RFC's example for the RFC's example time, byte for byte.
    #[test]
    fn the_date_is_an_imf_fixdate() {
        let mut lines = StandingLines::new();
        lines.write(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
        let given = |server, date| GivenLines { server, date };
        assert_eq!(lines.lines(GivenLines::NONE), LINES.as_bytes());
        assert_eq!(lines.lines(given(true, false)), lines.date_line());
        assert_eq!(lines.lines(given(false, true)), SERVER_LINE.as_bytes());
        assert_eq!(lines.lines(given(true, true)), b"");
        assert_eq!(lines.after_ok(), [OK_LINE, LINES].concat().as_bytes());
        let head = lines
            .ok_head(Some(FieldValue::from_static("a/b")), 12)
            .unwrap();
        let end = "Content-Type: a/b\r\nContent-Length: 12\r\n\r\n";
        assert_eq!(head, [OK_LINE, LINES, end].concat().as_bytes());
    }

    /// Goal: whatever the head before was like, and whenever the date changes, a head is the one
    /// that was asked for; the longest fits.
    #[test]
    fn a_remembered_head_is_no_other() {
        let mut lines = StandingLines::new();
        let longest = FieldValue::known(&[b'x'; CONTENT_TYPE_BYTES_MAX]);
        let too_long = FieldValue::known(&[b'x'; CONTENT_TYPE_BYTES_MAX + 1]);
        let types = [None, Some(FieldValue::TEXT_PLAIN), Some(longest), None];
        let lengths = [0, 9, 10, usize::MAX, 7];
        let mut second = 0;
        for content_type in types {
            for (content_length, repeats) in lengths.into_iter().zip([1, 2, 3, 1, 2]) {
                for _ in 0..repeats {
                    second += 1;
                    lines.refresh(second * 2 * SECOND_NS);
                    let after_ok = lines.after_ok().to_vec();
                    let head = lines.ok_head(content_type, content_length).unwrap();
                    let mut expected = after_ok;
                    if let Some(text) = content_type {
                        expected.extend([b"Content-Type: ", text.as_bytes(), b"\r\n"].concat());
                    }
                    write!(expected, "Content-Length: {content_length}\r\n\r\n").unwrap();
                    assert_eq!(head, expected);
                    assert_eq!(lines.ok_head(Some(too_long), 1), None);
                }
            }
        }
    }

    /// Goal: within one second the text is reused, after it the wall clock is asked again.
    #[test]
    fn refresh_rewrites_only_a_stale_text() {
        let mut lines = StandingLines::new();
        lines.refresh(SECOND_NS);
        lines.text[0] = b'#';
        lines.refresh(SECOND_NS);
        assert_eq!(lines.after_ok()[0], b'#');
        lines.refresh(3 * SECOND_NS);
        assert_eq!(lines.after_ok()[0], b'H');
    }
}

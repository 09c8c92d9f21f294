//! The `Server` and `Date` lines of every response, written once a second, behind the status line
//! of the most frequent response.
//!
//! On the path: `server` refreshes it at the first event of a new second; `encode` copies it.

use httpdate::HttpDate;
use std::io::Write;
use std::time::SystemTime;

const SECOND_NS: u64 = 1_000_000_000;
const OK_LINE: &str = "HTTP/1.1 200 OK\r\n";
const LINES: &str = "Server: millpond\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
const TEXT_BYTES: usize = OK_LINE.len() + LINES.len();

/// Lines that stand in every response head.
#[derive(Clone, Debug)]
pub(crate) struct StandingLines {
    text: [u8; TEXT_BYTES],
    /// Monotonic time from which the text is too old.
    stale_from_ns: u64,
}

impl StandingLines {
    pub(crate) fn new() -> Self {
        let mut lines = Self {
            text: [b' '; TEXT_BYTES],
            stale_from_ns: 0,
        };
        lines.write(SystemTime::now());
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
        let mut rest = &mut self.text[..];
        // Cannot fail: an HTTP date has one length, which `TEXT_BYTES` was measured with.
        let written = write!(rest, "{OK_LINE}Server: millpond\r\nDate: {date}\r\n");
        debug_assert!(written.is_ok() && rest.is_empty());
    }

    /// The lines.
    #[inline]
    pub(crate) fn lines(&self) -> &[u8] {
        &self.text[OK_LINE.len()..]
    }

    /// The status line of 200 OK and the lines, so that one copy writes both.
    #[inline]
    pub(crate) fn after_ok(&self) -> &[u8; TEXT_BYTES] {
        &self.text
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
        assert_eq!(lines.lines(), LINES.as_bytes());
        assert_eq!(lines.after_ok()[..], *[OK_LINE, LINES].concat().as_bytes());
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

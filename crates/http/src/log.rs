//! The server's log: every line on stderr goes through here.
//!
//! One process has one stderr, so format and level are the process's, set once at the start. Shards do not log while
//! they serve: they count frequent events, and `serve/event_watch.rs` logs the counts; [`CountedEvent`] keeps a lasting
//! event from filling a disk.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fmt, ptr};

use httpdate::HttpDate;
use millpond_io::{ServiceManager, ServiceState};

use crate::access_log::entry::Moment;
use crate::head_text::FieldValue;

/// How much a line matters.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub enum LogLevel {
    /// An operator has to act.
    Error,
    /// Peers or limits keep the server from serving some clients.
    Warn,
    /// Its own actions: where it listens, that it stops.
    Info,
    /// Faults of peers.
    Debug,
}

/// Format of the lines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LogFormat {
    /// `millpond: ` and a sentence.
    #[default]
    Text,
    /// One JSON object a line: `time`, `level`, `message`; of what happens often also `event` and
    /// `count`.
    Json,
}

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);
static FORMAT: AtomicU8 = AtomicU8::new(LogFormat::Text as u8);

/// Sets format and level for the rest of the process.
pub fn configure(format: LogFormat, level: LogLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    FORMAT.store(format as u8, Ordering::Relaxed);
}

/// The service manager's line about this process.
struct StatusLine {
    manager: ServiceManager,
    /// Its name in lines without an error.
    status: String,
}

static STATUS_LINE: Mutex<Option<StatusLine>> = Mutex::new(None);

/// Errors are shown in the manager's status line from now on, behind `status`, with their time.
pub(crate) fn show_errors_to(manager: &ServiceManager, status: &str) {
    let line = StatusLine {
        manager: manager.clone(),
        status: status.to_owned(),
    };
    *STATUS_LINE.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
}

/// No longer.
pub(crate) fn show_errors_to_no_manager() {
    *STATUS_LINE.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// The last error stays in the status line after it is over: so its time is written there.
fn show_error(message: &str) {
    let line = STATUS_LINE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(line) = &*line {
        let status = status_with_error(&line.status, unix_ms(), message);
        line.manager.tell(ServiceState::Failing { status: &status });
    }
}

fn status_with_error(status: &str, unix_ms: u64, message: &str) -> String {
    let mut time = Vec::new();
    Moment::of_unix_ms(unix_ms).write_iso(&mut time);
    let time = String::from_utf8_lossy(&time);
    let message = message.trim_end().replace(char::is_control, " ");
    format!("{status}; last error at {time}: {message}")
}

/// Logs panics of any thread from now on, with the place, and with a backtrace where `RUST_BACKTRACE` asks for one. For
/// programs: the hook is the process's.
pub fn write_panics() {
    std::panic::set_hook(Box::new(|info| write(LogLevel::Error, PanicLine(info))));
}

struct PanicLine<'a>(&'a PanicHookInfo<'a>);

impl fmt::Display for PanicLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        let payload = self.0.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        write!(f, "thread {name} panicked")?;
        if let Some(place) = self.0.location() {
            write!(f, " at {place}")?;
        }
        write!(f, ": {}", text.unwrap_or("(not a text)"))?;
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            write!(f, "\n{backtrace}")?;
        }
        Ok(())
    }
}

/// Writes a line, if its level is wanted.
pub fn write(level: LogLevel, message: impl fmt::Display) {
    write_with(level, None, message);
}

/// Writes a line about an event of a kind that has a name, and how often it was.
pub(crate) fn write_event(
    level: LogLevel,
    event: &'static str,
    count: u64,
    message: impl fmt::Display,
) {
    write_with(level, Some((event, count)), message);
}

fn write_with(level: LogLevel, event: Option<(&str, u64)>, message: impl fmt::Display) {
    if level as u8 <= LEVEL.load(Ordering::Relaxed) {
        let text = match level {
            LogLevel::Error => format!("millpond: error: {message}\n"),
            LogLevel::Warn => format!("millpond: warning: {message}\n"),
            LogLevel::Info | LogLevel::Debug => format!("millpond: {message}\n"),
        };
        put(level, text, event, &message);
        if level == LogLevel::Error {
            show_error(&message.to_string());
        }
    }
}

/// Writes a text requested with a signal, whatever the level, unchanged.
pub(crate) fn write_table(table: &str) {
    put(LogLevel::Info, table.to_owned(), None, table);
}

/// The last message of a program: written whatever the level, and in text without the level, since the exit status
/// shows it.
pub fn write_last(message: impl fmt::Display) {
    let text = format!("millpond: {message}\n");
    put(LogLevel::Error, text, None, message);
}

/// `text` is for people, the rest for programs.
fn put(level: LogLevel, text: String, event: Option<(&str, u64)>, message: impl fmt::Display) {
    let is_json = FORMAT.load(Ordering::Relaxed) == LogFormat::Json as u8;
    let line = match is_json {
        true => json_line(unix_ms(), level, event, &message.to_string()),
        false => text.into_bytes(),
    };
    // In one write, so that lines of several threads do not mix. If stderr is closed the line is lost.
    let _ = std::io::stderr().write_all(&line);
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

fn json_line(unix_ms: u64, level: LogLevel, event: Option<(&str, u64)>, message: &str) -> Vec<u8> {
    let mut line = b"{\"time\":\"".to_vec();
    Moment::of_unix_ms(unix_ms).write_iso(&mut line);
    line.extend_from_slice(b"\",\"level\":\"");
    line.extend_from_slice(level.to_string().as_bytes());
    line.push(b'"');
    if let Some((name, count)) = event {
        // Writing to a Vec cannot fail.
        let _ = write!(line, ",\"event\":\"{name}\",\"count\":{count}");
    }
    line.extend_from_slice(b",\"message\":");
    write_json_text(&mut line, message.trim_end());
    line.extend_from_slice(b"}\n");
    line
}

/// Writes a text as a JSON string.
pub(crate) fn write_json_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for character in text.chars() {
        // Writing to a Vec cannot fail.
        let _ = match character {
            '"' | '\\' => write!(out, "\\{character}"),
            '\n' => write!(out, "\\n"),
            control if control.is_control() => write!(out, "\\u{:04x}", u32::from(control)),
            character => write!(out, "{character}"),
        };
    }
    out.push(b'"');
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        })
    }
}

impl std::str::FromStr for LogLevel {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "error" => Ok(Self::Error),
            "warn" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "debug" => Ok(Self::Debug),
            _ => Err("it is error, warn, info or debug"),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

impl std::str::FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("it is text or json"),
        }
    }
}

/// An event that may go on for long: logged when it begins, and then once a minute with its count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Repeated {
    /// When it was last logged, while it goes on.
    told_ns: Option<u64>,
    untold_count: u64,
}

/// The lines due for an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EventNotice {
    /// It begins: so often so far.
    First(u64),
    /// It went on.
    More {
        /// Count since it was last logged.
        count: u64,
        /// So long ago.
        seconds: u64,
    },
}

impl Repeated {
    const INTERVAL_NS: u64 = 60_000_000_000;

    /// It happened `count` times since the last call, which may be none.
    pub(crate) fn add(&mut self, count: u64, now_ns: u64) -> Option<EventNotice> {
        self.untold_count += count;
        let silent_ns = match self.told_ns {
            None if self.untold_count == 0 => return None,
            None => {
                self.told_ns = Some(now_ns);
                return Some(EventNotice::First(std::mem::take(&mut self.untold_count)));
            }
            Some(told_ns) => now_ns.saturating_sub(told_ns),
        };
        if silent_ns < Self::INTERVAL_NS {
            return None;
        }
        if self.untold_count == 0 {
            self.told_ns = None;
            return None;
        }
        self.told_ns = Some(now_ns);
        Some(EventNotice::More {
            count: std::mem::take(&mut self.untold_count),
            seconds: silent_ns / 1_000_000_000,
        })
    }
}

impl EventNotice {
    /// As a line of the log. `sentence`: what happened, and the remedy.
    pub(crate) fn write(self, level: LogLevel, event: &'static str, sentence: &str) {
        write_event(level, event, self.count(), self.line(sentence));
    }

    fn count(self) -> u64 {
        match self {
            Self::First(count) | Self::More { count, .. } => count,
        }
    }

    fn line(self, sentence: &str) -> String {
        let count = Grouped(self.count());
        match self {
            Self::First(_) => format!("{sentence}: {count}"),
            Self::More { seconds, .. } => {
                format!("{sentence}: {count} more in the last {seconds} s")
            }
        }
    }
}

/// An event that threads only count: a thread that reads the count now and then writes a line when it begins to grow,
/// then once a minute with how much more there was, until it stops.
#[derive(Debug)]
pub struct CountedEvent {
    level: LogLevel,
    name: &'static str,
    sentence: &'static str,
    seen_count: u64,
    repeated: Repeated,
}

impl CountedEvent {
    /// `name` is the `event` of lines in JSON; `sentence`: what happened, and the remedy.
    #[must_use]
    pub fn new(level: LogLevel, name: &'static str, sentence: &'static str) -> Self {
        Self {
            level,
            name,
            sentence,
            seen_count: 0,
            repeated: Repeated::default(),
        }
    }

    /// The count is `count` now.
    pub fn look(&mut self, count: u64, now_ns: u64) {
        if let Some(told) = self.told(count, now_ns) {
            told.write(self.level, self.name, self.sentence);
        }
    }

    pub(crate) fn told(&mut self, count: u64, now_ns: u64) -> Option<EventNotice> {
        let grown = count.saturating_sub(self.seen_count);
        self.seen_count = count;
        self.repeated.add(grown, now_ns)
    }
}

/// A count as a person reads it: `1,234`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouped(pub(crate) u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

// The `Server` and `Date` lines of every response, written once a second, behind the status line
// of the most frequent response; and the rest of that response's head, as long as it stays the same.

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

/// Which of these lines a service wrote itself: they replace ours.
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

/// Lines of every response head, and the last 200 OK's whole head.
#[derive(Clone, Debug)]
pub(crate) struct FixedHeaderLines {
    /// The status line, the lines, what else was in the last head, and what is left of longer ones.
    text: [u8; TEXT_BYTES],
    /// Where the last head ends.
    head_end: usize,
    content_type: Option<FieldValue<'static>>,
    content_length: usize,
    /// Monotonic time from which the text is too old.
    stale_from_ns: u64,
}

impl FixedHeaderLines {
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

    /// The `Date` line alone, for responses whose other lines come from another server.
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
#[path = "tests/log.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/date.rs"]
mod date_tests;

//! One line of the access log, before it is text: numbers, and bytes as the peer sent them.
//!
//! The shard packs an entry into the words of a record, the writer unpacks it. Texts are cut to a bound here, and
//! marked as cut, so a peer cannot decide how much room an entry takes.

use std::io::Write;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use millpond_io::Peer;

use crate::head::{HeadFields, RequestHead, Version};
use crate::proxy::Failure;

use super::ring::{HEADER_WORDS, Header, Record, TEXTS};
use super::{Fault, Relayed};

/// Longest method and target together.
const LINE_BYTES_MAX: usize = 2048;
/// Longest Referer.
const REFERER_BYTES_MAX: usize = 1024;
/// Longest User-Agent.
const USER_AGENT_BYTES_MAX: usize = 512;

/// Longest Host. Names are at most 253 bytes long, with a port 259.
const HOST_BYTES_MAX: usize = 260;
/// Longest traceparent: 55 bytes in the version there is, and room for a later one.
const TRACEPARENT_BYTES_MAX: usize = 128;

/// Texts of the request; the text after them is the note about its outcome.
pub(super) const REQUEST_TEXTS: usize = TEXTS - 1;

/// Longest text of one entry.
pub(super) const TEXT_BYTES_MAX: usize = LINE_BYTES_MAX
    + REFERER_BYTES_MAX
    + USER_AGENT_BYTES_MAX
    + HOST_BYTES_MAX
    + TRACEPARENT_BYTES_MAX;

/// The status of a request whose connection closed before any response, as in nginx.
pub(crate) const STATUS_CLOSED: u16 = 499;

/// Properties of an entry, one bit each.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Flags(u16);

impl Flags {
    const IS_COMPLETE: u16 = 1;
    const HAS_REFERER: u16 = 1 << 1;
    const HAS_USER_AGENT: u16 = 1 << 2;
    const IS_HTTP_10: u16 = 1 << 3;
    const IS_HTTP_11: u16 = 1 << 4;
    /// The first of five: one for each text.
    const IS_CUT: u16 = 1 << 5;
    const HAS_TRACEPARENT: u16 = 1 << 10;

    fn has(self, bit: u16) -> bool {
        self.0 & bit != 0
    }

    fn with(self, bit: u16, is_set: bool) -> Self {
        Self(if is_set { self.0 | bit } else { self.0 })
    }
}

/// Texts of the request: method and target, Referer, User-Agent, Host, traceparent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestText<'a> {
    pub(super) texts: [&'a [u8]; REQUEST_TEXTS],
    pub(super) flags: Flags,
}

impl<'a> RequestText<'a> {
    /// Of a head that was accepted.
    pub(crate) fn of_head(head: &RequestHead, head_bytes: &'a [u8], fields: &HeadFields) -> Self {
        let line = &head_bytes[head.method_token.start()..head.target.end()];
        let mut found = [None; 3];
        for field in fields.spans() {
            let name = field.name.of(head_bytes);
            let place = match name.len() {
                7 if name.eq_ignore_ascii_case(b"referer") => 0,
                10 if name.eq_ignore_ascii_case(b"user-agent") => 1,
                11 if name.eq_ignore_ascii_case(b"traceparent") => 2,
                _ => continue,
            };
            found[place].get_or_insert(field.value.of(head_bytes));
        }
        let [referer, user_agent, traceparent] = found;
        let is_old = head.version == Version::Http10;
        let flags = Flags::default()
            .with(Flags::IS_HTTP_10, is_old)
            .with(Flags::IS_HTTP_11, !is_old)
            .with(Flags::HAS_REFERER, referer.is_some())
            .with(Flags::HAS_USER_AGENT, user_agent.is_some())
            .with(Flags::HAS_TRACEPARENT, traceparent.is_some());
        let [referer, user_agent, traceparent] = found.map(Option::unwrap_or_default);
        let host = head.authority.of(head_bytes);
        Self::cut([line, referer, user_agent, host, traceparent], flags)
    }

    /// Of bytes that are no head, or not a whole one: their first line.
    pub(crate) fn of_line(bytes: &'a [u8]) -> Self {
        let bytes = bytes.strip_prefix(b"\r\n").unwrap_or(bytes);
        let end = memchr::memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len());
        Self::cut([&bytes[..end], &[], &[], &[], &[]], Flags::default())
    }

    fn cut(texts: [&'a [u8]; REQUEST_TEXTS], mut flags: Flags) -> Self {
        const LIMITS: [usize; REQUEST_TEXTS] = [
            LINE_BYTES_MAX,
            REFERER_BYTES_MAX,
            USER_AGENT_BYTES_MAX,
            HOST_BYTES_MAX,
            TRACEPARENT_BYTES_MAX,
        ];
        let mut index = 0;
        let texts = texts.map(|text| {
            let limit = LIMITS[index];
            flags = flags.with(Flags::IS_CUT << index, text.len() > limit);
            index += 1;
            &text[..text.len().min(limit)]
        });
        Self { texts, flags }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RequestEnd {
    pub(crate) status: u16,
    /// The whole response was written.
    pub(crate) is_complete: bool,
    /// When the head was complete, on the shards' clock.
    pub(crate) started_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) body_bytes: u64,
}

/// The origin of a request: a connection, and which of its requests this is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) peer: Peer,
    /// From 1 in each shard; 0: it never became a connection.
    pub(crate) connection: u64,
    /// From 1 in each connection.
    pub(crate) request: u32,
}

pub(super) fn pack(asker: &Asker, text: &RequestText<'_>, outcome: &RequestEnd) -> Header {
    let flags = text.flags.with(Flags::IS_COMPLETE, outcome.is_complete);
    let (address, port) = match asker.peer {
        Peer::Inet(SocketAddr::V4(v4)) => (v4.ip().to_ipv6_mapped().to_bits(), v4.port()),
        Peer::Inet(SocketAddr::V6(v6)) => (v6.ip().to_bits(), v6.port()),
        Peer::Unix => (0, 0),
    };
    let is_unix = u64::from(asker.peer == Peer::Unix);
    [
        u64::from(outcome.status) | u64::from(flags.0) << 16,
        outcome.started_ns,
        outcome.duration_ns,
        outcome.body_bytes,
        asker.connection,
        u64::from(asker.request) | u64::from(port) << 32 | is_unix << 48,
        address as u64,
        (address >> 64) as u64,
        // The ring's.
        0,
        0,
    ]
}

/// A record as an entry again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) asker: Asker,
    pub(super) outcome: RequestEnd,
    /// `None`: it was not passed on.
    pub(super) relayed: Option<Relayed>,
    text: RequestText<'a>,
}

/// A text of an entry, and whether its end is missing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct CutText<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) is_cut: bool,
}

impl<'a> Entry<'a> {
    pub(super) fn unpack(record: &'a Record) -> Self {
        let header: &[u64; HEADER_WORDS] = &record.header;
        let flags = Flags((header[0] >> 16) as u16);
        let address = u128::from(header[7]) << 64 | u128::from(header[6]);
        let (port, is_unix) = ((header[5] >> 32) as u16, header[5] >> 48 != 0);
        let address = SocketAddrV6::new(Ipv6Addr::from_bits(address), port, 0, 0);
        Self {
            asker: Asker {
                peer: match is_unix {
                    true => Peer::Unix,
                    false => Peer::Inet(address.into()),
                },
                connection: header[4],
                request: header[5] as u32,
            },
            outcome: RequestEnd {
                status: header[0] as u16,
                is_complete: flags.has(Flags::IS_COMPLETE),
                started_ns: header[1],
                duration_ns: header[2],
                body_bytes: header[3],
            },
            relayed: Relayed::unpack(record.text(REQUEST_TEXTS)),
            text: RequestText {
                texts: std::array::from_fn(|index| record.text(index)),
                flags,
            },
        }
    }

    /// The peer's address and port; an IPv4 one as such, however it came.
    pub(super) fn address(&self) -> Option<(IpAddr, u16)> {
        match self.asker.peer {
            Peer::Inet(address) => Some((address.ip().to_canonical(), address.port())),
            Peer::Unix => None,
        }
    }

    /// Method and target, or the first line of what was no request.
    pub(super) fn line(&self) -> CutText<'a> {
        self.cut_text(0)
    }

    /// The rest of the line after the target.
    pub(super) fn version(&self) -> &'static str {
        match self.text.flags {
            flags if flags.has(Flags::IS_HTTP_11) => " HTTP/1.1",
            flags if flags.has(Flags::IS_HTTP_10) => " HTTP/1.0",
            _ => "",
        }
    }

    pub(super) fn referer(&self) -> Option<CutText<'a>> {
        let flags = self.text.flags;
        flags.has(Flags::HAS_REFERER).then(|| self.cut_text(1))
    }

    pub(super) fn user_agent(&self) -> Option<CutText<'a>> {
        let flags = self.text.flags;
        flags.has(Flags::HAS_USER_AGENT).then(|| self.cut_text(2))
    }

    /// Host and port that the request was for.
    pub(super) fn host(&self) -> Option<CutText<'a>> {
        Some(self.cut_text(3)).filter(|host| !host.bytes.is_empty())
    }

    /// The trace that the request belongs to, as W3C Trace Context has it.
    pub(super) fn traceparent(&self) -> Option<CutText<'a>> {
        let flags = self.text.flags;
        flags.has(Flags::HAS_TRACEPARENT).then(|| self.cut_text(4))
    }

    fn cut_text(&self, index: usize) -> CutText<'a> {
        CutText {
            bytes: self.text.texts[index],
            is_cut: self.text.flags.has(Flags::IS_CUT << index),
        }
    }
}

// Entries as lines of text: combined, which every log tool reads, or JSON.
//
// Bytes from a peer are written in one way only, the same in both formats: printable ASCII as it is, every other byte,
// the quote and the backslash as `\xHH`. So a peer cannot end a line or a field, send commands to a terminal, or
// imitate other bytes, and a tool can split a line into fields without knowing the escapes. A text that was cut ends in
// `\...`, which no escaped byte produces.

/// Format of the lines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AccessLogFormat {
    /// Apache's and nginx's `combined`.
    #[default]
    Combined,
    /// The same, and behind it the host, the trace and how long it took.
    CombinedExtended,
    /// `combined`, and behind it what became of a request that was passed on.
    CombinedUpstream,
    /// One JSON object a line.
    Json,
}

impl std::str::FromStr for AccessLogFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "combined" => Ok(Self::Combined),
            "combined-extended" => Ok(Self::CombinedExtended),
            "combined-upstream" => Ok(Self::CombinedUpstream),
            "json" => Ok(Self::Json),
            _ => Err("it is combined, combined-extended, combined-upstream or json"),
        }
    }
}

impl std::fmt::Display for AccessLogFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Combined => "combined",
            Self::CombinedExtended => "combined-extended",
            Self::CombinedUpstream => "combined-upstream",
            Self::Json => "json",
        })
    }
}

/// Appends an entry as a line. `unix_ms` is when it started.
pub(super) fn write_line(
    out: &mut Vec<u8>,
    format: AccessLogFormat,
    entry: &Entry<'_>,
    shard: usize,
    unix_ms: u64,
) {
    let moment = Moment::of_unix_ms(unix_ms);
    match format {
        AccessLogFormat::Combined => write_combined(out, entry, &moment),
        AccessLogFormat::CombinedExtended => {
            write_combined(out, entry, &moment);
            write_quoted(out, entry.host());
            write_quoted(out, entry.traceparent());
            out.push(b' ');
            write_number(out, entry.outcome.duration_ns / 1000);
        }
        AccessLogFormat::CombinedUpstream => {
            write_combined(out, entry, &moment);
            write_combined_upstream(out, entry);
        }
        AccessLogFormat::Json => write_json(out, entry, shard, &moment),
    }
    out.push(b'\n');
}

fn write_combined(out: &mut Vec<u8>, entry: &Entry<'_>, moment: &Moment) {
    write_peer(out, entry);
    out.extend_from_slice(b" - - [");
    moment.write_combined(out);
    out.extend_from_slice(b"] \"");
    write_request_line(out, entry, b"\\");
    out.extend_from_slice(b"\" ");
    write_number(out, u64::from(entry.outcome.status));
    out.push(b' ');
    write_number(out, entry.outcome.body_bytes);
    write_quoted(out, entry.referer());
    write_quoted(out, entry.user_agent());
}

/// A field in quotes; `-` for one that was not sent.
fn write_quoted(out: &mut Vec<u8>, text: Option<CutText<'_>>) {
    out.extend_from_slice(b" \"");
    match text {
        Some(text) => write_text(out, text, b"\\"),
        None => out.push(b'-'),
    }
    out.push(b'"');
}

/// Six more fields: the name, tries, three times in microseconds, the side at fault.
fn write_combined_upstream(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let Some(relayed) = &entry.relayed else {
        out.extend_from_slice(b" \"-\" - - - - -");
        return;
    };
    if relayed.name().is_empty() {
        out.extend_from_slice(b" \"-\" - - - - ");
        return out.extend_from_slice(relayed.fault.map_or("-", Fault::as_str).as_bytes());
    }
    out.extend_from_slice(b" \"");
    write_text(out, whole(relayed.name()), b"\\");
    out.push(b'"');
    for value in [
        u32::from(relayed.tries),
        relayed.connect_us,
        relayed.first_byte_us,
        relayed.total_us,
    ] {
        out.push(b' ');
        write_number(out, u64::from(value));
    }
    out.push(b' ');
    out.extend_from_slice(relayed.fault.map_or("-", Fault::as_str).as_bytes());
}

fn write_json_upstream(out: &mut Vec<u8>, relayed: &Relayed) {
    if relayed.name().is_empty() {
        out.extend_from_slice(b",\"upstream\":null");
    } else {
        out.extend_from_slice(b",\"upstream\":\"");
        write_text(out, whole(relayed.name()), b"\\\\");
        out.push(b'"');
    }
    for (name, value) in [
        ("tries", u32::from(relayed.tries)),
        ("connect_us", relayed.connect_us),
        ("first_byte_us", relayed.first_byte_us),
        ("upstream_us", relayed.total_us),
    ] {
        write_json_number(out, name, u64::from(value));
    }
    for (name, word) in [
        ("fault", relayed.fault.map(Fault::as_str)),
        ("error", relayed.failure.map(Failure::error)),
        ("cause", relayed.failure.map(Failure::cause)),
        ("detail", relayed.failure.map(Failure::sentence)),
    ] {
        write_json_word(out, name, word);
    }
}

/// A constant string of this crate, which needs no escapes.
fn write_json_word(out: &mut Vec<u8>, name: &str, word: Option<&str>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    match word {
        Some(word) => {
            out.push(b'"');
            out.extend_from_slice(word.as_bytes());
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }
}

fn whole(bytes: &[u8]) -> CutText<'_> {
    CutText {
        bytes,
        is_cut: false,
    }
}

fn write_json(out: &mut Vec<u8>, entry: &Entry<'_>, shard: usize, moment: &Moment) {
    out.extend_from_slice(b"{\"time\":\"");
    moment.write_iso(out);
    out.extend_from_slice(b"\",\"peer\":\"");
    write_peer(out, entry);
    out.push(b'"');
    let (asker, outcome) = (&entry.asker, &entry.outcome);
    for (name, value) in [
        (
            "port",
            entry.address().map_or(0, |(_, port)| u64::from(port)),
        ),
        ("shard", shard as u64),
        ("connection", asker.connection),
        ("request_number", u64::from(asker.request)),
    ] {
        write_json_number(out, name, value);
    }
    out.extend_from_slice(b",\"request\":\"");
    write_request_line(out, entry, b"\\\\");
    out.push(b'"');
    write_json_number(out, "status", u64::from(outcome.status));
    write_json_number(out, "body_bytes", outcome.body_bytes);
    write_json_number(out, "duration_us", outcome.duration_ns / 1000);
    out.extend_from_slice(match outcome.is_complete {
        true => b",\"complete\":true",
        false => b",\"complete\":false",
    });
    for (name, text) in [
        ("referer", entry.referer()),
        ("user_agent", entry.user_agent()),
        ("host", entry.host()),
        ("traceparent", entry.traceparent()),
    ] {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        match text {
            Some(text) => {
                out.push(b'"');
                write_text(out, text, b"\\\\");
                out.push(b'"');
            }
            None => out.extend_from_slice(b"null"),
        }
    }
    if let Some(relayed) = &entry.relayed {
        write_json_upstream(out, relayed);
    }
    out.push(b'}');
}

fn write_json_number(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    write_number(out, value);
}

fn write_number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn write_peer(out: &mut Vec<u8>, entry: &Entry<'_>) {
    // Writing to a Vec cannot fail.
    let _ = match entry.address() {
        Some((address, _)) => write!(out, "{address}"),
        None => write!(out, "unix:"),
    };
}

/// The line as it was sent; `-` for a peer that sent nothing.
fn write_request_line(out: &mut Vec<u8>, entry: &Entry<'_>, backslash: &[u8]) {
    let line = entry.line();
    match line.bytes {
        [] => out.push(b'-'),
        _ => write_text(out, line, backslash),
    }
    out.extend_from_slice(entry.version().as_bytes());
}

/// A peer's bytes; `backslash` is how the format writes one.
fn write_text(out: &mut Vec<u8>, text: CutText<'_>, backslash: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    let mut rest = text.bytes;
    while let Some(at) = rest.iter().position(|&byte| !is_plain(byte)) {
        let byte = rest[at];
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(backslash);
        let digits = [
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ];
        out.extend_from_slice(&[b'x', digits[0], digits[1]]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    if text.is_cut {
        out.extend_from_slice(backslash);
        out.extend_from_slice(b"...");
    }
}

// Moments as a log writes them: always UTC, so that a line means the same everywhere.

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAY_S: u64 = 86_400;

/// A moment of the calendar.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Moment {
    pub(crate) year: u64,
    /// From 1.
    pub(crate) month: u64,
    pub(crate) day: u64,
    pub(crate) hour: u64,
    pub(crate) minute: u64,
    pub(crate) second: u64,
    pub(crate) millisecond: u64,
}

impl Moment {
    /// From milliseconds since 1970. Counts years from March, so that the leap day is the last.
    pub(crate) fn of_unix_ms(unix_ms: u64) -> Self {
        let unix_s = unix_ms / 1000;
        let (days, second_of_day) = (unix_s / DAY_S, unix_s % DAY_S);
        // Days since 1 March of the year 0; an era of 400 years has 146,097 of them.
        let days = days + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = match month_from_march {
            0..10 => month_from_march + 3,
            _ => month_from_march - 9,
        };
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
            millisecond: unix_ms % 1000,
        }
    }

    /// `22/Nov/2026:06:18:36 +0000`
    pub(super) fn write_combined(&self, out: &mut Vec<u8>) {
        two(out, self.day);
        out.push(b'/');
        out.extend_from_slice(MONTHS[self.month as usize - 1].as_bytes());
        out.push(b'/');
        four(out, self.year);
        out.push(b':');
        self.write_time(out);
        out.extend_from_slice(b" +0000");
    }

    /// `2026-11-22T06:18:36.123Z`
    pub(crate) fn write_iso(&self, out: &mut Vec<u8>) {
        four(out, self.year);
        out.push(b'-');
        two(out, self.month);
        out.push(b'-');
        two(out, self.day);
        out.push(b'T');
        self.write_time(out);
        out.push(b'.');
        out.push(b'0' + (self.millisecond / 100) as u8);
        two(out, self.millisecond % 100);
        out.push(b'Z');
    }

    fn write_time(&self, out: &mut Vec<u8>) {
        two(out, self.hour);
        out.push(b':');
        two(out, self.minute);
        out.push(b':');
        two(out, self.second);
    }
}

fn two(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&[b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8]);
}

fn four(out: &mut Vec<u8>, value: u64) {
    two(out, value / 100);
    two(out, value % 100);
}

#[cfg(test)]
#[path = "tests/calendar.rs"]
mod calendar_tests;

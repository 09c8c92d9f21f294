//! One line of the access log, before it is text: numbers, and bytes as the peer sent them.
//!
//! On the path: the shard packs an entry into the words of a record, the writer unpacks it.
//! Texts are cut to a bound here, and marked, so that no peer decides how much room it takes.

use super::relayed::Relayed;
use super::ring::{HEADER_WORDS, Header, Record, TEXTS};
use crate::head::{HeadFields, RequestHead, Version};
use millpond_io::Peer;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Longest method and target together.
const LINE_BYTES_MAX: usize = 2048;
/// Longest Referer.
const REFERER_BYTES_MAX: usize = 1024;
/// Longest User-Agent.
const USER_AGENT_BYTES_MAX: usize = 512;

/// Texts that a request says of itself; the one behind them is the note of what became of it.
pub(super) const REQUEST_TEXTS: usize = TEXTS - 1;

/// Longest text of one entry.
pub(super) const TEXT_BYTES_MAX: usize = LINE_BYTES_MAX + REFERER_BYTES_MAX + USER_AGENT_BYTES_MAX;

/// The status of a request whose connection closed before any answer, as nginx has it.
pub(crate) const STATUS_CLOSED: u16 = 499;

/// What is true of an entry, one bit each.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Flags(u16);

impl Flags {
    const IS_COMPLETE: u16 = 1;
    const HAS_REFERER: u16 = 1 << 1;
    const HAS_USER_AGENT: u16 = 1 << 2;
    const IS_HTTP_10: u16 = 1 << 3;
    const IS_HTTP_11: u16 = 1 << 4;
    /// The first of three: line, Referer, User-Agent.
    const IS_CUT: u16 = 1 << 5;

    fn has(self, bit: u16) -> bool {
        self.0 & bit != 0
    }

    fn with(self, bit: u16, is_set: bool) -> Self {
        Self(if is_set { self.0 | bit } else { self.0 })
    }
}

/// What a request says of itself: method and target, Referer, User-Agent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestText<'a> {
    pub(super) texts: [&'a [u8]; REQUEST_TEXTS],
    pub(super) flags: Flags,
}

impl<'a> RequestText<'a> {
    /// Of a head that was accepted.
    pub(crate) fn of_head(head: &RequestHead, head_bytes: &'a [u8], fields: &HeadFields) -> Self {
        let line = &head_bytes[head.method_token.start()..head.target.end()];
        let mut found = [None; 2];
        for field in fields.spans() {
            let name = field.name.of(head_bytes);
            let place = match name.len() {
                7 if name.eq_ignore_ascii_case(b"referer") => 0,
                10 if name.eq_ignore_ascii_case(b"user-agent") => 1,
                _ => continue,
            };
            found[place].get_or_insert(field.value.of(head_bytes));
        }
        let [referer, user_agent] = found;
        let is_old = head.version == Version::Http10;
        let flags = Flags::default()
            .with(Flags::IS_HTTP_10, is_old)
            .with(Flags::IS_HTTP_11, !is_old)
            .with(Flags::HAS_REFERER, referer.is_some())
            .with(Flags::HAS_USER_AGENT, user_agent.is_some());
        Self::cut(
            [line, referer.unwrap_or(&[]), user_agent.unwrap_or(&[])],
            flags,
        )
    }

    /// Of bytes that are no head, or not a whole one: their first line.
    pub(crate) fn of_line(bytes: &'a [u8]) -> Self {
        let bytes = bytes.strip_prefix(b"\r\n").unwrap_or(bytes);
        let end = memchr::memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len());
        Self::cut([&bytes[..end], &[], &[]], Flags::default())
    }

    fn cut(texts: [&'a [u8]; REQUEST_TEXTS], mut flags: Flags) -> Self {
        let limits = [LINE_BYTES_MAX, REFERER_BYTES_MAX, USER_AGENT_BYTES_MAX];
        let mut index = 0;
        let texts = texts.map(|text| {
            let limit = limits[index];
            flags = flags.with(Flags::IS_CUT << index, text.len() > limit);
            index += 1;
            &text[..text.len().min(limit)]
        });
        Self { texts, flags }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) status: u16,
    /// The whole answer was written.
    pub(crate) is_complete: bool,
    /// When the head was complete, on the shards' clock.
    pub(crate) started_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) body_bytes: u64,
}

/// Who asked: a connection, and which of its requests this is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) peer: Peer,
    /// From 1 in each shard; 0: it never became a connection.
    pub(crate) connection: u64,
    /// From 1 in each connection.
    pub(crate) request: u32,
}

pub(super) fn pack(asker: &Asker, text: &RequestText<'_>, outcome: &Outcome) -> Header {
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
        0,
    ]
}

/// A record as an entry again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) asker: Asker,
    pub(super) outcome: Outcome,
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
            outcome: Outcome {
                status: header[0] as u16,
                is_complete: flags.has(Flags::IS_COMPLETE),
                started_ns: header[1],
                duration_ns: header[2],
                body_bytes: header[3],
            },
            relayed: Relayed::unpack(record.text(REQUEST_TEXTS)),
            text: RequestText {
                texts: [record.text(0), record.text(1), record.text(2)],
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

    /// What follows the target.
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

    fn cut_text(&self, index: usize) -> CutText<'a> {
        CutText {
            bytes: self.text.texts[index],
            is_cut: self.text.flags.has(Flags::IS_CUT << index),
        }
    }
}

//! A client's request head, written anew for an upstream.
//!
//! `service` writes it once per request into a pooled buffer, from the parsed head and never from
//! raw bytes: one request line, one Host, the fields that are between client and server, and what
//! the proxy adds. The framing fields are the client's (`http::client`) to add, from what was
//! parsed, so that no reading of these bytes but ours reaches the upstream.
//!
//! Values are copied as they were checked; nothing is formatted, and room is reserved once.

#[cfg(test)]
#[path = "tests/request_head.rs"]
mod tests;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::str::FromStr;

use millpond_mempool::{BlockPool, Buffer, PoolError};

use crate::head::{Framing, HeadFields, Version};
use crate::head_text::{Authority, Field, FieldName, FieldValue};
use crate::method::Method;
use crate::request::Request;
use crate::scan::is_token;

use super::answering::may_pass;
use super::client_peer::ClientPeer;
use super::response_head::FieldChanges;
use super::response_head::{FieldRule, Nominated, welcomes_trailers};
use super::service::UpgradeProtocols;

/// Which fields describe the client to upstreams.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ForwardedFields {
    /// `Forwarded` (RFC 7239).
    pub standard: bool,
    /// `X-Forwarded-For`, `-Proto` and `-Host`.
    pub x: bool,
}

impl Default for ForwardedFields {
    fn default() -> Self {
        Self {
            standard: true,
            x: true,
        }
    }
}

/// No such choice.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is no choice of fields: write both, standard, x or none")]
pub struct ForwardedFieldsError {
    text: String,
}

impl FromStr for ForwardedFields {
    type Err = ForwardedFieldsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (standard, x) = match text {
            "both" => (true, true),
            "standard" => (true, false),
            "x" => (false, true),
            "none" => (false, false),
            _ => {
                return Err(ForwardedFieldsError {
                    text: text.to_owned(),
                });
            }
        };
        Ok(Self { standard, x })
    }
}

impl fmt::Display for ForwardedFields {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match (self.standard, self.x) {
            (true, true) => "both",
            (true, false) => "standard",
            (false, true) => "x",
            (false, false) => "none",
        })
    }
}

/// A head that is ready for an upstream that gets the client's Host: every try may go to one with another name.
#[derive(Debug)]
pub(super) struct OutgoingHead {
    /// The request line, Host, the other fields.
    bytes: Buffer,
    /// Where the name in Host begins and ends.
    host: Range<usize>,
}

impl OutgoingHead {
    /// The head for one try, with room for what frames its body. `host`: instead of the client's,
    /// or where there was none.
    pub(super) fn with_host(
        &self,
        blocks: &BlockPool,
        host: Authority<'_>,
    ) -> Result<Buffer, PoolError> {
        let mut head = Buffer::new();
        let room_bytes = self.bytes.len() + host.len() + FRAMING_BYTES_MAX;
        head.reserve(blocks, room_bytes)?;
        if host == self.client_host() {
            head.append_within_capacity(&self.bytes);
        } else {
            let (line, fields) = (&self.bytes[..self.host.start], &self.bytes[self.host.end..]);
            head.append_all_within_capacity([line, host.as_bytes(), fields]);
        }
        Ok(head)
    }

    /// The head of a request whose target is in the origin's form and whose fields were written
    /// before: see [`Self::fields`].
    pub(super) fn of_known_fields(
        blocks: &BlockPool,
        request: &Request<'_>,
        written: &[u8],
        host_bytes: usize,
    ) -> Result<Self, PoolError> {
        let (method, target) = (request.method_token(), request.target().as_bytes());
        let mut bytes = Buffer::new();
        bytes.extend_from_slices(blocks, [method, b" ", target, LINE_END_AND_HOST, written])?;
        let host_start = bytes.len() - written.len();
        Ok(Self {
            bytes,
            host: host_start..host_start + host_bytes,
        })
    }

    /// These lines.
    #[cfg(test)]
    pub(super) fn of_lines(blocks: &BlockPool, lines: &str) -> Self {
        let mut bytes = Buffer::with_capacity(blocks, lines.len()).unwrap();
        bytes.append_within_capacity(lines.as_bytes());
        Self { bytes, host: 0..0 }
    }

    /// All from the name in Host on, and how long that name is.
    pub(super) fn fields(&self) -> (&[u8], usize) {
        (&self.bytes[self.host.start..], self.host.len())
    }

    /// Whether a field of this name is among those that go to the upstream. Searches all lines.
    pub(super) fn has_field(&self, name: &str) -> bool {
        let lines = self.bytes.split(|&byte| byte == b'\n').skip(1);
        lines
            .filter_map(|line| line.split(|&byte| byte == b':').next())
            .any(|found| found.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// The protocol that the upstream is asked to change to: in the last line, where there is one.
    pub(super) fn asked_protocol(&self) -> Option<&[u8]> {
        let lines = self.bytes.strip_suffix(b"\r\n")?;
        let last = memchr::memrchr(b'\n', lines)? + 1;
        lines[last..].strip_prefix(b"Upgrade: ")
    }

    /// The client's target; may be empty.
    pub(super) fn client_host(&self) -> Authority<'_> {
        Authority::known(&self.bytes[self.host.clone()])
    }
}

/// Maximum length of the fields that `http::client` appends.
const FRAMING_BYTES_MAX: usize = 64;

/// Fields the proxy adds to the client's own.
pub(super) struct RequestWay<'a> {
    pub(super) via_name: &'a ViaName,
    /// `None`: not known.
    pub(super) client: Option<&'a ClientPeer>,
    pub(super) is_tls: bool,
    pub(super) fields: ForwardedFields,
    /// The protocol that the client wants and the proxy lets it have.
    pub(super) upgrade: Option<FieldValue<'a>>,
    /// Already one less.
    pub(super) max_forwards: Option<u32>,
    pub(super) changes: &'a FieldChanges,
}

/// The protocol that a request wants to change to, if it may: a request with a body would leave it
/// open where the other protocol begins.
pub(super) fn wanted_protocol<'h>(
    request: &Request<'h>,
    nominated: &Nominated<'h>,
    allowed: &UpgradeProtocols,
) -> Option<FieldValue<'h>> {
    let may = nominated.has_upgrade
        && request.version() == Version::Http11
        && request.head.framing == Framing::None
        && request.method == Method::Get;
    may.then(|| allowed.first_of(request)).flatten()
}

/// Everything added by the proxy, without what depends on the request.
const ADDED_BYTES_MAX: usize = 512;

/// Writes the head of `request`.
pub(super) fn encode_request_head(
    blocks: &BlockPool,
    request: &Request<'_>,
    nominated: &Nominated<'_>,
    way: &RequestWay<'_>,
) -> Result<OutgoingHead, PoolError> {
    // Every line may grow by the space behind its colon; the host is written up to three times.
    let own_bytes = 3 * request.authority().len() + way.changes.lines().len() + ADDED_BYTES_MAX;
    let bytes_max = request.bytes.len() + 2 * request.fields.len() + own_bytes;
    let mut bytes = Buffer::new();
    bytes.reserve(blocks, bytes_max)?;
    let mut writer = HeadWriter {
        output: &mut bytes,
        head: request.bytes,
        fields: request.fields,
    };
    write_request_line(writer.output, request);
    let host_start = writer.output.len();
    writer.put(request.authority().as_bytes());
    let host = host_start..writer.output.len();
    writer.put(b"\r\n");
    let seen = writer.write_passed_on(request, nominated, way);
    writer.write_own(request, way, seen);
    writer.put(way.changes.lines());
    if request.head.expects_continue {
        writer.put(b"Expect: 100-continue\r\n");
    }
    if seen.te_trailers && request.version() == Version::Http11 && way.upgrade.is_none() {
        writer.put(b"TE: trailers\r\n");
        writer.put(b"Connection: TE\r\n");
    }
    if let Some(protocol) = way.upgrade {
        writer.put(b"Connection: Upgrade\r\n");
        writer.write_line((FieldName::UPGRADE, protocol));
    }
    Ok(OutgoingHead { bytes, host })
}

/// Which of the fields that the proxy writes itself the client, or a trusted proxy before, has sent.
#[derive(Clone, Copy, Default)]
struct Seen {
    via: bool,
    forwarded: bool,
    forwarded_for: bool,
    forwarded_proto: bool,
    forwarded_host: bool,
    /// The client takes trailers.
    te_trailers: bool,
}

impl Seen {
    fn has_x(self) -> bool {
        self.forwarded_proto || self.forwarded_host
    }

    fn note(&mut self, rule: FieldRule, is_trusted: bool) {
        match rule {
            FieldRule::Via => self.via = true,
            FieldRule::Forwarded => self.forwarded |= is_trusted,
            FieldRule::ForwardedFor => self.forwarded_for |= is_trusted,
            FieldRule::ForwardedProto => self.forwarded_proto |= is_trusted,
            FieldRule::ForwardedHost => self.forwarded_host |= is_trusted,
            _ => {}
        }
    }
}

/// Behind the target: our version, and the name of the first field.
const LINE_END_AND_HOST: &[u8] = b" HTTP/1.1\r\nHost: ";

/// Origin form whatever came, or `*` (RFC 9112 3.2); and the name of the field behind it.
fn write_request_line(output: &mut Buffer, request: &Request<'_>) {
    let target = request.target().as_bytes();
    let is_asterisk = target == b"*"
        || request.method == Method::Options
            && !target.starts_with(b"/")
            && request.head.path.is_empty()
            && request.query().is_none();
    let path = if is_asterisk { b"*" } else { request.path() };
    let (mark, query): (&[u8], &[u8]) = match request.query() {
        Some(query) => (b"?", query),
        None => (b"", b""),
    };
    let method = request.method_token();
    let parts = [method, b" ", path, mark, query, LINE_END_AND_HOST];
    output.append_all_within_capacity(parts);
}

const MAX_FORWARDS: FieldName<'_> = FieldName::from_static("Max-Forwards");
const X_FORWARDED_PROTO: FieldName<'_> = FieldName::from_static("X-Forwarded-Proto");
const X_FORWARDED_HOST: FieldName<'_> = FieldName::from_static("X-Forwarded-Host");

/// A head being written into room that is there.
struct HeadWriter<'a> {
    output: &'a mut Buffer,
    head: &'a [u8],
    fields: &'a HeadFields,
}

impl HeadWriter<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.output.append_within_capacity(bytes);
    }

    fn write_line(&mut self, (name, value): Field<'_>) {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        self.output
            .append_all_within_capacity([name, b": ", value, b"\r\n"]);
    }

    /// The client's own fields.
    fn write_passed_on(
        &mut self,
        request: &Request<'_>,
        nominated: &Nominated<'_>,
        way: &RequestWay<'_>,
    ) -> Seen {
        let is_trusted = way.client.is_some_and(|client| client.is_trusted);
        let framing = request.head.framing;
        let mut seen = Seen::default();
        for field in request.fields.spans() {
            let (name, value) = field.received(request.bytes);
            let rule = FieldRule::of(name.as_bytes());
            let is_nominated = nominated.has(name.as_bytes());
            // Fields for this connection alone are treated as absent (RFC 9110 7.6.1).
            seen.note(rule, is_trusted && !is_nominated);
            let passes = match rule {
                FieldRule::PassOn | FieldRule::Date => {
                    !is_nominated && !way.changes.drops(name.as_bytes())
                }
                FieldRule::ForwardedProto
                | FieldRule::ForwardedHost
                | FieldRule::ForwardedOther => is_trusted && !is_nominated,
                FieldRule::MaxForwards => way.max_forwards.is_none(),
                FieldRule::Trailer => may_pass(framing, nominated) && !is_nominated,
                FieldRule::Te => {
                    seen.te_trailers |= welcomes_trailers(value.as_bytes());
                    false
                }
                FieldRule::Via
                | FieldRule::Forwarded
                | FieldRule::ForwardedFor
                | FieldRule::Drop
                | FieldRule::Connection
                | FieldRule::Host => false,
            };
            if passes {
                self.write_line((name, value));
            }
        }
        seen
    }

    /// One line, with the earlier members in front: a list that is spread over several lines is the same list, but not
    /// every server handles it.
    fn begin_list(&mut self, name: &[u8], rule: FieldRule, has_earlier: bool) {
        self.put(name);
        self.put(b": ");
        if !has_earlier {
            return;
        }
        let (head, fields) = (self.head, self.fields);
        for field in fields.spans() {
            if FieldRule::of(field.name.of(head)) != rule || field.value.is_empty() {
                continue;
            }
            let value = field.value.of(head);
            match rule {
                // There is room: the name of this line is not written again, and is as long as what a
                // malformed element becomes.
                FieldRule::Forwarded => self.put_sound_elements(value),
                _ => self.put(value),
            }
            self.put(b", ");
        }
    }

    fn put_sound_elements(&mut self, value: &[u8]) {
        for (index, element) in sound_elements(value).enumerate() {
            if index > 0 {
                self.put(b",");
            }
            self.put(element);
        }
    }

    /// Fields about the proxy and about the client.
    fn write_own(&mut self, request: &Request<'_>, way: &RequestWay<'_>, seen: Seen) {
        let is_first = !(seen.via || seen.forwarded || seen.forwarded_for || seen.has_x());
        let says_all = way.fields == ForwardedFields::default() && way.max_forwards.is_none();
        match way.client {
            Some(client) if is_first && says_all && !request.authority().is_empty() => {
                self.write_own_at_once(request, way, client);
            }
            _ => self.write_own_by_parts(request, way, seen),
        }
    }

    /// For nearly all requests: no proxy before has added any.
    fn write_own_at_once(
        &mut self,
        request: &Request<'_>,
        way: &RequestWay<'_>,
        client: &ClientPeer,
    ) {
        let via: &[u8] = match request.version() {
            Version::Http11 => b"Via: 1.1 ",
            Version::Http10 => b"Via: 1.0 ",
        };
        let [before_host, before_last]: [&[u8]; 2] = match way.is_tls {
            true => [
                b";proto=https;host=\"",
                b"\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: ",
            ],
            false => [
                b";proto=http;host=\"",
                b"\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: ",
            ],
        };
        let (text, quotes, authority) = (
            client.text(),
            client.quotes(),
            request.authority().as_bytes(),
        );
        self.output.append_all_within_capacity([
            via,
            way.via_name.as_bytes(),
            b"\r\nForwarded: for=",
            quotes[0],
            text,
            quotes[1],
            before_host,
            authority,
            b"\"\r\nX-Forwarded-For: ",
            text,
            before_last,
            authority,
            b"\r\n",
        ]);
    }

    fn write_own_by_parts(&mut self, request: &Request<'_>, way: &RequestWay<'_>, seen: Seen) {
        self.begin_list(b"Via", FieldRule::Via, seen.via);
        self.put(match request.version() {
            Version::Http11 => b"1.1 ",
            Version::Http10 => b"1.0 ",
        });
        self.put(way.via_name.as_bytes());
        self.put(b"\r\n");
        let proto: &[u8] = if way.is_tls { b"https" } else { b"http" };
        if let Some(max_forwards) = way.max_forwards {
            let mut digits = itoa::Buffer::new();
            let left = FieldValue::known(digits.format(max_forwards).as_bytes());
            self.write_line((MAX_FORWARDS, left));
        }
        let (client, quotes): (&[u8], [&[u8]; 2]) = match way.client {
            Some(client) => (client.text(), client.quotes()),
            None => (b"unknown", [b"", b""]),
        };
        if way.fields.standard || seen.forwarded {
            self.begin_list(b"Forwarded", FieldRule::Forwarded, seen.forwarded);
            self.put(b"for=");
            self.output
                .append_all_within_capacity([quotes[0], client, quotes[1]]);
            self.put(b";proto=");
            self.put(proto);
            if !request.authority().is_empty() {
                // Quoted, because of the colon before a port: no host has a quote or a backslash.
                self.put(b";host=\"");
                self.put(request.authority().as_bytes());
                self.put(b"\"");
            }
            self.put(b"\r\n");
        }
        if way.fields.x || seen.forwarded_for {
            self.begin_list(
                b"X-Forwarded-For",
                FieldRule::ForwardedFor,
                seen.forwarded_for,
            );
            self.put(client);
            self.put(b"\r\n");
        }
        if way.fields.x && !seen.forwarded_proto {
            self.write_line((X_FORWARDED_PROTO, FieldValue::known(proto)));
        }
        if way.fields.x && !seen.forwarded_host && !request.authority().is_empty() {
            let host = FieldValue::known(request.authority().as_bytes());
            self.write_line((X_FORWARDED_HOST, host));
        }
    }
}

// The name by which a proxy recognizes itself in `Via` (RFC 9110 7.6.3), and requests that it has passed on before.
//
// A proxy that is its own upstream, or one of a ring, would pass a request on until descriptors run out. Each proxy
// writes a name that no other one has into the `Via` of requests, and responds with 508 to a request that has its name
// already.

const NAME_BYTES: usize = "millpond-".len() + 16;

/// `millpond-` and 64 random bits in hexadecimal digits: one of each [`super::ProxyControl`], for all its
/// shards.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ViaName([u8; NAME_BYTES]);

impl ViaName {
    /// One that no other proxy has.
    pub(super) fn random() -> Self {
        // Keyed anew from the system's random numbers.
        Self::of_bits(RandomState::new().build_hasher().finish())
    }

    pub(super) fn of_bits(bits: u64) -> Self {
        let mut name = [0; NAME_BYTES];
        name.copy_from_slice(format!("millpond-{bits:016x}").as_bytes());
        Self(name)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the request has this name in any of its `Via` lines: the proxy has passed it on before.
    pub(super) fn is_in(&self, request: &Request<'_>) -> bool {
        request.fields.spans().iter().any(|field| {
            FieldRule::of(field.name.of(request.bytes)) == FieldRule::Via
                && self.is_listed(field.value.of(request.bytes))
        })
    }

    /// Members are separated by commas, also within comments: a parenthesis that a client has opened and not closed
    /// must not hide the members that proxies have added after it.
    fn is_listed(&self, list: &[u8]) -> bool {
        list.split(|&byte| byte == b',').any(|member| {
            let mut words = member
                .split(|byte| matches!(byte, b' ' | b'\t'))
                .filter(|word| !word.is_empty());
            let _protocol = words.next();
            // Names are compared without regard to case, like hosts, which this name replaces.
            let received_by = words.next();
            received_by.is_some_and(|name| name.eq_ignore_ascii_case(&self.0))
        })
    }
}

// `Forwarded` as it came from a trusted peer (RFC 7239 4): a list that another element is going to follow.
//
// The peer may pass on text from its client. A quote without an end would make our own element a part of that text; so
// malformed elements are replaced.

/// Replaces a malformed element.
pub(super) const UNKNOWN: &[u8] = b"for=unknown";

/// The elements of one field value, with the whitespace around them, without the commas between them. The
/// first malformed one is [`UNKNOWN`] and all others are left out: so a value grows by the length of
/// that at most, however many there are.
pub(super) fn sound_elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    let mut has_unknown = false;
    std::iter::from_fn(move || {
        loop {
            let (element, after) = split_first(rest?);
            rest = after;
            if is_element(element.trim_ascii()) {
                return Some(element);
            }
            if !has_unknown {
                has_unknown = true;
                return Some(UNKNOWN);
            }
        }
    })
}

/// Up to the first comma outside of quotes, and what is behind that; without an end of the quotes, all of it.
fn split_first(value: &[u8]) -> (&[u8], Option<&[u8]>) {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, &byte) in value.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => return (&value[..at], Some(&value[at + 1..])),
            _ => {}
        }
    }
    (value, None)
}

/// `[pair] *(";" [pair])`; empty ones are allowed in a list (RFC 9110 5.6.1).
fn is_element(element: &[u8]) -> bool {
    let mut rest = element;
    loop {
        if let Some(after) = pair_end(rest) {
            rest = after;
        }
        match rest {
            [] => return true,
            [b';', after @ ..] => rest = after,
            _ => return false,
        }
    }
}

/// The rest after the first pair; `None`: it begins with no pair.
fn pair_end(text: &[u8]) -> Option<&[u8]> {
    let token_end = |text: &[u8]| text.iter().position(|&byte| !is_token(byte));
    let name_bytes = token_end(text).filter(|&bytes| bytes > 0)?;
    let value = text[name_bytes..].strip_prefix(b"=")?;
    if let Some(quoted) = value.strip_prefix(b"\"") {
        let mut is_escaped = false;
        let end = quoted.iter().position(|&byte| {
            let is_end = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            is_end
        })?;
        return Some(&quoted[end + 1..]);
    }
    let bytes = token_end(value).unwrap_or(value.len());
    (bytes > 0).then(|| &value[bytes..])
}

#[cfg(test)]
#[path = "tests/via.rs"]
mod via_tests;

#[cfg(test)]
#[path = "tests/forwarded.rs"]
mod forwarded_tests;

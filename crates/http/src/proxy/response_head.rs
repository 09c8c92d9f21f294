//! An upstream's response head, written anew for the client.
//!
//! On the path: `service` calls it when the head of an answer has come; it goes straight into the
//! client's output, framed for the client's version from what was parsed, never copied as a whole.
//! `Date` and `Server` stay the upstream's; a missing `Date` is added (RFC 9110 6.6.1).
//!
//! Absent on purpose: the upstream's word on what becomes of the client's connection, and on trailers
//! where they do not pass (see `trailers`).

use super::failure::Failure;
use super::field_change::FieldChanges;
use super::field_rule::{FieldRule, Nominated};
use super::trailers::may_pass;
use crate::client::AnswerHead;
use crate::encode::Persistence;
use crate::head::{Framing, Version};
use crate::head_text::{Field, FieldName, FieldValue};
use crate::response::Response;
use crate::streaming::Outgoing;
use millpond_mempool::{Buffer, PoolError};

/// Of informational heads, and of 101.
static NO_CHANGES: FieldChanges = FieldChanges::none();

/// Everything added, without what comes from the head.
const ADDED_BYTES_MAX: usize = 256;

/// Why a head was not written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum HeadRefused {
    /// No memory for it.
    Memory(PoolError),
    /// Its `Connection` has more options than any server has use for.
    TooManyOptions,
}

impl HeadRefused {
    /// What the client is told.
    pub(super) fn failure(self) -> Failure {
        match self {
            Self::Memory(_) => Failure::Local,
            Self::TooManyOptions => Failure::BadAnswer,
        }
    }
}

/// Writes the final head of an answer. On failure nothing was written. True: fields behind its body may
/// go on (see `trailers`).
pub(super) fn forward_head(
    response: &mut Response<'_>,
    answer: &AnswerHead<'_>,
    changes: &FieldChanges,
) -> Result<bool, HeadRefused> {
    // More of the request's body may be to come than anybody reads behind an answer.
    response.manner = response.manner.answered();
    let status = answer.status();
    let has_no_body = response.manner.is_head() || status.forbids_body();
    // What the upstream announced of a body that HEAD or 304 leave out is passed on as well.
    let framing = match has_no_body {
        true => answer.head.announced,
        false => answer.framing,
    };
    let (outgoing, length) = match framing {
        Framing::None => (Outgoing::Length { remaining_bytes: 0 }, Some(0)),
        Framing::Length(bytes) => (
            Outgoing::Length {
                remaining_bytes: bytes,
            },
            Some(bytes),
        ),
        _ if response.manner.is_old_version() => (Outgoing::UntilClose, None),
        _ => (Outgoing::Chunked, None),
    };
    if outgoing == Outgoing::UntilClose && !has_no_body {
        response.manner = response.manner.closing();
    }
    let persistence = response.manner.persistence();
    let nominated = nominated(answer)?;
    let passes_trailers = outgoing == Outgoing::Chunked && may_pass(answer.framing, &nominated);
    begin_head(response, answer, &nominated, passes_trailers, changes)?;
    let output = &mut *response.output;
    match length {
        // 204 may not have one (RFC 9110 8.6).
        Some(length) if status.code() != 204 => {
            let mut digits = itoa::Buffer::new();
            let length = digits.format(length).as_bytes();
            output.append_all_within_capacity([b"Content-Length: ", length, b"\r\n"]);
        }
        None if !has_no_body && outgoing == Outgoing::Chunked => {
            output.append_within_capacity(b"Transfer-Encoding: chunked\r\n");
        }
        _ => {}
    }
    output.append_within_capacity(match persistence {
        Persistence::Silent => b"\r\n",
        Persistence::KeepAlive => b"Connection: keep-alive\r\n\r\n",
        Persistence::Close => b"Connection: close\r\n\r\n",
    });
    response.sent = Some(status);
    response.outgoing = match has_no_body {
        true => Outgoing::Bodyless,
        false => outgoing,
    };
    Ok(passes_trailers)
}

/// Writes an informational head, for a client that knows of them. On failure nothing was written.
pub(super) fn forward_informational(
    response: &mut Response<'_>,
    answer: &AnswerHead<'_>,
) -> Result<(), HeadRefused> {
    begin_head(response, answer, &nominated(answer)?, false, &NO_CHANGES)?;
    response.output.append_within_capacity(b"\r\n");
    Ok(())
}

/// Writes the head of 101, after which the connection carries another protocol.
pub(super) fn forward_switch(
    response: &mut Response<'_>,
    answer: &AnswerHead<'_>,
) -> Result<(), HeadRefused> {
    let upgrade = answer.fields().get(FieldName::UPGRADE);
    let protocol = upgrade.unwrap_or(FieldValue::EMPTY);
    begin_head(response, answer, &nominated(answer)?, false, &NO_CHANGES)?;
    let output = &mut *response.output;
    output.append_within_capacity(b"Connection: Upgrade\r\n");
    // Room is there: the field was among those that were dropped.
    write_line(output, (FieldName::UPGRADE, protocol));
    output.append_within_capacity(b"\r\n");
    response.sent = Some(answer.status());
    response.outgoing = Outgoing::Tunnel;
    response.manner = response.manner.closing();
    Ok(())
}

fn nominated<'h>(answer: &AnswerHead<'h>) -> Result<Nominated<'h>, HeadRefused> {
    Nominated::of(answer.bytes, answer.fields).map_err(|_| HeadRefused::TooManyOptions)
}

/// The status line and all fields but those about the connection, in room for the whole head.
fn begin_head(
    response: &mut Response<'_>,
    answer: &AnswerHead<'_>,
    nominated: &Nominated<'_>,
    passes_trailers: bool,
    changes: &FieldChanges,
) -> Result<(), HeadRefused> {
    let (bytes, fields) = (answer.bytes, answer.fields);
    let bytes_max = bytes.len() + 2 * fields.len() + changes.lines().len() + ADDED_BYTES_MAX;
    let reserved = response.output.reserve(response.blocks, bytes_max);
    reserved.map_err(HeadRefused::Memory)?;
    let output = &mut *response.output;
    let mut digits = itoa::Buffer::new();
    let status = digits.format(answer.status().code()).as_bytes();
    let reason = answer.head.reason.of(bytes);
    output.append_all_within_capacity([b"HTTP/1.1 ", status, b" ", reason, b"\r\n"]);
    let mut has_date = false;
    for field in fields.spans() {
        let (name, value) = field.received(bytes);
        let rule = FieldRule::of(name.as_bytes());
        let passes = match rule {
            FieldRule::Drop | FieldRule::Connection | FieldRule::Te => false,
            FieldRule::Trailer => passes_trailers,
            // One is all that an answer has (RFC 9110 5.3): the first.
            FieldRule::Date => !has_date,
            _ => true,
        };
        let passes = passes && !changes.drops(name.as_bytes());
        if passes && !nominated.has(name.as_bytes()) {
            has_date |= rule == FieldRule::Date;
            write_line(output, (name, value));
        }
    }
    output.append_within_capacity(changes.lines());
    if !has_date && !answer.status().is_informational() {
        output.append_within_capacity(response.standing_lines.date_line());
    }
    output.append_within_capacity(match answer.head.version {
        Version::Http11 => b"Via: 1.1 millpond\r\n",
        Version::Http10 => b"Via: 1.0 millpond\r\n",
    });
    Ok(())
}

fn write_line(output: &mut Buffer, (name, value): Field<'_>) {
    let (name, value) = (name.as_bytes(), value.as_bytes());
    output.append_all_within_capacity([name, b": ", value, b"\r\n"]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date::StandingLines;
    use crate::head::{HeadFields, RequestHead};
    use crate::limits::Limits;
    use crate::manner::Manner;
    use crate::method::Method;
    use crate::parse::{Parsed, parse_response_head};
    use millpond_mempool::{BlockPool, PoolMode};
    use proptest::prelude::*;

    /// What the client gets for `text`, and how its body goes on.
    fn rewrite(text: &[u8], method: Method, version: Version) -> Option<(String, Outgoing)> {
        let mut fields = HeadFields::new();
        let parsed = parse_response_head(text, &Limits::default(), &mut fields);
        let Ok(Parsed::Complete(head)) = parsed else {
            return None;
        };
        let answer = AnswerHead {
            bytes: &text[..head.head_bytes],
            head: &head,
            fields: &fields,
            framing: head.framing(method),
        };
        let asked = RequestHead {
            method,
            version,
            keep_alive: version == Version::Http11,
            ..RequestHead::EMPTY
        };
        let blocks = BlockPool::new("test", PoolMode::Off);
        let (mut output, mut standing_lines) = (Buffer::new(), StandingLines::new());
        let mut response = Response {
            output: &mut output,
            blocks: &blocks,
            standing_lines: &mut standing_lines,
            manner: Manner::of(&asked, false),
            sent: None,
            outgoing: Outgoing::Whole,
            failure: None,
            wire: None,
        };
        forward_head(&mut response, &answer, &NO_CHANGES).ok()?;
        let outgoing = response.outgoing;
        Some((String::from_utf8_lossy(&output).into_owned(), outgoing))
    }

    /// Goal: each framing becomes the one that this client knows; HEAD, 204 and 304 have no body.
    #[test]
    fn framing_is_written_for_the_client() {
        const NEW: Version = Version::Http11;
        const OLD: Version = Version::Http10;
        let length = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\n\r\n";
        let chunked = "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n";
        let closing = "HTTP/1.0 200 OK\r\nDate: d\r\n\r\n";
        let empty = "HTTP/1.1 204 No\r\nDate: d\r\nContent-Length: 0\r\n\r\n";
        let same = "HTTP/1.1 304 Same\r\nDate: d\r\nContent-Length: 9\r\n\r\n";
        let known = Outgoing::Length { remaining_bytes: 5 };
        for (text, method, version, expected, outgoing) in [
            (length, Method::Get, NEW, "Content-Length: 5\r\n\r\n", known),
            (
                length,
                Method::Get,
                OLD,
                "Content-Length: 5\r\nConnection: close\r\n\r\n",
                known,
            ),
            (
                length,
                Method::Head,
                NEW,
                "Content-Length: 5\r\n\r\n",
                Outgoing::Bodyless,
            ),
            (
                chunked,
                Method::Get,
                NEW,
                "Transfer-Encoding: chunked\r\n\r\n",
                Outgoing::Chunked,
            ),
            (
                chunked,
                Method::Get,
                OLD,
                "Connection: close\r\n\r\n",
                Outgoing::UntilClose,
            ),
            (chunked, Method::Head, NEW, "\r\n", Outgoing::Bodyless),
            (
                closing,
                Method::Get,
                NEW,
                "Transfer-Encoding: chunked\r\n\r\n",
                Outgoing::Chunked,
            ),
            (empty, Method::Get, NEW, "\r\n", Outgoing::Bodyless),
            (
                same,
                Method::Get,
                NEW,
                "Content-Length: 9\r\n\r\n",
                Outgoing::Bodyless,
            ),
        ] {
            let (head, found) = rewrite(text.as_bytes(), method, version).unwrap();
            let (_, end) = head.split_once("millpond\r\n").unwrap();
            assert_eq!((end, found), (expected, outgoing), "{text}");
        }
    }

    /// Goal: the upstream's Date and Server stay, a missing Date is added, nothing about its
    /// connection goes through.
    #[test]
    fn only_end_to_end_fields_pass() {
        let text = b"HTTP/1.1 404 Gone fishing\r\nServer: s\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\n\
                     Keep-Alive: timeout=5\r\nProxy-Authenticate: p\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\
                     Content-Length: 0\r\n\r\n";
        let (head, _) = rewrite(text, Method::Get, Version::Http11).unwrap();
        let lines: Vec<&str> = head.split("\r\n").collect();
        let expected = [
            "HTTP/1.1 404 Gone fishing",
            "Server: s",
            "Set-Cookie: a",
            "Set-Cookie: b",
        ];
        assert_eq!(lines[..4], expected);
        assert!(
            lines[4].starts_with("Date: ") && lines[4].ends_with("GMT"),
            "{head}"
        );
        assert_eq!(
            lines[5..],
            ["Via: 1.1 millpond", "Content-Length: 0", "", ""]
        );
    }

    /// Goal: of several Date fields the first remains, and one that Connection names is replaced by ours.
    #[test]
    fn one_date_remains() {
        for (fields, expected) in [
            ("Date: a\r\nDate: b\r\ndate: c\r\n", "a"),
            ("Connection: Date\r\nDate: a\r\n", "GMT"),
            ("", "GMT"),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n");
            let (head, _) = rewrite(text.as_bytes(), Method::Get, Version::Http11).unwrap();
            let lines = head.lines();
            let dates: Vec<&str> = lines
                .filter(|line| line.to_lowercase().starts_with("date:"))
                .collect();
            assert!(dates.len() == 1 && dates[0].ends_with(expected), "{head}");
        }
    }

    /// Goal: the names of trailers go where trailers go: in chunks, to those who know of them, unless
    /// Connection names fields.
    #[test]
    fn trailers_are_announced_where_they_pass() {
        for (fields, version, passes) in [
            ("Transfer-Encoding: chunked", Version::Http11, true),
            ("Transfer-Encoding: chunked", Version::Http10, false),
            ("Content-Length: 5", Version::Http11, false),
            ("Connection: close", Version::Http11, false),
            (
                "Connection: TE\r\nTransfer-Encoding: chunked",
                Version::Http11,
                true,
            ),
            (
                "Connection: x-sum\r\nTransfer-Encoding: chunked",
                Version::Http11,
                false,
            ),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\n{fields}\r\n\r\n");
            let (head, _) = rewrite(text.as_bytes(), Method::Get, version).unwrap();
            assert_eq!(head.contains("Trailer: X-Sum\r\n"), passes, "{head}");
        }
    }

    proptest! {
        /// Goal: whatever an upstream sends that is an answer, the client gets one sound head with
        /// the same status, framed as the body will be written.
        #[test]
        fn what_goes_back_is_one_sound_answer(
            lines in proptest::collection::vec("[A-Za-z_-]{1,16}:[ -~]{0,20}\r\n", 0..20),
            framing in proptest::sample::select(vec!["", "Content-Length: 7\r\n", "Transfer-Encoding: chunked\r\n"]),
            code in 200..600_u16,
            is_old in any::<bool>(),
        ) {
            let version = if is_old { Version::Http10 } else { Version::Http11 };
            let text = format!("HTTP/1.1 {code} R\r\n{framing}{}\r\n", lines.concat());
            if let Some((head, outgoing)) = rewrite(text.as_bytes(), Method::Get, version) {
                let mut fields = HeadFields::new();
                let parsed = parse_response_head(head.as_bytes(), &Limits::default(), &mut fields);
                let Ok(Parsed::Complete(parsed)) = parsed else {
                    return Err(TestCaseError::fail(head));
                };
                prop_assert_eq!(parsed.head_bytes, head.len());
                prop_assert_eq!(parsed.status.code(), code);
                let expected = match outgoing {
                    Outgoing::Length { remaining_bytes } => Framing::Length(remaining_bytes),
                    Outgoing::Chunked => Framing::Chunked,
                    Outgoing::UntilClose => Framing::UntilClose,
                    _ => Framing::None,
                };
                prop_assert_eq!(parsed.framing(Method::Get), expected);
            }
        }
    }
}

//! The modes, each with what has to come of it: here, and under wrk, ab and curl.

use crate::server::{Conduct, OK, Start, pause};
use millpond_measure::record::LoadStatus;

/// One way to misbehave, or to behave in a way that clients stumble over.
pub(crate) struct Mode {
    pub(crate) name: &'static str,
    pub(crate) start: Start,
    pub(crate) conduct: Conduct,
    /// Of six requests, one after the other: right responses.
    pub(crate) right: u64,
    /// Failures by kind, as in `read 2, timeout 1`; `refused`: nothing was measured.
    pub(crate) failures: &'static str,
    /// Connections that the server accepted at least: one more is opened where the last response ended one.
    pub(crate) connections: usize,
    pub(crate) verdict: LoadStatus,
    /// A part of the output: the text, or the error where nothing was measured.
    pub(crate) told: &'static str,
    /// Whether some response does not come, so that a timeout has to be short.
    pub(crate) is_silent: bool,
    /// The failures that wrk counts in a second, as in `read, status`; `nothing`: it counted no response.
    pub(crate) wrk: &'static str,
    /// ab's complete and failed requests of six, or its exit status; empty: not the same each time.
    pub(crate) ab: &'static str,
    /// curl's exit status for one request.
    pub(crate) curl: i32,
}

/// A mode that is right everywhere.
const RIGHT: Mode = Mode {
    name: "",
    start: Start::Clear,
    conduct: |_| {},
    right: 6,
    failures: "",
    connections: 1,
    verdict: LoadStatus::Ok,
    told: "Verdict: OK",
    is_silent: false,
    wrk: "",
    ab: "6/0",
    curl: 0,
};

/// One in which no response is right.
const WRONG: Mode = Mode {
    right: 0,
    connections: 6,
    verdict: LoadStatus::Invalid,
    told: "Verdict: INVALID",
    wrk: "read, nothing",
    ..RIGHT
};

/// One in which responses do not come.
const SILENT: Mode = Mode {
    failures: "timeout 6",
    told: "no response within 1000 ms",
    is_silent: true,
    wrk: "nothing",
    ab: "exit 119",
    curl: 28,
    ..WRONG
};

/// One whose handshakes fail.
const NO_HANDSHAKE: Mode = Mode {
    failures: "refused",
    connections: 0,
    told: "the TLS handshake failed",
    wrk: "connect, nothing",
    ab: "6/0",
    curl: 35,
    ..WRONG
};

const CLOSING: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Responses that come late or in pieces.
#[rustfmt::skip]
pub(crate) const TIMING: &[Mode] = &[
    Mode { name: "answers at once", conduct: |talk| talk.serve(), ..RIGHT },
    Mode { name: "takes its time before it reads", conduct: |talk| { pause(); talk.serve() }, ..RIGHT },
    Mode { name: "a late first byte", conduct: |talk| while talk.request() { pause(); talk.send(OK) }, ..RIGHT },
    Mode { name: "a head byte by byte", conduct: |talk| while talk.request() { talk.dribble(&OK[..OK.len() - 2]); talk.send("ok") }, ..RIGHT },
    Mode { name: "a body byte by byte", conduct: |talk| while talk.request() { talk.send(&OK[..OK.len() - 2]); talk.dribble("ok") }, ..RIGHT },
    Mode { name: "a pause in the status line", conduct: |talk| while talk.request() { talk.send(&OK[..9]); pause(); talk.send(&OK[9..]) }, ..RIGHT },
    Mode { name: "a pause between two line ends", conduct: |talk| while talk.request() { talk.send(&OK[..OK.len() - 3]); pause(); talk.send("\nok") }, ..RIGHT },
    Mode { name: "a pause before the body", conduct: |talk| while talk.request() { talk.send(&OK[..OK.len() - 2]); pause(); talk.send("ok") }, ..RIGHT },
    Mode { name: "a pause between chunks", conduct: |talk| while talk.request() { talk.send(CHUNKED); talk.send("1\r\no\r\n"); pause(); talk.send("1\r\nk\r\n0\r\n\r\n") }, ab: "exit 119", ..RIGHT },
    Mode { name: "a pause in a chunk size", conduct: |talk| while talk.request() { talk.send(CHUNKED); talk.send("0"); pause(); talk.send("2\r\nok\r\n0\r\n\r\n") }, ab: "exit 119", ..RIGHT },
    Mode { name: "a pause before the last line end", conduct: |talk| while talk.request() { talk.send(CHUNKED); talk.send("2\r\nok\r\n0\r\n"); pause(); talk.send("\r\n") }, ab: "exit 119", ..RIGHT },
    Mode { name: "chunks byte by byte", conduct: |talk| while talk.request() { talk.send(CHUNKED); talk.dribble("1\r\no\r\n1\r\nk\r\n0\r\n\r\n") }, ab: "exit 119", ..RIGHT },
    Mode { name: "a trailer", conduct: |talk| while talk.request() { talk.send(CHUNKED); talk.send("2\r\nok\r\n0\r\nX: y\r\n\r\n") }, ab: "exit 119", ..RIGHT },
    Mode { name: "a provisional response first", conduct: |talk| while talk.request() { talk.send("HTTP/1.1 100 Continue\r\n\r\n"); pause(); talk.send(OK) }, ab: "exit 119", ..RIGHT },
    Mode { name: "three early hints first", conduct: |talk| while talk.request() { talk.send(&"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(3)); talk.send(OK) }, ab: "exit 119", ..RIGHT },
    Mode { name: "silence", conduct: |talk| talk.until_gone(), ..SILENT },
    Mode { name: "silence within a head", conduct: |talk| { talk.request(); talk.send(&OK[..9]); talk.until_gone() }, ..SILENT },
    Mode { name: "silence before a body", conduct: |talk| { talk.request(); talk.send(&OK[..OK.len() - 2]); talk.until_gone() }, ..SILENT },
    Mode { name: "silence within a body", conduct: |talk| { talk.request(); talk.send(&OK[..OK.len() - 1]); talk.until_gone() }, ..SILENT },
    Mode { name: "silence between chunks", conduct: |talk| { talk.request(); talk.send(CHUNKED); talk.send("1\r\no\r\n"); talk.until_gone() }, ..SILENT },
    Mode { name: "silence after a provisional response", conduct: |talk| { talk.request(); talk.send("HTTP/1.1 100 Continue\r\n\r\n"); talk.until_gone() }, wrk: "", ..SILENT },
    Mode { name: "silence after three responses", conduct: |talk| { for _ in 0..3 { talk.request(); talk.send(OK) } talk.until_gone() }, right: 5, failures: "timeout 1", connections: 2, wrk: "", curl: 0, ..SILENT },
];

/// Connections that end, and how.
#[rustfmt::skip]
pub(crate) const CLOSES: &[Mode] = &[
    Mode { name: "closes after each response and says so", conduct: |talk| { talk.request(); talk.send(CLOSING) }, connections: 6, ..RIGHT },
    Mode { name: "closes after two responses and says so", conduct: |talk| { talk.request(); talk.send(OK); talk.request(); talk.send(CLOSING) }, connections: 3, ..RIGHT },
    Mode { name: "closes a while after it said so", conduct: |talk| { talk.request(); talk.send(CLOSING); pause() }, connections: 6, ..RIGHT },
    Mode { name: "says that it closes and does not", conduct: |talk| { talk.request(); talk.send(CLOSING); talk.until_gone() }, connections: 6, ab: "exit 119", ..RIGHT },
    Mode { name: "HTTP/1.0 with a length", conduct: |talk| { talk.request(); talk.send("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok") }, connections: 6, ..RIGHT },
    Mode { name: "HTTP/1.0 that keeps connections", conduct: |talk| talk.answer_all("HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok"), ..RIGHT },
    Mode { name: "HTTP/1.0 until the close", conduct: |talk| { talk.request(); talk.send("HTTP/1.0 200 OK\r\n\r\nok") }, connections: 6, wrk: "read", ..RIGHT },
    Mode { name: "HTTP/1.1 until the close", conduct: |talk| { talk.request(); talk.send("HTTP/1.1 200 OK\r\n\r\nok") }, connections: 6, wrk: "read", ..RIGHT },
    Mode { name: "until a close that is late", conduct: |talk| { talk.request(); talk.send("HTTP/1.1 200 OK\r\n\r\nok"); pause() }, connections: 6, wrk: "read", ..RIGHT },
    Mode { name: "until a reset", conduct: |talk| { talk.request(); talk.send("HTTP/1.1 200 OK\r\n\r\nok"); pause(); talk.reset() }, failures: "read 6", ab: "exit 104", curl: 56, ..WRONG },
    Mode { name: "closes at the second request", conduct: |talk| { talk.request(); talk.send(OK); talk.request(); }, right: 3, failures: "read 3", connections: 3, wrk: "read", ab: "6/3", ..WRONG },
    Mode { name: "resets at the second request", conduct: |talk| { talk.request(); talk.send(OK); talk.leave_unread() }, right: 3, failures: "read 3", connections: 3, wrk: "read", ab: "exit 104", ..WRONG },
    Mode { name: "closes at the first request", conduct: |talk| { talk.request(); }, failures: "read 6", curl: 52, ..WRONG },
    Mode { name: "resets at the first request", conduct: |talk| talk.leave_unread(), failures: "read 6", ab: "exit 104", curl: 56, ..WRONG },
    Mode { name: "closes in the middle of a body", conduct: |talk| { talk.request(); talk.send(&OK[..OK.len() - 1]) }, failures: "read 6", curl: 18, ..WRONG },
    Mode { name: "resets in the middle of a body", conduct: |talk| { talk.request(); talk.send(&OK[..OK.len() - 1]); pause(); talk.reset() }, failures: "read 6", ab: "exit 104", curl: 56, ..WRONG },
    Mode { name: "the first connection is reset", conduct: |talk| if talk.number == 0 { talk.leave_unread() } else { talk.serve() }, failures: "read 1", right: 5, connections: 2, wrk: "", ab: "exit 104", curl: 56, ..WRONG },
    Mode { name: "the first response is cut", conduct: |talk| if talk.number == 0 { talk.request(); talk.send("HTTP/1.1 2") } else { talk.serve() }, failures: "read 1", right: 5, connections: 2, wrk: "", curl: 52, ab: "", ..WRONG },
    Mode { name: "stops to read and goes on answering", conduct: |talk| { talk.request(); talk.stop_reading(); talk.send(CLOSING) }, connections: 6, ..RIGHT },
];

/// Responses without a request, or with differences.
#[rustfmt::skip]
pub(crate) const ANSWERS: &[Mode] = &[
    Mode { name: "greets in another protocol", conduct: |talk| { talk.send("220 mail.test ESMTP\r\n"); talk.until_gone() }, failures: "framing 6", curl: 1, ab: "exit 119", ..WRONG },
    Mode { name: "two responses to a request", conduct: |talk| while talk.request() { talk.send(&OK.repeat(2)) }, connections: 6, told: "no request had asked for", ..RIGHT },
    Mode { name: "bytes behind a response", conduct: |talk| while talk.request() { talk.send(&[OK, "xyz"].concat()) }, connections: 6, told: "no request had asked for", wrk: "read", ..RIGHT },
    Mode { name: "a line end behind a response", conduct: |talk| while talk.request() { talk.send(&[OK, "\r\n"].concat()) }, connections: 6, told: "no request had asked for", ..RIGHT },
    Mode { name: "no body where none may be", conduct: |talk| talk.answer_all("HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n"), ..RIGHT },
    Mode { name: "not modified, with a length", conduct: |talk| talk.answer_all("HTTP/1.1 304 Not Modified\r\nConnection: keep-alive\r\nContent-Length: 9\r\n\r\n"), wrk: "nothing", ab: "exit 119", ..RIGHT },
    Mode { name: "a body of no bytes", conduct: |talk| talk.answer_all("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n"), ..RIGHT },
    Mode { name: "a redirect", conduct: |talk| talk.answer_all("HTTP/1.1 302 Found\r\nConnection: keep-alive\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n"), ..RIGHT },
    Mode { name: "every response refuses", conduct: |talk| talk.answer_all("HTTP/1.1 503 Busy\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nno"), failures: "status 6", connections: 1, wrk: "status", ..WRONG },
    Mode { name: "every second response refuses", conduct: |talk| while talk.request() { talk.send(OK); if talk.request() { talk.send("HTTP/1.1 503 Busy\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nno") } }, right: 3, failures: "status 3", connections: 1, wrk: "status", ..WRONG },
    Mode { name: "refuses and closes", conduct: |talk| { talk.request(); talk.send("HTTP/1.1 429 Slow Down\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno") }, failures: "status 6", wrk: "status", ..WRONG },
    Mode { name: "bodies of two lengths in turn", conduct: |talk| while talk.request() { talk.send(OK); if talk.request() { talk.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nwow") } }, ab: "6/3", ..RIGHT },
];

/// TLS.
#[rustfmt::skip]
pub(crate) const TLS: &[Mode] = &[
    Mode { name: "TLS that is right", start: Start::Tls, conduct: |talk| talk.serve(), ..RIGHT },
    Mode { name: "TLS, byte by byte", start: Start::Tls, conduct: |talk| while talk.request() { talk.dribble(OK) }, ..RIGHT },
    Mode { name: "TLS that closes and says so in HTTP", start: Start::Tls, conduct: |talk| { talk.request(); talk.send(CLOSING) }, connections: 6, ab: "6/6", ..RIGHT },
    Mode { name: "TLS until an announced close", start: Start::Tls, conduct: |talk| { talk.request(); talk.send("HTTP/1.1 200 OK\r\n\r\nok"); talk.announce_close() }, connections: 6, wrk: "read, nothing", ..RIGHT },
    Mode { name: "TLS until a close that is not announced", start: Start::Tls, conduct: |talk| { talk.request(); talk.send("HTTP/1.1 200 OK\r\n\r\nok") }, connections: 6, wrk: "read, nothing", ab: "6/6", ..RIGHT },
    Mode { name: "TLS that cuts a body", start: Start::Tls, conduct: |talk| { talk.request(); talk.send(&OK[..OK.len() - 1]) }, failures: "read 6", ab: "", curl: 18, ..WRONG },
    Mode { name: "TLS and silence", start: Start::Tls, conduct: |talk| talk.until_gone(), ..SILENT },
    Mode { name: "a certificate for another name", start: Start::OtherName, wrk: "read, nothing", ab: "", curl: 60, told: "its certificate is for another name: give the name that is in it (--sni, or --insecure)", ..NO_HANDSHAKE },
    Mode { name: "an expired certificate", start: Start::Expired, wrk: "read, nothing", ab: "", curl: 60, told: "its certificate has expired or is not valid yet: renew it, or set the clock (or --insecure)", ..NO_HANDSHAKE },
    Mode { name: "a certificate that is not valid yet", start: Start::NotYet, wrk: "read, nothing", ab: "", curl: 60, told: "its certificate has expired or is not valid yet: renew it, or set the clock (or --insecure)", ..NO_HANDSHAKE },
    Mode { name: "a certificate of an unknown authority", start: Start::Unknown, wrk: "read, nothing", ab: "", curl: 60, told: "its certificate is of an unknown authority: name the authority's certificate (--ca, or --insecure)", ..NO_HANDSHAKE },
    Mode { name: "asks for a certificate of the client", start: Start::ClientCertificate, conduct: |talk| talk.serve(), failures: "read 6", ab: "", curl: 56, ..WRONG },
    Mode { name: "a handshake that stalls", start: Start::ClearToTls, conduct: |talk| talk.until_gone(), is_silent: true, told: "no response within 1000 ms", wrk: "nothing", ab: "exit 119", curl: 28, ..NO_HANDSHAKE },
    Mode { name: "closes in the handshake", start: Start::ClearToTls, conduct: |talk| talk.leave_unread(), told: "Connection reset by peer", ..NO_HANDSHAKE },
    Mode { name: "a handshake that is refused", start: Start::ClearToTls, conduct: |talk| { talk.send("\x15\x03\x01\0\x02\x02\x28"); talk.until_gone() }, told: "the TLS handshake failed: it refused with an alert", ..NO_HANDSHAKE },
    Mode { name: "plaintext where TLS is spoken", start: Start::ClearToTls, conduct: |talk| { talk.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"); talk.until_gone() }, told: "the TLS handshake failed: what it sends is no TLS: check scheme and port", ..NO_HANDSHAKE },
    Mode { name: "bytes that are no TLS", start: Start::ClearToTls, conduct: |talk| { talk.send("\x16\x03\x03\x7f\x7f0123456789"); talk.until_gone() }, told: "the TLS handshake failed: what it sends is no TLS: check scheme and port", ..NO_HANDSHAKE },
];

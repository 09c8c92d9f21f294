//! Why a request got no whole response from an upstream: the status for it, the side at fault, and the texts.
//!
//! `service` makes one when a request cannot go on, and responds with it, if the client has received nothing of a
//! response yet. `Proxy-Status` (RFC 9209) carries it for machines, and so do the access log and `/metrics`.
//!
//! No text has anything about the upstream that a client could use: no address, no port.

use std::fmt;

use millpond_io::Errno;
use millpond_io::connection_pool::{AcquireError, AcquirePhase, HandshakeError};
use millpond_mempool::PoolError;

use crate::access_log::Fault;
use crate::client::{ClientError, ExchangeFailure, FailureCause, Phase};
use crate::error::{BodyError, ParseError};
use crate::head_text::{FieldName, FieldValue};
use crate::log;
use crate::log::LogLevel;
use crate::response::Response;
use crate::status::StatusCode;

/// The side at fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    Client,
    Proxy,
    Upstream,
}

/// One row of the table: the texts for a failure.
struct FailureInfo {
    side: Side,
    status: StatusCode,
    /// The label `cause` of metrics.
    cause: &'static str,
    /// The error type of RFC 9209 2.3.
    error: &'static str,
    sentence: &'static str,
    /// The sentence with a line end.
    body: &'static str,
    proxy_status: FieldValue<'static>,
}

/// The enum, and its table, which is checked when this is compiled.
macro_rules! failures {
    ($($(#[$note:meta])* $name:ident: $side:ident $fault:literal, $status:ident, $cause:literal, $error:literal, $sentence:literal;)*) => {
        /// The kind of failure.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[repr(u8)]
        pub(crate) enum Failure {
            $($(#[$note])* $name,)*
        }

        impl Failure {
            /// All of them, in order.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            const fn told(self) -> &'static FailureInfo {
                match self {
                    $(Self::$name => const {
                        &FailureInfo {
                            side: Side::$side,
                            status: StatusCode::$status,
                            cause: $cause,
                            error: $error,
                            sentence: $sentence,
                            body: concat!($sentence, "\n"),
                            proxy_status: FieldValue::from_static(concat!(
                                "millpond; error=", $error, "; details=\"", $sentence, "\"; fault=", $fault
                            )),
                        }
                    },)*
                }
            }
        }
    };
}

failures! {
    /// No upstream may be used: their health checks fail.
    NoneUsable: Upstream "upstream", SERVICE_UNAVAILABLE, "none_usable", "destination_unavailable",
        "no upstream is healthy: try again later";
    /// All that may be used have as many requests as they may.
    Saturated: Proxy "proxy", SERVICE_UNAVAILABLE, "saturated", "connection_limit_reached",
        "all upstreams have as many requests as they may: try again later";
    /// No memory, descriptors or connection here.
    Local: Proxy "proxy", SERVICE_UNAVAILABLE, "local", "proxy_internal_error",
        "the proxy is short of memory or connections: try again later";
    Unresolved: Upstream "upstream", BAD_GATEWAY, "unresolved", "dns_error",
        "the name of the upstream has no address";
    ResolveTimeout: Upstream "upstream", GATEWAY_TIMEOUT, "resolve_timeout", "dns_timeout",
        "the name of the upstream was not resolved in time";
    Refused: Upstream "upstream", BAD_GATEWAY, "refused", "connection_refused",
        "the upstream refused the connection";
    Unreachable: Upstream "upstream", BAD_GATEWAY, "unreachable", "destination_ip_unroutable",
        "the upstream cannot be reached";
    ConnectTimeout: Upstream "upstream", GATEWAY_TIMEOUT, "connect_timeout", "connection_timeout",
        "the upstream did not accept a connection in time";
    CertificateName: Upstream "upstream", BAD_GATEWAY, "certificate_name", "tls_certificate_error",
        "the certificate of the upstream is for another name";
    CertificateAuthority: Upstream "upstream", BAD_GATEWAY, "certificate_authority", "tls_certificate_error",
        "the certificate of the upstream is of an unknown authority";
    CertificateExpired: Upstream "upstream", BAD_GATEWAY, "certificate_expired", "tls_certificate_error",
        "the certificate of the upstream has expired or is not valid yet";
    Certificate: Upstream "upstream", BAD_GATEWAY, "certificate", "tls_certificate_error",
        "the certificate of the upstream is not valid";
    TlsAlert: Upstream "upstream", BAD_GATEWAY, "tls_alert", "tls_alert_received",
        "the upstream refused the TLS handshake";
    NotTls: Upstream "upstream", BAD_GATEWAY, "not_tls", "tls_protocol_error",
        "the upstream does not speak TLS";
    TlsIncompatible: Upstream "upstream", BAD_GATEWAY, "tls_incompatible", "tls_protocol_error",
        "the upstream and the proxy have no version or cipher of TLS in common";
    TlsClosed: Upstream "upstream", BAD_GATEWAY, "tls_closed", "tls_protocol_error",
        "the upstream closed the connection in the TLS handshake";
    TlsFailed: Upstream "upstream", BAD_GATEWAY, "tls", "tls_protocol_error",
        "the TLS handshake with the upstream failed";
    /// It takes the request too slowly.
    WriteTimeout: Upstream "upstream", GATEWAY_TIMEOUT, "write_timeout", "connection_write_timeout",
        "the upstream did not take the request in time";
    /// No head in time.
    ResponseTimeout: Upstream "upstream", GATEWAY_TIMEOUT, "answer_timeout", "http_response_timeout",
        "the upstream did not answer in time";
    /// A part of the response came, and the rest did not in time.
    ReadTimeout: Upstream "upstream", GATEWAY_TIMEOUT, "read_timeout", "connection_read_timeout",
        "the upstream stopped in the middle of its response";
    /// The connection ended before a byte of the response.
    Broken: Upstream "upstream", BAD_GATEWAY, "closed", "connection_terminated",
        "the upstream closed the connection before it had answered";
    /// The connection ended behind a part of the response.
    Incomplete: Upstream "upstream", BAD_GATEWAY, "incomplete", "http_response_incomplete",
        "the upstream closed the connection in the middle of its response";
    /// A response until the end of a TLS connection that was not announced.
    Truncated: Upstream "upstream", BAD_GATEWAY, "no_close_notify", "http_response_incomplete",
        "the upstream ended TLS without close_notify: its response may not be whole";
    HeadTooLong: Upstream "upstream", BAD_GATEWAY, "head_too_long", "http_response_header_section_size",
        "the header section of the response is longer than --upstream-max-head";
    TooManyFields: Upstream "upstream", BAD_GATEWAY, "too_many_fields", "http_response_header_section_size",
        "the response has more fields than --upstream-max-fields";
    TrailerTooLong: Upstream "upstream", BAD_GATEWAY, "trailer_too_long", "http_response_trailer_section_size",
        "the trailer section of the response is longer than --max-trailer";
    BadChunks: Upstream "upstream", BAD_GATEWAY, "bad_chunks", "http_response_transfer_coding",
        "the chunks of the response are malformed";
    /// The bytes are an invalid response in another way.
    BadResponse: Upstream "upstream", BAD_GATEWAY, "malformed", "http_protocol_error",
        "the response of the upstream is malformed";
    /// 101 to a request that asked for no other protocol.
    SwitchNotAsked: Upstream "upstream", BAD_GATEWAY, "switch_not_asked", "http_upgrade_failed",
        "the upstream changed the protocol without being asked";
    /// 101 for another protocol than the one that was asked for.
    OtherProtocol: Upstream "upstream", BAD_GATEWAY, "other_protocol", "http_upgrade_failed",
        "the upstream changed to another protocol than it was asked for";
    /// The request has passed this proxy before: it is its own upstream, or one of a ring.
    Loop: Proxy "proxy", LOOP_DETECTED, "loop", "proxy_loop_detected",
        "the request came back to this proxy: its upstream leads back to it";
    /// The request itself: its `Connection` has too many options.
    TooManyOptions: Client "client", BAD_REQUEST, "too_many_options", "http_request_denied",
        "Connection has too many options: send at most 16";
}

impl From<PoolError> for Failure {
    fn from(_: PoolError) -> Self {
        Self::Local
    }
}

impl From<&ExchangeFailure> for Failure {
    fn from(failure: &ExchangeFailure) -> Self {
        match &failure.cause {
            FailureCause::Connection(error) => Self::of_connection(error),
            FailureCause::Broken(_) | FailureCause::ClosedEarly if failure.has_response_begun => {
                Self::Incomplete
            }
            FailureCause::Broken(_) | FailureCause::ClosedEarly => Self::Broken,
            FailureCause::Truncated => Self::Truncated,
            FailureCause::TimedOut if failure.may_have_arrived => match failure.phase {
                Phase::Write => Self::WriteTimeout,
                Phase::BetweenBytes | Phase::Total if failure.has_response_begun => {
                    Self::ReadTimeout
                }
                _ => Self::ResponseTimeout,
            },
            FailureCause::TimedOut => Self::ConnectTimeout,
            FailureCause::Answer(error) => Self::of_answer(error),
            FailureCause::Memory(_) => Self::Local,
        }
    }
}

impl Failure {
    fn of_connection(error: &AcquireError) -> Self {
        match error {
            AcquireError::Resolve(_) => Self::Unresolved,
            AcquireError::Connect(Errno::CONNREFUSED) => Self::Refused,
            AcquireError::Connect(Errno::TIMEDOUT) => Self::ConnectTimeout,
            AcquireError::Connect(_) => Self::Unreachable,
            AcquireError::Tls(error) => match error {
                HandshakeError::CertificateName => Self::CertificateName,
                HandshakeError::CertificateAuthority => Self::CertificateAuthority,
                HandshakeError::CertificateExpired => Self::CertificateExpired,
                HandshakeError::Certificate => Self::Certificate,
                HandshakeError::Alert => Self::TlsAlert,
                HandshakeError::NotTls => Self::NotTls,
                HandshakeError::Incompatible => Self::TlsIncompatible,
                HandshakeError::Closed(_) => Self::TlsClosed,
                _ => Self::TlsFailed,
            },
            AcquireError::QueueFull { .. }
            | AcquireError::TimedOut {
                phase: AcquirePhase::Queue,
            } => Self::Saturated,
            AcquireError::TimedOut {
                phase: AcquirePhase::Resolve,
            } => Self::ResolveTimeout,
            AcquireError::TimedOut { .. } => Self::ConnectTimeout,
            AcquireError::Removed | AcquireError::Local(_) => Self::Local,
        }
    }

    fn of_answer(error: &ClientError) -> Self {
        match error {
            ClientError::Head(ParseError::HeadTooLong { .. }) => Self::HeadTooLong,
            ClientError::Head(ParseError::TooManyFields { .. }) => Self::TooManyFields,
            ClientError::Body(
                BodyError::TrailerTooLong { .. } | BodyError::TooManyTrailers { .. },
            ) => Self::TrailerTooLong,
            ClientError::Body(_) => Self::BadChunks,
            ClientError::SwitchedProtocols => Self::SwitchNotAsked,
            _ => Self::BadResponse,
        }
    }

    pub(super) const fn side(self) -> Side {
        self.told().side
    }

    /// The side at fault, as in the access log.
    pub(crate) const fn fault(self) -> Fault {
        match self.side() {
            Side::Client => Fault::Client,
            Side::Proxy => Fault::Proxy,
            Side::Upstream => Fault::Upstream,
        }
    }

    pub(super) const fn status(self) -> StatusCode {
        self.told().status
    }

    /// Its short name alone.
    pub(crate) const fn cause(self) -> &'static str {
        self.told().cause
    }

    /// Its error type of RFC 9209, which others may share.
    pub(crate) const fn error(self) -> &'static str {
        self.told().error
    }

    /// The description, for people.
    pub(crate) const fn sentence(self) -> &'static str {
        self.told().sentence
    }

    /// Worth another try later.
    const fn retry_after(self) -> Option<FieldValue<'static>> {
        const ONE_SECOND: FieldValue<'_> = FieldValue::from_static("1");
        match self {
            Self::NoneUsable | Self::Saturated | Self::Local => Some(ONE_SECOND),
            _ => None,
        }
    }

    /// The field `Proxy-Status`: the error type, its sentence, and the side at fault.
    const fn proxy_status(self) -> FieldValue<'static> {
        self.told().proxy_status
    }

    /// Responds with it; `is_quiet`: the status alone. Without memory nothing is sent, which becomes 503.
    pub(super) fn answer(self, response: &mut Response<'_>, is_quiet: bool) {
        response.failure = Some(self);
        let proxy_status = (FieldName::PROXY_STATUS, self.proxy_status());
        let content_type = (FieldName::CONTENT_TYPE, FieldValue::TEXT_PLAIN);
        let mut fields = [content_type; 3];
        let mut count = 1;
        let mut add = |field| {
            fields[count] = field;
            count += 1;
        };
        if !is_quiet {
            add(proxy_status);
        }
        if let Some(retry_after) = self.retry_after() {
            add((FieldName::RETRY_AFTER, retry_after));
        }
        let body: &[u8] = match is_quiet {
            true => b"the request cannot be answered\n",
            false => self.told().body.as_bytes(),
        };
        let _ = response.send_with(self.status(), &fields[..count], body);
    }
}

/// A request with a response made here.
pub(super) enum Refused {
    Failure(Failure),
    /// It was not to go any further.
    NoForwardsLeft,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<PoolError> for Refused {
    fn from(error: PoolError) -> Self {
        Self::Failure(error.into())
    }
}

// Lines about the failures of one upstream or mirror: enough to see what is wrong, never one per request.

/// From a line about failures to the next of the same cause, and of another one.
const SAME_FAILURE_SILENCE_NS: u64 = 60_000_000_000;
const OTHER_FAILURE_SILENCE_NS: u64 = 1_000_000_000;

/// Of what.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Upstream,
    Mirror,
}

/// The last line written.
#[derive(Clone, Debug, Default)]
pub(super) struct FailureLog {
    /// The last line's text, and its time.
    told: Option<(Failure, u64)>,
    /// Failures since then.
    untold_count: u64,
}

impl FailureLog {
    /// Writes a line about a failure: at once when its cause is another one than that of the last line, but
    /// none sooner than a second after that, and once a minute while it stays. `kind` and `name`: of what.
    #[cold]
    pub(super) fn failed(
        &mut self,
        (kind, name): (Kind, &str),
        failure: Failure,
        error: Option<&ExchangeFailure>,
        now_ns: u64,
    ) {
        self.untold_count += 1;
        let silence_ns = match self.told {
            None => 0,
            Some((told, _)) if told == failure => SAME_FAILURE_SILENCE_NS,
            Some(_) => OTHER_FAILURE_SILENCE_NS,
        };
        let told_ns = self.told.map_or(0, |(_, told_ns)| told_ns);
        if now_ns < told_ns.saturating_add(silence_ns) {
            return;
        }
        self.told = Some((failure, now_ns));
        let count = std::mem::take(&mut self.untold_count);
        let (sentence, cause) = (failure.sentence(), failure.cause());
        let write = |event, text: fmt::Arguments<'_>| {
            log::write_event(LogLevel::Warn, event, count, text);
        };
        match (kind, error) {
            (Kind::Mirror, Some(error)) => write(
                "mirror_failed",
                format_args!("mirror {name}: {error} ({cause}); failures: {count}"),
            ),
            (Kind::Mirror, None) => write(
                "mirror_failed",
                format_args!("mirror {name}: {cause}; failures: {count}"),
            ),
            (Kind::Upstream, Some(error)) => write(
                "upstream_failed",
                format_args!("upstream {name}: {sentence} ({cause}; {error}); failures: {count}"),
            ),
            (Kind::Upstream, None) => write(
                "upstream_failed",
                format_args!("upstream {name}: {sentence} ({cause}); failures: {count}"),
            ),
        }
    }
}

#[cfg(test)]
#[path = "tests/failure.rs"]
mod tests;

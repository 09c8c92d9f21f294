//! Why a request got no answer from an upstream: the status for it, whose fault it was, and the words.
//!
//! On the path: `service` makes one when a request cannot go on, and answers with it, if the client has
//! seen nothing of an answer yet. `Proxy-Status` (RFC 9209) carries the cause for machines.
//!
//! Absent on purpose: anything about the upstream that a client could use: no address, no port.

use crate::access_log::Fault;
use crate::client::{ClientError, ExchangeFailure, FailureCause};
use crate::head_text::{FieldName, FieldValue};
use crate::response::Response;
use crate::status::StatusCode;
use millpond_io::Errno;
use millpond_io::connection_pool::{AcquireError, AcquirePhase};
use millpond_mempool::PoolError;

/// Whose fault it was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Side {
    Client,
    Proxy,
    Upstream,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Failure {
    /// No upstream may be used: their health checks fail.
    NoneUsable,
    /// All that may be used have as many requests as they may.
    Saturated,
    /// No memory, descriptors or connection here.
    Local,
    /// The upstream's name has no address.
    Unresolved,
    Refused,
    Unreachable,
    TlsFailed,
    ConnectTimeout,
    /// It takes the request too slowly.
    WriteTimeout,
    /// The answer takes too long.
    AnswerTimeout,
    /// The connection ended before the answer did.
    Broken,
    /// What came is no sound answer.
    BadAnswer,
    /// 101 to a request that asked for no other protocol.
    SwitchNotAsked,
    /// 101 for another protocol than the one that was asked for.
    OtherProtocol,
    /// The request has passed this proxy before: it is its own upstream, or one of a ring.
    Loop,
    /// The request itself: its `Connection` has too many options.
    TooManyOptions,
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
            FailureCause::Broken(_) | FailureCause::ClosedEarly => Self::Broken,
            FailureCause::TimedOut if failure.may_have_arrived => {
                match failure.phase == crate::client::Phase::Write {
                    true => Self::WriteTimeout,
                    false => Self::AnswerTimeout,
                }
            }
            FailureCause::TimedOut => Self::ConnectTimeout,
            FailureCause::Answer(ClientError::SwitchedProtocols) => Self::SwitchNotAsked,
            FailureCause::Answer(_) => Self::BadAnswer,
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
            AcquireError::Tls(_) => Self::TlsFailed,
            AcquireError::QueueFull { .. }
            | AcquireError::TimedOut {
                phase: AcquirePhase::Queue,
            } => Self::Saturated,
            AcquireError::TimedOut { .. } => Self::ConnectTimeout,
            AcquireError::Removed | AcquireError::Local(_) => Self::Local,
        }
    }

    pub(super) const fn side(self) -> Side {
        match self {
            Self::Saturated | Self::Local | Self::Loop => Side::Proxy,
            Self::TooManyOptions => Side::Client,
            _ => Side::Upstream,
        }
    }

    /// Whose fault, as the access log says it.
    pub(super) const fn fault(self) -> Fault {
        match self.side() {
            Side::Client => Fault::Client,
            Side::Proxy => Fault::Proxy,
            Side::Upstream => Fault::Upstream,
        }
    }

    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::NoneUsable | Self::Saturated | Self::Local => StatusCode::SERVICE_UNAVAILABLE,
            Self::ConnectTimeout | Self::WriteTimeout | Self::AnswerTimeout => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Loop => StatusCode::LOOP_DETECTED,
            Self::TooManyOptions => StatusCode::BAD_REQUEST,
            _ => StatusCode::BAD_GATEWAY,
        }
    }

    /// Worth another try later.
    const fn retry_after(self) -> Option<FieldValue<'static>> {
        const ONE_SECOND: FieldValue<'_> = FieldValue::from_static("1");
        match self {
            Self::NoneUsable | Self::Saturated | Self::Local => Some(ONE_SECOND),
            _ => None,
        }
    }

    /// The field `Proxy-Status`, with the error types of RFC 9209 2.3, and whose fault it is.
    const fn proxy_status(self) -> FieldValue<'static> {
        // Each is checked when this is compiled.
        macro_rules! value {
            ($text:literal) => {
                const { FieldValue::from_static($text) }
            };
        }
        match self {
            Self::NoneUsable => value!("millpond; error=destination_unavailable; fault=upstream"),
            Self::Saturated => value!("millpond; error=connection_limit_reached; fault=proxy"),
            Self::Local => value!("millpond; error=proxy_internal_error; fault=proxy"),
            Self::Unresolved => value!("millpond; error=dns_error; fault=upstream"),
            Self::Refused => value!("millpond; error=connection_refused; fault=upstream"),
            Self::Unreachable => {
                value!("millpond; error=destination_ip_unroutable; fault=upstream")
            }
            Self::TlsFailed => value!("millpond; error=tls_protocol_error; fault=upstream"),
            Self::ConnectTimeout => value!("millpond; error=connection_timeout; fault=upstream"),
            Self::WriteTimeout => {
                value!("millpond; error=connection_write_timeout; fault=upstream")
            }
            Self::AnswerTimeout => value!("millpond; error=http_response_timeout; fault=upstream"),
            Self::Broken => value!("millpond; error=connection_terminated; fault=upstream"),
            Self::BadAnswer => value!("millpond; error=http_protocol_error; fault=upstream"),
            Self::SwitchNotAsked | Self::OtherProtocol => {
                value!("millpond; error=http_upgrade_failed; fault=upstream")
            }
            Self::Loop => value!("millpond; error=proxy_loop_detected; fault=proxy"),
            Self::TooManyOptions => value!("millpond; error=http_request_denied; fault=client"),
        }
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::NoneUsable => "no upstream is healthy: try again later\n",
            Self::Saturated => "all upstreams have as many requests as they may: try again later\n",
            Self::Local => "the proxy is short of memory or connections: try again later\n",
            Self::Unresolved => "the upstream's name has no address\n",
            Self::Refused => "the upstream refused the connection\n",
            Self::Unreachable => "the upstream cannot be reached\n",
            Self::TlsFailed => "the TLS handshake with the upstream failed\n",
            Self::ConnectTimeout => "the upstream did not accept a connection in time\n",
            Self::WriteTimeout => "the upstream did not take the request in time\n",
            Self::AnswerTimeout => "the upstream did not answer in time\n",
            Self::Broken => "the upstream closed the connection before it had answered\n",
            Self::BadAnswer => "the upstream's answer is malformed\n",
            Self::SwitchNotAsked => "the upstream changed the protocol without being asked\n",
            Self::OtherProtocol => {
                "the upstream changed to another protocol than it was asked for\n"
            }
            Self::Loop => "the request came back to this proxy: its upstream leads back to it\n",
            Self::TooManyOptions => "Connection has too many options: send at most 16\n",
        }
    }

    /// Answers with it. Without memory nothing is sent, which becomes 503.
    pub(super) fn answer(self, response: &mut Response<'_>) {
        let proxy_status = (FieldName::PROXY_STATUS, self.proxy_status());
        let content_type = (FieldName::CONTENT_TYPE, FieldValue::TEXT_PLAIN);
        let body = self.sentence().as_bytes();
        let _ = match self.retry_after() {
            Some(retry_after) => {
                let retry_after = (FieldName::RETRY_AFTER, retry_after);
                let fields = [content_type, proxy_status, retry_after];
                response.send_with(self.status(), &fields, body)
            }
            None => response.send_with(self.status(), &[content_type, proxy_status], body),
        };
    }
}

/// A request that is answered here.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Phase;

    /// Goal: each cause has the status that RFC 9110 15.6 gives it, and the side that it says.
    #[test]
    fn causes_have_status_and_side() {
        let failed = |cause, phase| ExchangeFailure {
            cause,
            phase,
            is_reused: false,
            may_have_arrived: phase >= Phase::Write,
            has_answer_begun: false,
        };
        for (cause, phase, status, side) in [
            (
                AcquireError::Connect(Errno::CONNREFUSED).into(),
                Phase::Connect,
                502,
                "upstream",
            ),
            (
                AcquireError::QueueFull { limit: 1 }.into(),
                Phase::Queue,
                503,
                "proxy",
            ),
            (
                AcquireError::Tls(Errno::PROTO).into(),
                Phase::Tls,
                502,
                "upstream",
            ),
            (FailureCause::TimedOut, Phase::Connect, 504, "upstream"),
            (FailureCause::TimedOut, Phase::Write, 504, "upstream"),
            (FailureCause::TimedOut, Phase::FirstByte, 504, "upstream"),
            (FailureCause::ClosedEarly, Phase::FirstByte, 502, "upstream"),
        ] {
            let failure = Failure::from(&failed(cause, phase));
            assert_eq!(failure.status().code(), status, "{failure:?}");
            let fault = format!("; fault={side}");
            assert!(
                failure
                    .proxy_status()
                    .as_bytes()
                    .ends_with(fault.as_bytes()),
                "{failure:?}"
            );
            assert_eq!(failure.side() == Side::Upstream, side == "upstream");
        }
    }
}

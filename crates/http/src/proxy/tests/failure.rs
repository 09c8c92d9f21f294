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
        has_response_begun: false,
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
            AcquireError::Tls(HandshakeError::CertificateName).into(),
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

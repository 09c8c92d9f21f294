use super::*;
use crate::client::{FailureCause, Phase};
use millpond_mempool::{BlockPool, PoolMode};
use proptest::prelude::*;

fn failure(cause: FailureCause, phase: Phase) -> ExchangeFailure {
    ExchangeFailure {
        cause,
        phase,
        is_reused: false,
        may_have_arrived: phase >= Phase::Write,
        has_response_begun: phase == Phase::BetweenBytes,
    }
}

fn head_with(field: &str) -> OutgoingHead {
    let blocks = BlockPool::new("test", PoolMode::Off);
    OutgoingHead::of_lines(&blocks, &format!("PUT /a HTTP/1.1\r\nHost: h\r\n{field}"))
}

/// Goal: an unsafe request with a precondition is not repeated once it may have arrived, one with a key of
/// its own is, and a safe one whatever it says.
#[test]
fn fields_decide_what_a_repetition_means() {
    use FailureCause::ClosedEarly;
    for (method, field, phase, expected) in [
        (Method::Put, "If-Match: \"a\"\r\n", Phase::FirstByte, false),
        (
            Method::Delete,
            "if-none-match: *\r\n",
            Phase::FirstByte,
            false,
        ),
        (
            Method::Put,
            "If-Unmodified-Since: x\r\n",
            Phase::FirstByte,
            false,
        ),
        (Method::Put, "If-Match: \"a\"\r\n", Phase::Connect, true),
        (Method::Get, "If-None-Match: *\r\n", Phase::FirstByte, true),
        (Method::Put, "X: If-Match\r\n", Phase::FirstByte, true),
        (
            Method::Post,
            "Idempotency-Key: \"1\"\r\n",
            Phase::FirstByte,
            true,
        ),
        (
            Method::Post,
            "Idempotency-Key: 1\r\nIf-Match: \"a\"\r\n",
            Phase::FirstByte,
            false,
        ),
    ] {
        let failure = failure(ClosedEarly, phase);
        let found = may_retry(method, &head_with(field), &failure, false);
        assert_eq!(found, expected, "{method:?} {field} {phase:?}");
    }
}

/// Goal: the table of RFC 9110 9.2.2, and each fact's weight.
#[test]
fn retries_follow_the_facts() {
    use FailureCause::{ClosedEarly, TimedOut};
    let head = head_with("");
    for (method, cause, phase, is_body_lost, expected) in [
        (Method::Get, ClosedEarly, Phase::FirstByte, false, true),
        (Method::Put, ClosedEarly, Phase::FirstByte, false, true),
        (Method::Put, ClosedEarly, Phase::FirstByte, true, false),
        (Method::Post, ClosedEarly, Phase::FirstByte, false, false),
        (
            Method::Extension,
            ClosedEarly,
            Phase::FirstByte,
            false,
            false,
        ),
        (Method::Post, ClosedEarly, Phase::Connect, false, true),
        (Method::Post, TimedOut, Phase::Connect, false, true),
        (Method::Get, TimedOut, Phase::FirstByte, false, false),
        (Method::Get, ClosedEarly, Phase::BetweenBytes, false, false),
    ] {
        let failure = failure(cause, phase);
        let found = may_retry(method, &head, &failure, is_body_lost);
        assert_eq!(found, expected, "{method:?} {failure:?}");
    }
}

proptest! {
    /// Goal: over any number of requests, retries stay within the share and what was saved.
    #[test]
    fn the_budget_holds(percent in 0..100_u32, requests in 0..2000_u32) {
        let mut budget = RetryBudget::new(percent);
        let mut retries = 0;
        for _ in 0..requests {
            budget.earn();
            retries += u32::from(budget.spend());
        }
        prop_assert!(retries <= requests * percent / 100 + SAVED_RETRIES_MAX);
        prop_assert!(percent > 0 || retries == 0);
        prop_assert!(retries >= requests * percent / 100);
    }
}

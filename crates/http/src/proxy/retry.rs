//! Whether a request that met with no answer may be sent again, and how often all of them may.
//!
//! On the path: `service` asks when a try has failed. What is decided here depends on facts of the
//! try alone, never on guesses about what an upstream does with half a request.
//!
//! Absent on purpose: waiting before a retry. The next try goes to another upstream where there is
//! one; what protects a struggling one is the budget.

use super::request_head::OutgoingHead;
use crate::client::ExchangeFailure;
use crate::method::Method;

/// Whether another try can do no harm: the request provably did not start, or doing it twice is the
/// same as once and the client has seen nothing of an answer. `is_body_lost`: parts of the client's
/// body were handed on and not kept.
pub(super) fn may_retry(
    method: Method,
    head: &OutgoingHead,
    failure: &ExchangeFailure,
    is_body_lost: bool,
) -> bool {
    // A slow upstream gets no second chance to be slow: the client has waited once.
    let was_slow = failure.may_have_arrived && failure.is_timeout();
    !is_body_lost && !was_slow && failure.may_repeat(method_by_meaning(method, head, failure))
}

/// Fields that make a write depend on what is stored: with the first try done, the second one fails.
const PRECONDITIONS: [&str; 4] = [
    "If-Match",
    "If-None-Match",
    "If-Unmodified-Since",
    "If-Modified-Since",
];

/// The method that is repeated as this request may be, if it may have arrived: a PUT with a precondition is no
/// more idempotent than a POST (its repetition is answered 412, though the write was done), and a request with an
/// `Idempotency-Key` is done once by whoever understands that, as a PUT is.
fn method_by_meaning(method: Method, head: &OutgoingHead, failure: &ExchangeFailure) -> Method {
    if !failure.may_have_arrived || method.is_safe() {
        return method;
    }
    if PRECONDITIONS.iter().any(|name| head.has_field(name)) {
        return Method::Post;
    }
    match head.has_field("Idempotency-Key") {
        true => Method::Put,
        false => method,
    }
}

/// Retries as a share of requests, so that an outage does not double the load on what is left.
#[derive(Clone, Debug)]
pub(super) struct RetryBudget {
    /// Of a retry, that each request earns.
    per_mille: u32,
    saved_per_mille: u32,
}

/// Retries that may be saved up, and are there at the beginning.
const SAVED_RETRIES_MAX: u32 = 10;

impl RetryBudget {
    pub(super) fn new(percent: u32) -> Self {
        let per_mille = percent.saturating_mul(10);
        Self {
            per_mille,
            saved_per_mille: match per_mille {
                0 => 0,
                _ => SAVED_RETRIES_MAX * 1000,
            },
        }
    }

    #[inline]
    pub(super) fn earn(&mut self) {
        let saved = self.saved_per_mille.saturating_add(self.per_mille);
        self.saved_per_mille = saved.min(SAVED_RETRIES_MAX * 1000);
    }

    /// Whether there is one left, which is then gone.
    pub(super) fn spend(&mut self) -> bool {
        let left = self.saved_per_mille.checked_sub(1000);
        self.saved_per_mille = left.unwrap_or(self.saved_per_mille);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
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
            has_answer_begun: phase == Phase::BetweenBytes,
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
}

//! Lines about the failures of one upstream or mirror: enough to see what is wrong, never one per request.

use super::failure::Failure;
use crate::client::ExchangeFailure;
use crate::log::{self, LogLevel};
use std::fmt;

/// From a line about failures to the next of the same cause, and of another one.
const SAME_FAILURE_SILENCE_NS: u64 = 60_000_000_000;
const OTHER_FAILURE_SILENCE_NS: u64 = 1_000_000_000;

/// Of what.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Upstream,
    Mirror,
}

/// What was written last.
#[derive(Clone, Debug, Default)]
pub(super) struct FailureLog {
    /// What the last line said, and when.
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

//! Times without a target, in a load run that goes on through them.

use serde::{Deserialize, Serialize};

use crate::units::format_duration_ns;

/// One of them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadOutage {
    /// From when sending began until the first connection was lost.
    pub start_ns: u64,
    /// Until a connection was open again, or the run ended.
    pub duration_ns: u64,
    /// Requests that failed because of it: under way when it began, or due in it and not sent in time.
    pub failed: u64,
    /// Attempts to open a connection that failed meanwhile.
    pub attempts: u64,
    /// False: it lasted until the end of the run.
    pub is_over: bool,
}

impl LoadOutage {
    /// As it is printed.
    #[must_use]
    pub fn in_words(&self) -> String {
        let end = if self.is_over { "" } else { ", to the end" };
        format!(
            "after {} for {}{end}: {} requests failed, {} attempts to connect",
            format_duration_ns(self.start_ns as f64),
            format_duration_ns(self.duration_ns as f64),
            self.failed,
            self.attempts
        )
    }
}

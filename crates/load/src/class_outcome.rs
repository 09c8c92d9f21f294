//! What became of the requests of one class in one thread.
//!
//! On the path: `outcome` reports here too when there are several classes. Absent on purpose:
//! requests that were never sent, which belong to no class yet, and slip, which all share.
use crate::outcome::{InFlight, add_errors, count_judgement};
use crate::validation::Judgement;
use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::record::LoadErrors;

/// Counts of one class.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassOutcome {
    pub(crate) response: LatencyHistogram,
    pub(crate) service: LatencyHistogram,
    pub(crate) errors: LoadErrors,
}

impl ClassOutcome {
    /// A counted answer is complete.
    pub(crate) fn answered(&mut self, request: &InFlight, judgement: Judgement, last_byte_ns: u64) {
        if judgement == Judgement::Right {
            self.response
                .record(last_byte_ns.saturating_sub(request.intended_ns));
            self.service
                .record(last_byte_ns.saturating_sub(request.written_ns));
        } else {
            count_judgement(&mut self.errors, judgement);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        add_errors(&mut self.errors, &other.errors);
    }
}

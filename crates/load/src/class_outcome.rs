//! What became of the requests of one class in one thread.
//!
//! On the path: `outcome` reports here too when there are several classes. Absent on purpose:
//! requests that were never sent, which belong to no class yet, and slip, which all share.
use crate::flights::Flight;
use crate::outcome::{add_errors, count_judgements};
use crate::validation::Judgement;
use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::record::LoadErrors;

/// Counts of one class.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassOutcome {
    pub(crate) response: LatencyHistogram,
    pub(crate) service: LatencyHistogram,
    pub(crate) errors: LoadErrors,
    /// Right answers that arrived inside the window, whenever their requests left.
    pub(crate) answered_in_window: u64,
}

impl ClassOutcome {
    /// Counted answers are complete.
    pub(crate) fn answered(&mut self, flight: &Flight, judgement: Judgement, last_byte_ns: u64) {
        let (request, count) = (&flight.request, flight.count as u64);
        if judgement == Judgement::Right {
            let response_ns = last_byte_ns.saturating_sub(request.intended_ns);
            let service_ns = last_byte_ns.saturating_sub(request.written_ns);
            self.response.record_many(response_ns, count);
            self.service.record_many(service_ns, count);
        } else {
            count_judgements(&mut self.errors, judgement, count);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        add_errors(&mut self.errors, &other.errors);
        self.answered_in_window += other.answered_in_window;
    }
}

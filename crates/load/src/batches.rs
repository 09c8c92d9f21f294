//! The clock of whole batches: what wrk2 measures with `-B`.
//!
//! On the path, only with `-B`: `session` shows each answer here. A batch is what left in one write: the
//! string that a script's `request()` returned, or the requests of a pipeline that were written
//! together. It ends with the answer to its last request, and is timed from the intended start of its
//! first. Absent on purpose: an effect on the three clocks, which time each request as ever.
use crate::listener::Answered;
use millpond_measure::histogram::LatencyHistogram;

/// A batch whose answers are coming. Answers come in the order of their requests, so the requests of
/// a batch are those in a row that were written at the same moment.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    written_ns: u64,
    intended_ns: u64,
    /// All of its answers so far count and are right.
    is_whole: bool,
}

/// The batches of one thread.
#[derive(Debug)]
pub(crate) struct Batches {
    open: Vec<Open>,
    pub(crate) clocks: BatchClocks,
}

/// Times of batches.
#[derive(Clone, Debug, Default)]
pub struct BatchClocks {
    /// From the intended start of the first request to the last byte of the last answer.
    pub response: LatencyHistogram,
    /// The same from the write.
    pub service: LatencyHistogram,
}

impl BatchClocks {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.response.merge(&other.response);
        self.service.merge(&other.service);
    }
}

impl Batches {
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            open: vec![Open::default(); connections],
            clocks: BatchClocks::default(),
        }
    }

    /// An answer on this connection is complete.
    pub(crate) fn answered(&mut self, index: u32, answered: &Answered<'_>) {
        let request = answered.request;
        let open = &mut self.open[index as usize];
        if open.written_ns != request.written_ns {
            *open = Open {
                written_ns: request.written_ns,
                intended_ns: request.intended_ns,
                is_whole: true,
            };
        }
        open.is_whole &= request.counted && answered.is_right;
        let is_last = answered.next_written_ns != Some(request.written_ns);
        if is_last && open.is_whole {
            let (intended_ns, written_ns) = (open.intended_ns, open.written_ns);
            self.clocks.response.record(answered.now_ns - intended_ns);
            self.clocks.service.record(answered.now_ns - written_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::InFlight;

    fn answer(
        batches: &mut Batches,
        index: u32,
        [intended_ns, written_ns, now_ns]: [u64; 3],
        next_written_ns: Option<u64>,
        is_right: bool,
    ) {
        let request = InFlight {
            intended_ns,
            written_ns,
            counted: true,
            ..InFlight::default()
        };
        let answered = Answered {
            request: &request,
            status: 200,
            is_right,
            connect_ns: 0,
            head_ns: now_ns,
            now_ns,
            next_written_ns,
        };
        batches.answered(index, &answered);
    }

    /// Goal: one sample a batch, from its first request's start to its last answer, whatever other
    /// connections do, and none of a batch with a wrong answer or a lost end.
    #[test]
    fn batches_are_timed_as_a_whole() {
        let mut batches = Batches::new(2);
        answer(&mut batches, 0, [10, 20, 100], Some(20), true);
        answer(&mut batches, 1, [10, 21, 150], None, true);
        answer(&mut batches, 0, [12, 20, 120], Some(20), true);
        answer(&mut batches, 0, [14, 20, 170], Some(0), true);
        let times = |clock: &LatencyHistogram| (clock.count(), clock.min(), clock.max());
        assert_eq!(times(&batches.clocks.response), (2, 140, 160));
        assert_eq!(times(&batches.clocks.service), (2, 129, 150));
        // A wrong answer in the middle, then a batch whose connection was lost, then a whole one.
        answer(&mut batches, 0, [30, 30, 35], Some(30), true);
        answer(&mut batches, 0, [30, 30, 36], Some(30), false);
        answer(&mut batches, 0, [30, 30, 37], None, true);
        answer(&mut batches, 0, [40, 40, 45], Some(40), true);
        answer(&mut batches, 0, [50, 50, 57], None, true);
        assert_eq!(times(&batches.clocks.service), (3, 7, 150));
    }
}

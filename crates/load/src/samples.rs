//! Single requests, for who wants a row of each: ab's `-g`.
//!
//! On the path, only if asked for: `session` shows each answer here. Absent on purpose: keeping all
//! of an endless run. What comes when the room is full is counted.
use crate::listener::Answered;

/// Requests that are kept at most by all threads together: some 100 MB.
pub const SAMPLES_MAX: usize = 4_000_000;

/// A request that was answered rightly.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RequestSample {
    /// When it was written, or its connection asked for if that was for it.
    pub started_ns: u64,
    /// How long connecting took, if the connection was opened for it; else 0.
    pub connect_us: u32,
    /// From the write to the head of the answer.
    pub waiting_us: u32,
    /// Connecting and all that followed, to the last byte.
    pub total_us: u32,
}

/// Those of some threads.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// In no order.
    pub kept: Vec<RequestSample>,
    /// How many found no room.
    pub dropped: u64,
    room: usize,
}

impl Samples {
    pub(crate) fn new(room: usize) -> Self {
        Self {
            room,
            ..Self::default()
        }
    }

    /// An answer is complete.
    pub(crate) fn answered(&mut self, answered: &Answered<'_>) {
        let request = answered.request;
        if !request.counted || !answered.is_right {
            return;
        }
        if self.kept.len() == self.room {
            self.dropped += 1;
            return;
        }
        // An hour and more is shown as that.
        let us = |span_ns: u64| u32::try_from(span_ns / 1_000).unwrap_or(u32::MAX);
        let service_ns = answered.now_ns - request.written_ns;
        self.kept.push(RequestSample {
            started_ns: request.written_ns.saturating_sub(answered.connect_ns),
            connect_us: us(answered.connect_ns),
            waiting_us: us(answered.head_ns.saturating_sub(request.written_ns)),
            total_us: us(answered.connect_ns + service_ns),
        });
    }

    /// Adds those of another thread.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.kept.append(&mut other.kept);
        self.dropped += other.dropped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::InFlight;

    /// Goal: the parts of a request are told apart, only right ones that count are kept, and the
    /// room is kept to.
    #[test]
    fn requests_become_rows() {
        let mut samples = Samples::new(2);
        let mut answer = |counted, is_right, connect_ns| {
            let request = InFlight {
                written_ns: 5_000_000,
                counted,
                ..InFlight::default()
            };
            samples.answered(&Answered {
                request: &request,
                status: 200,
                is_right,
                connect_ns,
                head_ns: 5_300_000,
                now_ns: 5_900_000,
                next_written_ns: None,
            });
        };
        answer(false, true, 0);
        answer(true, false, 0);
        answer(true, true, 100_000);
        answer(true, true, 0);
        answer(true, true, 0);
        let first = RequestSample {
            started_ns: 4_900_000,
            connect_us: 100,
            waiting_us: 300,
            total_us: 1_000,
        };
        let second = RequestSample {
            started_ns: 5_000_000,
            connect_us: 0,
            total_us: 900,
            ..first
        };
        assert_eq!(
            (&samples.kept[..], samples.dropped),
            (&[first, second][..], 1)
        );
        let mut all = Samples::new(0);
        all.append(samples);
        assert_eq!((all.kept.len(), all.dropped), (2, 1));
    }
}

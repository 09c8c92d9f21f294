//! Single requests, for who wants a row of each: `--print requests`, ab's `-g`.
//!
//! On the path, only if asked for: `session` shows each answer here, and `worker` the kernel's stamp
//! of those that have one. Absent on purpose: keeping all of an endless run. What comes when the room
//! is full is counted.
use crate::listener::Answered;
use crate::outcome::InFlight;

/// Requests that are kept at most by all threads together: some 200 MB.
pub const SAMPLES_MAX: usize = 4_000_000;

/// A request that was answered rightly.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RequestSample {
    /// When it was written.
    pub written_ns: u64,
    /// From when it was meant to be written until it was.
    pub slip_ns: u64,
    /// How long connecting took, if the connection was opened for it; else 0. It came before the
    /// write.
    pub connect_ns: u64,
    /// From the write to the head of the answer.
    pub waiting_ns: u64,
    /// From the write to the last byte.
    pub service_ns: u64,
    /// From the write to the last byte's arrival in the kernel, if that was stamped.
    pub kernel_service_ns: Option<u64>,
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
        let written_ns = request.written_ns;
        self.kept.push(RequestSample {
            written_ns,
            slip_ns: written_ns.saturating_sub(request.intended_ns),
            connect_ns: answered.connect_ns,
            waiting_ns: answered.head_ns.saturating_sub(written_ns),
            service_ns: answered.now_ns - written_ns,
            kernel_service_ns: None,
        });
    }

    /// The last one that was answered was stamped by the kernel.
    pub(crate) fn stamped(&mut self, request: &InFlight, kernel_service_ns: u64) {
        // Without room it is not the last one kept.
        if let Some(last) = self.kept.last_mut()
            && last.written_ns == request.written_ns
            && self.dropped == 0
        {
            last.kernel_service_ns = Some(kernel_service_ns);
        }
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

    /// Goal: the parts of a request are told apart, only right ones that count are kept, the stamp is
    /// that of the last one, and the room is kept to.
    #[test]
    fn requests_become_rows() {
        let mut samples = Samples::new(2);
        let request = InFlight {
            intended_ns: 4_980_000,
            written_ns: 5_000_000,
            ..InFlight::default()
        };
        let mut answer = |counted, is_right, connect_ns| {
            let request = InFlight { counted, ..request };
            samples.answered(&Answered {
                request: &request,
                status: 200,
                is_right,
                connect_ns,
                head_ns: 5_300_000,
                now_ns: 5_900_000,
                next_written_ns: None,
            });
            samples.stamped(&request, 880_000 + connect_ns);
        };
        answer(false, true, 0);
        answer(true, false, 0);
        answer(true, true, 100_000);
        answer(true, true, 0);
        answer(true, true, 500_000);
        let first = RequestSample {
            written_ns: 5_000_000,
            slip_ns: 20_000,
            connect_ns: 100_000,
            waiting_ns: 300_000,
            service_ns: 900_000,
            kernel_service_ns: Some(980_000),
        };
        let second = RequestSample {
            connect_ns: 0,
            kernel_service_ns: Some(880_000),
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

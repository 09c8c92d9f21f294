//! A worker's answers: received bytes go through their session, which is free, waiting or over then.
//!
//! All answers of one receive are complete at the same moment, the one at which its tick's wait ended;
//! each is timed from the write of its own request.
//! Absent on purpose: judging (`validation`) and counting (`outcome`).
use super::Worker;
use crate::failure_causes::{kind_of, sentence_of};
use crate::listener::Listener;
use crate::outcome::{InFlight, Moment, Outcome, Phase};
use crate::session::Desk;
use millpond_http::ClientError;
use millpond_io::{Driver, ShardContext, SocketId};
use millpond_measure::record::LoadFailureKind;

impl Worker<'_> {
    /// Bytes arrived.
    #[inline]
    pub(super) fn received<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        socket: SocketId,
        bytes: &[u8],
    ) {
        let Some(index) = self.session_of(socket) else {
            return;
        };
        let now_ns = shard.now_ns;
        if now_ns >= self.seconds.next_ns {
            self.turn_second(now_ns);
        }
        if self.takes_alike
            && self.script.is_none()
            && !self.has_listener
            && shard.driver.received_at_ns().is_none()
            && self.received_alike(index, now_ns, bytes)
        {
            return;
        }
        self.feed(shard, index, socket, Input::Bytes(bytes));
    }

    /// Most of what arrives is whole answers like the last one; true if this is, and it is counted.
    #[inline]
    fn received_alike(&mut self, index: u32, now_ns: u64, bytes: &[u8]) -> bool {
        let moment = self.moment(now_ns);
        let session = &mut self.sessions[index as usize];
        let mut desk = Desk {
            shared: self.shared,
            outcome: &mut self.outcome,
            now_ns,
            in_window: moment == Moment::Rate,
            wants_status_only: true,
            listener: None,
        };
        let Some(answers) = session.receive_alike(bytes, &self.last_heads, &mut desk) else {
            return false;
        };
        self.in_flight -= answers;
        self.outcome.received(bytes.len(), moment);
        self.free.offer(&mut self.sessions, index);
        true
    }

    /// Feeds a session; afterwards it is free, still waiting, or over.
    #[inline(never)]
    pub(super) fn feed<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        index: u32,
        socket: SocketId,
        input: Input<'_>,
    ) {
        let (now_ns, moment) = (shard.now_ns, self.moment(shard.now_ns));
        let stamped = self.stamped(shard.driver, index);
        let listener = self.has_listener.then(|| Listener {
            index,
            script: self
                .script
                .as_deref_mut()
                .filter(|runner| runner.wants_answers()),
            cookies: self.cookies.as_deref_mut(),
            batches: self.batches.as_deref_mut(),
            samples: self.samples.as_deref_mut(),
        });
        let wrong_before = (self.outcome.errors.status, self.outcome.errors.validation);
        let session = &mut self.sessions[index as usize];
        let before = session.in_flight_len();
        let mut desk = Desk {
            shared: self.shared,
            outcome: &mut self.outcome,
            now_ns,
            in_window: moment == Moment::Rate,
            wants_status_only: self.shared.is_status_only && listener.is_none(),
            listener,
        };
        let result: Result<(), ClientError> = match input {
            Input::Bytes(bytes) => {
                let heads = &mut self.last_heads[..];
                session.receive(bytes, &shard.pools.blocks, heads, &mut desk)
            }
            Input::End => session.peer_finished(&mut desk),
        };
        let answers = before - session.in_flight_len();
        self.in_flight -= answers;
        if let Some(stamped) = stamped {
            let kernel_service_ns = stamped.note(&mut self.outcome, answers, now_ns);
            if let (Some(samples), Some(span_ns)) = (&mut self.samples, kernel_service_ns) {
                samples.stamped(&stamped.request, span_ns);
            }
        }
        if let Input::Bytes(bytes) = input {
            self.outcome.received(bytes.len(), moment);
        }
        let is_over = result.is_err()
            || session.is_last()
            || session.is_used_up()
            || matches!(input, Input::End);
        if wrong_before != (self.outcome.errors.status, self.outcome.errors.validation) {
            self.note_wrong_answer(index, input, wrong_before.0, now_ns);
        }
        if is_over {
            shard.driver.close(socket);
            match result {
                Ok(()) => self.lost(index, Phase::Read, now_ns),
                Err(error) => self.refused(index, input, &error, now_ns),
            }
        } else {
            self.offer(index);
        }
    }

    /// What a receive that was stamped found waiting for its answer.
    fn stamped<D: Driver>(&self, driver: &D, index: u32) -> Option<Stamped> {
        let stamp_ns = driver.received_at_ns()?;
        Some(Stamped {
            stamp_ns,
            request: self.sessions[index as usize].oldest()?,
            right_before: self.outcome.requests(),
        })
    }

    #[inline]
    /// An answer was wrong.
    #[cold]
    fn note_wrong_answer(
        &mut self,
        index: u32,
        input: Input<'_>,
        statuses_before: u64,
        now_ns: u64,
    ) {
        let (kind, what) = match self.outcome.errors.status > statuses_before {
            true => (LoadFailureKind::Status, "the answer has a wrong status"),
            false => (LoadFailureKind::Content, "the answer has a wrong content"),
        };
        let place = self.place_of(index);
        let causes = &mut self.outcome.causes;
        causes.note(kind, now_ns, place, || what.to_owned(), input.bytes());
    }

    /// An answer is not taken, and its connection is over.
    #[cold]
    fn refused(&mut self, index: u32, input: Input<'_>, error: &ClientError, now_ns: u64) {
        let (kind, place) = (kind_of(error), self.place_of(index));
        let before = self.outcome.errors.read;
        self.lost(index, Phase::Read, now_ns);
        let requests = self.outcome.errors.read - before;
        if matches!(error, ClientError::Unasked { .. }) {
            self.outcome.unasked += 1;
        }
        let causes = &mut self.outcome.causes;
        causes.count(kind, requests);
        if requests > 0 {
            causes.note(kind, now_ns, place, || sentence_of(error), input.bytes());
        }
    }

    fn moment(&self, now_ns: u64) -> Moment {
        match self.shared.schedule.get() {
            Some(schedule) if schedule.is_in_window(now_ns) => {
                match schedule.is_before_rate_end(now_ns) {
                    true => Moment::Rate,
                    false => Moment::Window,
                }
            }
            Some(schedule) if now_ns >= schedule.window_start_ns() => Moment::Drain,
            _ => Moment::Outside,
        }
    }
}

/// A receive with the kernel's stamp, before its bytes are looked at.
struct Stamped {
    stamp_ns: u64,
    /// The request whose answer may be in it.
    request: InFlight,
    /// Right answers until then.
    right_before: u64,
}

impl Stamped {
    /// Its kernel service time in nanoseconds, if it is one right answer. The stamp is that of the
    /// last byte: of several answers, the first ones came earlier.
    fn note(&self, outcome: &mut Outcome, answers: usize, now_ns: u64) -> Option<u64> {
        let is_right = outcome.requests() == self.right_before + 1;
        (answers == 1 && is_right && self.request.counted)
            .then(|| outcome.wake.record(&self.request, self.stamp_ns, now_ns))
    }
}

/// What a session is fed with.
#[derive(Clone, Copy)]
pub(super) enum Input<'a> {
    Bytes(&'a [u8]),
    End,
}

impl<'a> Input<'a> {
    const fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::End => b"",
        }
    }
}

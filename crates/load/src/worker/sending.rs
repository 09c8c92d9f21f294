//! A worker's sends: due requests go to free connections, and each connection's batch leaves in one write.
//!
//! Each write is stamped just before it is made, and all requests in it with it. Due requests with
//! a free place leave in this tick.

use millpond_http::ClientError;
use millpond_io::{Driver, SendOutcome, ShardContext, SocketId};
use millpond_measure::record::LoadFailureKind;

use crate::connection::{ConnectionState, ResponseContext};
use crate::error::{kind_of, sentence_of};
use crate::listener::Listener;
use crate::outcome::{InFlight, Moment, Outcome, Phase};
use crate::schedule::{Arrival, Schedule};
use crate::script::Runner;

use super::Worker;

/// A request to write: new, or again because its connection was closed under it by announcement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    pub(super) arrival: Arrival,
    pub(super) is_repeat: bool,
}

impl Worker<'_> {
    /// The next request that is due, if any.
    pub(super) fn next_due(&mut self, schedule: &Schedule, now_ns: u64) -> Option<Owed> {
        if let Some(arrival) = self.repeats.pop_front() {
            return Some(Owed {
                arrival,
                is_repeat: true,
            });
        }
        let config = self.shared.config;
        let deadline_ns = config.deadline_ns.unwrap_or(u64::MAX);
        let patience_ns = match config.keeps_going {
            true => config.timeout_ns,
            false => u64::MAX,
        };
        loop {
            if self.held.is_none() {
                self.held = schedule.claim(now_ns, self.cursor.as_mut());
            }
            let arrival = self.held.take_if(|arrival| arrival.intended_ns <= now_ns)?;
            // A closed loop has no intended start, and no deadline.
            let late_ns = now_ns.saturating_sub(arrival.intended_ns);
            if late_ns > patience_ns && late_ns <= deadline_ns {
                self.expired(&arrival, now_ns);
                continue;
            }
            if late_ns <= deadline_ns {
                return Some(Owed {
                    arrival,
                    is_repeat: false,
                });
            }
            self.outcome.shed(&arrival, now_ns);
        }
    }

    /// In a run that continues without its target: no connection took the request in time.
    #[cold]
    fn expired(&mut self, arrival: &Arrival, now_ns: u64) {
        if arrival.counted {
            self.outcome.never_sent(arrival.intended_ns, now_ns);
            if let Some(outages) = &self.shared.outages {
                outages.expired(arrival.intended_ns);
            }
        }
    }

    /// Gives what is due to connections with room and writes it.
    pub(super) fn send_due<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        schedule: &Schedule,
    ) {
        if self.script.is_some() {
            self.dispatch_scripted(shard, schedule);
        } else if self.has_equal_requests
            && self.cookies.is_none()
            && self.repeats.is_empty()
            && schedule.can_claim(self.shared.places())
        {
            return self.fill(shard, schedule);
        } else {
            self.dispatch(shard, schedule);
        }
        self.flush(shard);
    }

    /// Fills the pipelines of all connections with room, each by one write. For a closed loop whose
    /// requests are all the same and more than there are places for: it does not matter which
    /// connection gets which.
    fn fill<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, schedule: &Schedule) {
        let shared = self.shared;
        let Some(request) = shared.requests.fixed() else {
            return;
        };
        while let Some(free) = self.free.first(&mut self.sessions) {
            let index = free.index;
            let session = &self.sessions[index as usize];
            // Only open connections can take requests; a closed one is removed.
            let ConnectionState::Open { socket } = session.state else {
                self.free.take_first(&mut self.sessions, free);
                continue;
            };
            let Some(run) = schedule.claim_run(self.now_ns, session.room()) else {
                schedule.found_none(|| shard.driver.clock_ns());
                break;
            };
            self.free.take_first(&mut self.sessions, free);
            let batch = match request.batch(run.count as usize, &shard.pools.blocks) {
                Ok(batch) => batch,
                Err(error) => return self.fail(error.into()),
            };
            self.in_flight += run.count as usize;
            if run.first.counted {
                self.outcome.sent += run.count;
            }
            let session = &mut self.sessions[index as usize];
            self.now_ns = shard.driver.clock_ns();
            session.expect_run(&run, &request.asked(), self.now_ns);
            if shard.driver.send(socket, batch) == SendOutcome::Blocked {
                session.is_blocked = true;
            }
            // Only a run cut short by the end of all leaves room.
            if session.can_take() {
                self.offer(index);
            }
        }
    }

    /// Spreads due requests over free connections, the longest free first.
    fn dispatch<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, schedule: &Schedule) {
        let is_closed_loop = self.is_closed_loop;
        let window_end_ns = schedule.window_end_ns().unwrap_or(u64::MAX);
        while let Some(free) = self.free.first(&mut self.sessions) {
            let Some(owed) = self.next_due(schedule, self.now_ns) else {
                if is_closed_loop {
                    schedule.found_none(|| shard.driver.clock_ns());
                }
                break;
            };
            self.free.take_first(&mut self.sessions, free);
            let index = free.index;
            let session = &mut self.sessions[index as usize];
            let pool = &shard.pools.blocks;
            let (arrival, requests) = (&owed.arrival, &self.shared.requests);
            let taken = match &mut self.cookies {
                None => session.take(arrival, requests, pool, is_closed_loop),
                Some(cookies) => cookies.take(session, index, arrival, requests, pool, self.now_ns),
            };
            match taken {
                Ok(true) => self.dirty.push(index),
                Ok(false) => {}
                Err(error) => {
                    // Without memory nothing can be measured; the arrival ends as cut off.
                    self.fail(error.into());
                    return;
                }
            }
            self.in_flight += 1;
            if owed.is_repeat {
                self.outcome.resent += 1;
            } else if owed.arrival.counted {
                self.outcome.sent += 1;
                self.outcome.sent_late += u64::from(self.now_ns >= window_end_ns);
            }
            self.offer(index);
        }
    }

    /// One send per connection with a batch.
    fn flush<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        for position in 0..self.dirty.len() {
            self.send_batch(shard, self.dirty[position]);
        }
        self.dirty.clear();
    }

    /// Writes a connection's batch, stamped just before.
    #[inline]
    fn send_batch<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, index: u32) {
        let is_closed_loop = self.is_closed_loop;
        let session = &mut self.sessions[index as usize];
        let ConnectionState::Open { socket } = session.state else {
            return;
        };
        self.now_ns = shard.driver.clock_ns();
        if let Some(watch) = &mut self.outcome.stalls {
            watch.look(self.now_ns);
        }
        let (now_ns, free_since_ns) = (self.now_ns, session.free_since_ns);
        let Outcome {
            lateness,
            blocked,
            stalls,
            ..
        } = &mut self.outcome;
        let batch = session.written(now_ns, is_closed_loop, |flight| {
            if flight.request.counted && !is_closed_loop {
                let (intended_ns, count) = (flight.request.intended_ns, flight.count as u64);
                let late_ns = now_ns - intended_ns.max(free_since_ns);
                lateness.record_many(late_ns, count);
                if let Some(watch) = stalls {
                    watch.sent(intended_ns, late_ns, count);
                }
                blocked.record_many(free_since_ns.saturating_sub(intended_ns), count);
            }
        });
        if shard.driver.send(socket, batch) == SendOutcome::Blocked {
            session.is_blocked = true;
        }
    }
}

// A worker whose requests a script makes: whole strings of them, as many as the script likes.
//
// A string leaves at once, so its first request decides when: the others take the arrivals that
// come next, and if one of those was not due yet, its request left early and its intended start is
// the write. So a rate counts requests and not strings, and each is timed by itself. The rest of it
// then leaves uncounted.

impl Worker<'_> {
    /// Lets a session take requests if it has room and its script has no other plans for it.
    pub(super) fn offer_scripted(&mut self, script: &mut Runner, index: u32) {
        let session = &self.sessions[index as usize];
        let is_idle = session.in_flight_len() == 0;
        if session.can_take() && script.lets_ask(index, is_idle, self.now_ns) {
            self.free.offer(&mut self.sessions, index);
        }
    }

    /// The script ended this thread's sending.
    pub(super) fn is_stopped_by_script(&self) -> bool {
        self.script
            .as_ref()
            .is_some_and(|script| script.is_stopped())
    }

    /// Spreads the script's requests over free connections, the longest free first.
    pub(super) fn dispatch_scripted<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        schedule: &Schedule,
    ) {
        let Some(mut script) = self.script.take() else {
            return;
        };
        while let Some(index) = script.end_pause(self.now_ns) {
            self.offer_scripted(&mut script, index);
        }
        while !script.is_stopped()
            && let Some(free) = self.free.first(&mut self.sessions)
        {
            let Some(owed) = self.next_due(schedule, self.now_ns) else {
                if self.is_closed_loop {
                    schedule.found_none(|| shard.driver.clock_ns());
                }
                break;
            };
            self.free.take_first(&mut self.sessions, free);
            let index = free.index;
            self.take_batch(shard, schedule, &mut script, index, owed);
            self.offer_scripted(&mut script, index);
        }
        if script.is_stopped() {
            self.stop_sending();
        }
        self.script = Some(script);
    }

    /// Asks the script for requests and puts them on a connection.
    fn take_batch<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        schedule: &Schedule,
        script: &mut Runner,
        index: u32,
        first: Owed,
    ) {
        let Some((bytes, methods)) = script.next_batch() else {
            self.never_made(&first);
            return script.pause_after_error(index, self.now_ns);
        };
        let window_end_ns = schedule.window_end_ns().unwrap_or(u64::MAX);
        self.batch.clear();
        for place in 0..methods.len() {
            let owed = match place {
                0 => first,
                _ => self.companion(schedule, first.arrival),
            };
            if owed.is_repeat {
                self.outcome.resent += 1;
            } else if owed.arrival.counted {
                self.outcome.sent += 1;
                self.outcome.sent_late += u64::from(self.now_ns >= window_end_ns);
            }
            self.batch.push(owed.arrival);
        }
        let session = &mut self.sessions[index as usize];
        let arrivals = self.batch.iter().zip(methods.iter().copied());
        match session.take_encoded(bytes, arrivals, &shard.pools.blocks) {
            Ok(is_first) => {
                self.in_flight += methods.len();
                if is_first {
                    self.dirty.push(index);
                }
                script.owe_delay(index);
            }
            Err(error) => self.fail(error.into()),
        }
    }

    /// The arrival of a request that leaves together with `first`.
    fn companion(&mut self, schedule: &Schedule, first: Arrival) -> Owed {
        if let Some(arrival) = self.repeats.pop_front() {
            return Owed {
                arrival,
                is_repeat: true,
            };
        }
        let now_ns = self.now_ns;
        let held = self.held.take();
        let next = held.or_else(|| schedule.claim(now_ns, self.cursor.as_mut()));
        let arrival = match next {
            Some(arrival) => Arrival {
                intended_ns: arrival.intended_ns.min(now_ns),
                ..arrival
            },
            None => Arrival {
                intended_ns: now_ns,
                counted: false,
                ..first
            },
        };
        Owed {
            arrival,
            is_repeat: false,
        }
    }

    /// The script's error took the place of a request: it failed before its first byte.
    fn never_made(&mut self, owed: &Owed) {
        let Arrival {
            number,
            intended_ns,
            counted,
        } = owed.arrival;
        if counted && !owed.is_repeat {
            self.outcome.sent += 1;
        }
        let request = InFlight {
            number,
            intended_ns,
            written_ns: 0,
            counted,
            class: 0,
        };
        self.outcome.failed(&request, Phase::Write, self.now_ns);
    }

    /// Claimed requests stay unsent; responses under way are waited for.
    fn stop_sending(&mut self) {
        let now_ns = self.now_ns;
        if let Some(held) = self.held.take() {
            self.leftover = Some(held);
        }
        for request in self.drain_repeats() {
            self.outcome.cut_off(&request, now_ns);
        }
    }
}

// A worker's responses: received bytes go through their session, which is free, waiting or over then.
//
// All responses of one receive are complete at the same moment, the one at which its tick's wait
// ended; each is timed from the write of its own request.

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

    /// Most of what arrives is whole responses like the last one; true if this is, and it is counted.
    #[inline]
    fn received_alike(&mut self, index: u32, now_ns: u64, bytes: &[u8]) -> bool {
        let moment = self.moment(now_ns);
        let session = &mut self.sessions[index as usize];
        let mut desk = ResponseContext {
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
                .filter(|runner| runner.wants_responses()),
            cookies: self.cookies.as_deref_mut(),
            batches: self.batches.as_deref_mut(),
            samples: self.samples.as_deref_mut(),
        });
        let wrong_before = (self.outcome.errors.status, self.outcome.errors.validation);
        let session = &mut self.sessions[index as usize];
        let before = session.in_flight_len();
        let mut desk = ResponseContext {
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

    /// The state of a stamped receive that found a request waiting for its response.
    fn stamped<D: Driver>(&self, driver: &D, index: u32) -> Option<Stamped> {
        let stamp_ns = driver.received_at_ns()?;
        Some(Stamped {
            stamp_ns,
            request: self.sessions[index as usize].oldest()?,
            right_before: self.outcome.requests(),
        })
    }

    #[inline]
    /// A response was wrong.
    #[cold]
    fn note_wrong_answer(
        &mut self,
        index: u32,
        input: Input<'_>,
        statuses_before: u64,
        now_ns: u64,
    ) {
        let (kind, what) = match self.outcome.errors.status > statuses_before {
            true => (LoadFailureKind::Status, "the response has a wrong status"),
            false => (LoadFailureKind::Content, "the response has a wrong content"),
        };
        let place = self.place_of(index);
        let causes = &mut self.outcome.causes;
        causes.note(kind, now_ns, place, || what.to_owned(), input.bytes());
    }

    /// A response is not taken, and its connection ends.
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

/// A receive with the kernel's stamp, before its bytes are read.
struct Stamped {
    stamp_ns: u64,
    /// The request whose response may be in it.
    request: InFlight,
    /// Right responses until then.
    right_before: u64,
}

impl Stamped {
    /// Its kernel service time in nanoseconds, if it is one right response. The stamp is that of the
    /// last byte: of several responses, the first ones came earlier.
    fn note(&self, outcome: &mut Outcome, answers: usize, now_ns: u64) -> Option<u64> {
        let is_right = outcome.requests() == self.right_before + 1;
        (answers == 1 && is_right && self.request.counted)
            .then(|| outcome.wake.record(&self.request, self.stamp_ns, now_ns))
    }
}

/// The input of a session.
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

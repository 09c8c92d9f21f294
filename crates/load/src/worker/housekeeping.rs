//! A worker's work that is not per request: flags, timeouts, reconnects, and the end of the run.
use super::{HOUSEKEEPING_NS, HOUSEKEEPING_NS_BEFORE_START, TRIM_NS, Worker};
use crate::error::{ConnectFailure, LoadError};
use crate::outcome::{InFlight, Phase};
use crate::schedule::Arrival;
use crate::session::State;
use millpond_io::{Driver, Errno, IoError, ShardContext};
use millpond_measure::record::{LoadFailureKind, LoadTls};
use std::sync::atomic::Ordering;

impl Worker<'_> {
    /// Everything that is not per request.
    pub(super) fn keep_house<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let now_ns = self.now_ns;
        if let Some(counters) = shard.driver.tls_counters() {
            self.outcome.tls = LoadTls {
                full: counters.full_tls12 + counters.full_tls13,
                resumed: counters.resumed_tls12 + counters.resumed_tls13,
                failed: counters.failed.iter().sum(),
                tls12: counters.full_tls12 + counters.resumed_tls12,
                tls13: counters.full_tls13 + counters.resumed_tls13,
            };
        }
        self.shared.boards[self.board_index].publish(&self.outcome);
        if self.shared.cut_off.load(Ordering::Acquire) {
            return self.cut_off(shard);
        }
        if now_ns >= self.next_sweep_ns {
            self.sweep_timeouts(shard);
            self.next_sweep_ns = now_ns + (self.shared.config.timeout_ns / 16).min(100_000_000);
        }
        if now_ns >= self.next_trim_ns {
            shard.trim_pools();
            self.next_trim_ns = now_ns + TRIM_NS;
        }
        if let Err(error) = self.open_due(shard.driver, now_ns) {
            self.cannot_connect(error);
        }
        let Some(schedule) = self.shared.schedule.get() else {
            self.next_housekeeping_ns = now_ns + HOUSEKEEPING_NS_BEFORE_START;
            return;
        };
        self.next_housekeeping_ns = now_ns + HOUSEKEEPING_NS;
        if !self.has_begun {
            self.begin(shard.driver, schedule.start_ns());
        }
        if let Some(sampling) = &mut self.stamps {
            let every = sampling.every(
                shard.driver.counters().receives,
                schedule.start_ns(),
                now_ns,
            );
            shard.driver.stamp_receives(every);
        }
        if self.held.is_some_and(|held| schedule.is_outdated(&held)) {
            // The warm-up ends before it is due.
            self.held = None;
        }
        if schedule.is_in_window(now_ns) {
            self.cpu.sample(now_ns, shard.driver.counters().spun_ns);
        }
        let drain_end_ns = schedule.window_end_ns().map_or(u64::MAX, |end_ns| {
            end_ns.saturating_add(self.shared.config.timeout_ns)
        });
        if now_ns >= drain_end_ns {
            self.give_up(shard);
        } else if self.held.is_none()
            && self.repeats.is_empty()
            && self.in_flight == 0
            && (schedule.is_exhausted(now_ns) || self.is_stopped_by_script())
        {
            self.is_done = true;
        }
    }

    /// This process cannot open a socket. Before the run that is an error the user has to know;
    /// in the middle of it descriptors may come free again, and the attempt counts as failed.
    pub(super) fn cannot_connect(&mut self, error: IoError) {
        if self.shared.schedule.get().is_none() {
            return self.fail(error.into());
        }
        let errno = match error {
            IoError::System { error, .. } => error,
            _ => Errno::MFILE,
        };
        self.outcome.errors.connect += 1;
        self.shared.doors.failed(ConnectFailure::Refused(errno));
    }

    /// Ends the run of all threads with an error.
    pub(super) fn fail(&mut self, error: LoadError) {
        self.failure = Some(error);
        self.is_done = true;
        self.shared.cut_off.store(true, Ordering::Release);
    }

    pub(super) fn sweep_timeouts<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let (now_ns, timeout_ns) = (self.now_ns, self.shared.config.timeout_ns);
        for index in 0..self.sessions.len() {
            let session = &self.sessions[index];
            let (socket, since_ns) = match session.state {
                State::Closed { .. } => continue,
                State::Connecting { socket, since_ns } => (socket, Some(since_ns)),
                State::Open { socket } => (socket, session.oldest_written_ns()),
            };
            if since_ns.is_none_or(|since_ns| now_ns.saturating_sub(since_ns) < timeout_ns) {
                continue;
            }
            let is_open = session.is_open();
            shard.driver.close(socket);
            if is_open {
                let place = self.place_of(index as u32);
                let what = || format!("no answer within {} ms", timeout_ns / 1_000_000);
                let causes = &mut self.outcome.causes;
                causes.note(LoadFailureKind::Timeout, now_ns, place, what, b"");
                self.lost(index as u32, Phase::Timeout, now_ns);
            } else {
                self.connect_failed(
                    index as u32,
                    ConnectFailure::TimedOut { timeout_ns },
                    now_ns,
                );
            }
        }
    }

    /// Requests that were written once, were to be written again, and no longer can be.
    pub(super) fn drain_repeats(&mut self) -> Vec<InFlight> {
        let repeats = self.repeats.drain(..);
        let written = repeats.map(
            |Arrival {
                 number,
                 intended_ns,
                 counted,
             }| InFlight {
                number,
                intended_ns,
                written_ns: 0,
                counted,
                class: 0,
            },
        );
        written.collect()
    }

    /// The drain is over: what is not answered has timed out, what was not sent never will be.
    pub(super) fn give_up<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let now_ns = self.now_ns;
        self.leftover = self.held.take();
        for request in self.drain_repeats() {
            self.outcome.failed(&request, Phase::Timeout, now_ns);
        }
        for session in &mut self.sessions {
            if let Some(socket) = session.socket() {
                shard.driver.close(socket);
            }
            session.drain().for_each(|request| {
                self.outcome.failed(&request, Phase::Timeout, now_ns);
            });
        }
        self.is_done = true;
    }

    /// The run is cut off: requests under way are neither answered nor failed.
    pub(super) fn cut_off<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let now_ns = self.now_ns;
        self.leftover = self.held.take();
        for request in self.drain_repeats() {
            self.outcome.cut_off(&request, now_ns);
        }
        for session in &mut self.sessions {
            if let Some(socket) = session.socket() {
                shard.driver.close(socket);
            }
            session
                .drain()
                .for_each(|request| self.outcome.cut_off(&request, now_ns));
        }
        self.is_done = true;
    }
}

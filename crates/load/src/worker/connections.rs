//! A worker's connections: opening, knowing whose a socket is, and starting over after a loss.

use std::sync::atomic::Ordering;

use millpond_io::{Driver, Errno, IoError, ShardContext, SocketId};
use millpond_measure::record::{LoadFailureKind, LoadTls};

use crate::connection::ConnectionState;
use crate::connection_plan::AddressUse;
use crate::cookies::Cookies;
use crate::error::{ConnectFailure, LoadError};
use crate::outcome::{InFlight, Phase};
use crate::samples::Batches;
use crate::samples::Samples;
use crate::schedule::Arrival;
use crate::script::Runner;

use super::{
    CONNECTING_MAX, HOUSEKEEPING_NS, HOUSEKEEPING_NS_BEFORE_START, NOBODY, TRIM_NS, Worker,
};

impl Worker<'_> {
    /// Opens what is due, within the limit of connections being opened at once.
    pub(super) fn open_due<D: Driver>(
        &mut self,
        driver: &mut D,
        now_ns: u64,
    ) -> Result<(), IoError> {
        // Each may be tried with every address.
        for _ in 0..self.closed.len() * self.shared.config.target.addresses.len() {
            if self.connecting >= CONNECTING_MAX {
                break;
            }
            let Some(index) = self.closed.pop_front() else {
                break;
            };
            let ConnectionState::Closed { retry_ns } = self.sessions[index as usize].state else {
                continue;
            };
            if retry_ns > now_ns {
                self.closed.push_back(index);
                continue;
            }
            if let Err(error) = self.connect(driver, index, now_ns) {
                if self.tries_another_address(index, now_ns) {
                    continue;
                }
                self.sessions[index as usize].closed(now_ns);
                self.closed.push_back(index);
                return Err(error);
            }
        }
        Ok(())
    }

    fn connect<D: Driver>(
        &mut self,
        driver: &mut D,
        index: u32,
        now_ns: u64,
    ) -> Result<(), IoError> {
        let sources = &self.shared.config.plan.sources;
        let source = sources.map(|sources| sources.at(self.place_of(index)));
        let socket = match &self.script {
            None => {
                let address = self.address_of(index);
                driver.connect_from(&self.shared.config.target.addresses[address], source)?
            }
            Some(script) => driver.connect_from(&script.address(), source)?,
        };
        let slot = socket.slot();
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, NOBODY);
        }
        self.by_slot[slot] = index;
        self.sessions[index as usize].state = ConnectionState::Connecting {
            socket,
            since_ns: now_ns,
        };
        self.connecting += 1;
        Ok(())
    }

    /// Which of the target's addresses a session uses.
    fn address_of(&self, index: u32) -> usize {
        let config = self.shared.config;
        let place = match config.plan.addresses {
            AddressUse::All => self.place_of(index),
            AddressUse::First => 0,
        };
        let choice = self.sessions[index as usize].address;
        choice.index(place, config.target.addresses.len())
    }

    /// Whether another of the target's addresses is left for an attempt that failed; it is made at once.
    fn tries_another_address(&mut self, index: u32, now_ns: u64) -> bool {
        let session = &mut self.sessions[index as usize];
        // A script names its address itself.
        let is_left = self.script.is_none()
            && session
                .address
                .failed(self.shared.config.target.addresses.len());
        if is_left {
            session.state = ConnectionState::Closed { retry_ns: now_ns };
            self.closed.push_front(index);
            self.next_housekeeping_ns = now_ns;
        }
        is_left
    }

    pub(super) fn session_of(&self, socket: SocketId) -> Option<u32> {
        let index = *self.by_slot.get(socket.slot())?;
        let session = self.sessions.get(index as usize)?;
        (session.socket() == Some(socket)).then_some(index)
    }

    /// Splits the time of opening a connection that has just come up.
    pub(super) fn note_handshake<D: Driver>(
        &mut self,
        driver: &D,
        index: u32,
        socket: SocketId,
        now_ns: u64,
    ) {
        if let Some(began_ns) = driver.handshake_began_ns(socket)
            && let ConnectionState::Connecting { since_ns, .. } =
                self.sessions[index as usize].state
        {
            self.openings.record(since_ns, began_ns, now_ns);
        }
    }

    pub(super) fn connected(&mut self, index: u32, socket: SocketId, now_ns: u64) {
        self.connecting -= 1;
        self.shared.doors.open.fetch_add(1, Ordering::Relaxed);
        self.shared.doors.opened.fetch_add(1, Ordering::Relaxed);
        self.settle(index);
        if !self.sessions[index as usize].has_opened {
            self.shared.doors.reached.fetch_add(1, Ordering::Relaxed);
        }
        if let ConnectionState::Connecting { since_ns, .. } = self.sessions[index as usize].state {
            self.outcome.opening.record(now_ns.saturating_sub(since_ns));
        }
        self.note_address(index);
        if let Some(outages) = &self.shared.outages {
            outages.connected(now_ns);
        }
        self.sessions[index as usize].opened(socket, now_ns);
        // A script's delay belongs to its user and not to the connection: a delay that had begun continues.
        self.offer(index);
    }

    /// Of a target with several addresses it is counted which took how many connections.
    fn note_address(&self, index: u32) {
        let uses = &self.shared.address_uses;
        if !uses.is_empty() && self.script.is_none() {
            uses[self.address_of(index)].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn connect_failed(&mut self, index: u32, failure: ConnectFailure, now_ns: u64) {
        self.connecting -= 1;
        self.shared.doors.failed(failure);
        if self.tries_another_address(index, now_ns) {
            return;
        }
        match &self.shared.outages {
            // In an outage the requests are the failures; reconnection attempts are not counted.
            Some(outages) if self.has_begun => outages.attempt_failed(now_ns),
            _ => self.outcome.errors.connect += 1,
        }
        let kind = match failure {
            ConnectFailure::Handshake(_) => LoadFailureKind::Tls,
            _ => LoadFailureKind::Connect,
        };
        let place = self.place_of(index);
        let causes = &mut self.outcome.causes;
        causes.tls += u64::from(kind == LoadFailureKind::Tls);
        causes.note(kind, now_ns, place, || failure.to_string(), b"");
        self.settle(index);
        self.sessions[index as usize].closed(now_ns);
        self.closed.push_back(index);
    }

    pub(super) fn settle(&mut self, index: u32) {
        let session = &mut self.sessions[index as usize];
        if !session.has_settled {
            session.has_settled = true;
            self.shared.doors.settled.fetch_add(1, Ordering::Release);
        }
    }

    /// A connection is over (its socket is closed already): its requests have failed, unless the
    /// server had announced that it would not respond to them.
    pub(super) fn lost(&mut self, index: u32, phase: Phase, now_ns: u64) {
        let session = &mut self.sessions[index as usize];
        self.connection_use.note(session.answered_count());
        let was_announced = session.is_last();
        if let Some(outages) = &self.shared.outages {
            let in_flight = session.in_flight_len() as u64;
            outages.lost(now_ns, if was_announced { 0 } else { in_flight });
        }
        for request in session.drain() {
            self.in_flight -= 1;
            if was_announced {
                let InFlight {
                    number,
                    intended_ns,
                    counted,
                    ..
                } = request;
                self.repeats.push_back(Arrival {
                    number,
                    intended_ns,
                    counted,
                });
            } else {
                self.outcome.failed(&request, phase, now_ns);
            }
        }
        session.closed(now_ns);
        if session.state == (ConnectionState::Closed { retry_ns: now_ns }) {
            // Its place is taken at the end of this tick.
            self.next_housekeeping_ns = now_ns;
        }
        self.shared.doors.open.fetch_sub(1, Ordering::Relaxed);
        self.closed.push_back(index);
    }

    /// Where a session stands among those of all threads.
    pub(super) fn place_of(&self, index: u32) -> usize {
        index as usize * self.shared.boards.len() + self.board_index
    }

    /// With a ramp all connections but the first of all wait until sending begins.
    pub(super) fn hold_back_for_ramp(&mut self) {
        if self.shared.config.plan.ramp_ns == 0 {
            return;
        }
        self.has_ramp_ahead = true;
        for index in 0..self.sessions.len() as u32 {
            if self.place_of(index) > 0 {
                self.sessions[index as usize].state =
                    ConnectionState::Closed { retry_ns: u64::MAX };
                // No request waits for it.
                self.settle(index);
            }
        }
    }

    /// Sending begins at `start_ns`. Attempts that failed until then have been repeated, so each connection that is
    /// missing is one failure.
    pub(super) fn begin<D: Driver>(&mut self, driver: &mut D, start_ns: u64) {
        self.has_begun = true;
        self.outcome.errors.connect = 0;
        self.outcome.causes.tls = 0;
        if self.shared.doors.is_short.load(Ordering::Acquire) {
            self.give_up_unopened(driver);
        }
        let open = self.sessions.iter().filter(|session| session.is_open());
        let doors = &self.shared.doors;
        doors
            .open_at_start
            .fetch_add(open.count(), Ordering::Relaxed);
        if self.has_ramp_ahead {
            self.start_ramp(start_ns);
        }
    }

    /// No connection is opened for the first time while requests are timed: a handshake costs the target more than
    /// most requests.
    fn give_up_unopened<D: Driver>(&mut self, driver: &mut D) {
        let sessions = &mut self.sessions;
        for session in sessions.iter_mut().filter(|session| !session.has_opened) {
            if let ConnectionState::Connecting { socket, .. } = session.state {
                driver.close(socket);
                self.connecting -= 1;
            }
            session.state = ConnectionState::Closed { retry_ns: u64::MAX };
            self.outcome.errors.connect += 1;
        }
        let failure = self.shared.doors.last_failure();
        if matches!(failure, Some(ConnectFailure::Handshake(_))) {
            self.outcome.causes.tls = self.outcome.errors.connect;
        }
        self.closed
            .retain(|&index| sessions[index as usize].has_opened);
    }

    /// Now it is known when each connection is due.
    fn start_ramp(&mut self, start_ns: u64) {
        self.has_ramp_ahead = false;
        let config = self.shared.config;
        for index in 0..self.sessions.len() as u32 {
            let place = self.place_of(index) as u128;
            let session = &mut self.sessions[index as usize];
            if session.state == (ConnectionState::Closed { retry_ns: u64::MAX }) {
                let after_ns = u128::from(config.plan.ramp_ns) * place / config.connections as u128;
                let retry_ns = start_ns + after_ns as u64;
                session.state = ConnectionState::Closed { retry_ns };
            }
        }
    }

    /// Lets a session take requests if it has room.
    pub(super) fn offer(&mut self, index: u32) {
        if let Some(mut script) = self.script.take() {
            self.offer_scripted(&mut script, index);
            self.script = Some(script);
            return;
        }
        self.free.offer(&mut self.sessions, index);
    }
}

// The readers of a worker's responses besides the clocks.

impl Worker<'_> {
    /// Adds the readers of responses in this run.
    pub(super) fn give_listeners(&mut self) {
        let config = self.shared.config;
        if config.batch_latency {
            self.batches = Some(Box::new(Batches::new(self.sessions.len())));
        }
        if config.samples_max > 0 {
            let room = config.samples_max / self.shared.boards.len();
            self.samples = Some(Box::new(Samples::new(room)));
        }
        self.has_listener = self.batches.is_some() || self.samples.is_some();
        if let Some(plan) = &config.cookies {
            let (users, is_tls) = (self.sessions.len(), config.tls.is_some());
            let cookies = Cookies::new(plan, users, is_tls, config.pool_mode);
            self.cookies = Some(Box::new(cookies));
            self.has_listener = true;
        }
    }

    /// Has a script make the requests.
    pub(crate) fn take_script(&mut self, script: Box<Runner>) {
        self.has_listener |= script.wants_responses();
        self.script = Some(script);
    }
}

// A worker's work that is not per request: flags, timeouts, reconnects, and the end of the run.

impl Worker<'_> {
    /// Everything that is not per request.
    pub(super) fn run_periodic<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
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

    /// This process cannot open a socket. Before the run that is an error for the user; in the
    /// middle of it descriptors may come free again, and the attempt counts as failed.
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
                ConnectionState::Closed { .. } => continue,
                ConnectionState::Connecting { socket, since_ns } => (socket, Some(since_ns)),
                ConnectionState::Open { socket } => (socket, session.oldest_written_ns()),
            };
            if since_ns.is_none_or(|since_ns| now_ns.saturating_sub(since_ns) < timeout_ns) {
                continue;
            }
            let is_open = session.is_open();
            shard.driver.close(socket);
            if is_open {
                let place = self.place_of(index as u32);
                let what = || format!("no response within {} ms", timeout_ns / 1_000_000);
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

    /// The drain is over: requests without a response have timed out, unsent ones are never sent.
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

    /// The run is cut off: requests under way have neither succeeded nor failed.
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

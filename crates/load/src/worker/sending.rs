//! A worker's sends: due requests go to free connections, and each connection's batch leaves in one write.
//!
//! Each write is stamped just before it is made, and all requests in it with it.
//! Absent on purpose: waiting for a batch to grow. What is due and has room leaves in this tick.
use super::Worker;
use crate::outcome::Outcome;
use crate::schedule::{Arrival, Schedule};
use crate::session::State;
use millpond_io::{Driver, SendOutcome, ShardContext};

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

    /// In a run that goes on without its target: no connection took the request in time.
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
            && schedule.has_plenty(self.shared.places())
        {
            return self.fill(shard, schedule);
        } else {
            self.dispatch(shard, schedule);
        }
        self.flush(shard);
    }

    /// Fills the pipelines of all connections with room, each by one write. For a closed loop whose
    /// requests are all the same and more than there are places for, so that it does not matter
    /// which connection gets which.
    fn fill<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, schedule: &Schedule) {
        let shared = self.shared;
        let Some(request) = shared.requests.fixed() else {
            return;
        };
        while let Some(free) = self.free.first(&mut self.sessions) {
            let index = free.index;
            let session = &self.sessions[index as usize];
            // Who can take requests is open; who is not stands there no longer.
            let State::Open { socket } = session.state else {
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
        let State::Open { socket } = session.state else {
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

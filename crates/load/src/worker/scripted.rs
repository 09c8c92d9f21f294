//! A worker whose requests a script makes: whole strings of them, as many as the script likes.
//!
//! A string leaves at once, so its first request decides when: the others take the arrivals that
//! come next, and if one of those was not due yet, its request left early and its intended start is
//! the write. So a rate counts requests and not strings, and each is timed by itself.
//! Absent on purpose: cutting a string where a count or the window ends. What is left of it then
//! leaves uncounted.
use super::Worker;
use super::sending::Owed;
use crate::outcome::{InFlight, Phase};
use crate::schedule::{Arrival, Schedule};
use crate::script::Runner;
use millpond_io::{Driver, ShardContext};

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

    /// What was claimed stays unsent; answers under way are waited for.
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

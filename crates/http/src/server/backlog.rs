//! Connections that had their share of a tick: who goes on next, and how many at once.
//!
//! Floods of pipelined requests, and answers in parts to clients that take them, want more of the
//! shard than one tick gives them. They have their turns in order, a few in each tick, so that what
//! everybody else waits for them does not grow with their number.

use super::Server;
use crate::service::Service;
use millpond_io::{Driver, ShardContext};

/// Connections that go on in one tick: a share is 64 requests, some ten microseconds.
const TURNS_PER_TICK_MAX: usize = 8;
/// The same while clients ask and wait for each answer: all of it is what they wait for.
const TURNS_BESIDE_REGULARS: usize = 2;
/// And what a share is then.
const REQUESTS_BESIDE_REGULARS: usize = 16;
/// A tick that has taken so long already when the backlog would have its turn is long enough for them:
/// the backlog's is the next one.
const TICK_NS_BEFORE_BACKLOG: u64 = 30_000;
/// What the next part of an answer counts for: 32 KiB that are read, and copied to the kernel.
const STREAM_TURNS: usize = 4;

impl<S: Service> Server<S> {
    /// Whether the tick was long and somebody waits for its end. Never twice in a row: a crowd that makes
    /// every tick long would leave no turn.
    fn is_late<D: Driver>(&mut self, shard: &ShardContext<'_, D>) -> bool {
        self.is_backlog_late = !self.is_backlog_late
            && shard.driver.has_regulars()
            && shard.driver.clock_ns().saturating_sub(shard.now_ns) > TICK_NS_BEFORE_BACKLOG;
        self.is_backlog_late
    }

    pub(super) fn serve_backlog<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        if !self.backlog_due.is_empty() && self.is_late(shard) {
            self.backlog_due.append(&mut self.exchange.marks.backlogged);
            return;
        }
        let mut due = std::mem::take(&mut self.backlog_due);
        let requests_max = self.exchange.limits.pipelined_per_tick_max;
        let (turns_max, requests) = match shard.driver.has_regulars() {
            true => (
                TURNS_BESIDE_REGULARS,
                requests_max.min(REQUESTS_BESIDE_REGULARS),
            ),
            false => (TURNS_PER_TICK_MAX, requests_max),
        };
        self.exchange.requests_per_turn = requests;
        let (mut turns, mut had_turn) = (0, 0);
        while turns < turns_max && had_turn < due.len() {
            let socket = due[had_turn];
            had_turn += 1;
            if let Some(connection) = self.connections.get_mut(socket) {
                turns += match connection.stream {
                    Some(_) => STREAM_TURNS,
                    None => 1,
                };
                connection.is_backlogged = false;
                self.go_on(shard, socket);
            }
        }
        due.drain(..had_turn);
        // Behind those that had no turn yet.
        due.append(&mut self.exchange.marks.backlogged);
        self.backlog_due = due;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::bench::Bench;
    use millpond_io::{EpollDriver, Event, Protocol, SocketId};

    /// 500 clients that read nothing of a large file, or send requests without end, were all served
    /// in each tick: everybody else waited for 500 shares, 70 ms. Goal: a tick serves the shares of
    /// a few, and each connection has its turn before any has its next.
    #[test]
    fn a_crowd_with_more_to_do_takes_turns() {
        const CROWD: u64 = 100;
        let mut bench = Bench::new();
        let share = bench.server.exchange.limits.pipelined_per_tick_max as u64;
        let requests = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3 * share as usize);
        let socket = |slot: u64| SocketId::from_bits(slot | 1 << 32);
        for slot in 0..CROWD {
            let socket = socket(slot);
            bench.event(Event::Accepted { socket });
            let bytes = &requests[..];
            bench.event(Event::Received { socket, bytes });
        }
        let served = |bench: &Bench| bench.server.exchange.counters.requests;
        assert_eq!(
            served(&bench),
            CROWD * share,
            "what arrives gets its share at once"
        );
        bench.act(Server::tick_ended);
        let mut before = served(&bench);
        let rounds = 2 * CROWD / TURNS_PER_TICK_MAX as u64;
        for tick in 0..rounds {
            bench.act(Server::tick_ended);
            let now = served(&bench);
            assert_eq!(
                now - before,
                TURNS_PER_TICK_MAX as u64 * share,
                "tick {tick}"
            );
            before = now;
        }
        assert_eq!(before, 3 * CROWD * share, "everything is answered");
        bench.act(Server::tick_ended);
        assert_eq!(served(&bench), before);
        let plan =
            bench.act(|server, shard| Protocol::<EpollDriver>::wait_plan(server, shard.now_ns));
        assert_eq!(plan.deadline_ns, None, "nothing is left to hurry for");
    }
}

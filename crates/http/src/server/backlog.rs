//! Connections that had their share of a tick: who goes on next, and how many at once.
//!
//! Floods of pipelined requests, and answers in parts to clients that take them, want more of the
//! shard than one tick gives them. They have their turns in order, a few in each tick, so that what
//! everybody else waits for them does not grow with their number.

use super::Server;
use crate::service::Service;
use millpond_io::{Driver, ShardContext, TICK_NS};

/// Requests of one share: a hundred are some 50 us.
const SHARE_REQUESTS: usize = 16;
/// What a share takes, with its answers.
const SHARE_NS: u64 = TICK_NS / 4;
/// Shares of one tick: what everybody else waits for them.
const SHARES_PER_TICK: usize = (TICK_NS / SHARE_NS) as usize;
/// What the next part of an answer counts for: 32 KiB that are read, and copied to the kernel.
const STREAM_SHARES: usize = 2;

impl<S: Service> Server<S> {
    pub(super) fn serve_backlog<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let requests_max = self.exchange.limits.pipelined_per_tick_max;
        self.exchange.requests_per_turn = requests_max.min(SHARE_REQUESTS);
        let mut due = std::mem::take(&mut self.backlog_due);
        let (mut shares, mut had_turn) = (0, 0);
        while shares < SHARES_PER_TICK && had_turn < due.len() {
            let socket = due[had_turn];
            had_turn += 1;
            if let Some(connection) = self.connections.get_mut(socket) {
                shares += match connection.stream {
                    Some(_) => STREAM_SHARES,
                    None => 1,
                };
                connection.is_backlogged = false;
                self.go_on(shard, socket);
            }
        }
        self.exchange.requests_per_turn = requests_max;
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
        let backlog_share = SHARE_REQUESTS as u64;
        let rounds = 2 * CROWD * share / (SHARES_PER_TICK as u64 * backlog_share);
        for tick in 0..rounds {
            bench.act(Server::tick_ended);
            let now = served(&bench);
            assert_eq!(
                now - before,
                SHARES_PER_TICK as u64 * backlog_share,
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

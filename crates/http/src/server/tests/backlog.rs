use super::*;
use crate::server::test_server::TestServer;
use millpond_io::{EpollDriver, Event, Protocol, SocketId};

/// 500 clients that read nothing of a large file, or send requests without end, were all served in each tick: all
/// others waited for 500 shares, 70 ms. Goal: a tick serves the shares of a few, and each connection has its turn
/// before any has its next.
#[test]
fn a_crowd_with_more_to_do_takes_turns() {
    const CROWD: u64 = 100;
    let mut bench = TestServer::new();
    let share = bench.server.exchange.limits.pipelined_per_tick_max as u64;
    let requests = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3 * share as usize);
    let socket = |slot: u64| SocketId::from_bits(slot | 1 << 32);
    for slot in 0..CROWD {
        let socket = socket(slot);
        bench.event(Event::Accepted { socket });
        let bytes = &requests[..];
        bench.event(Event::Received { socket, bytes });
    }
    let served = |bench: &TestServer| bench.server.exchange.counters.requests;
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
    let plan = bench.act(|server, shard| Protocol::<EpollDriver>::wait_plan(server, shard.now_ns));
    assert_eq!(plan.deadline_ns, None, "nothing is left to hurry for");
}

//! The generator against a server whose delays are known to the nanosecond: over a simulated network
//! the clocks can be checked for what they show, not only for being plausible.

use super::Worker;
use crate::config::{LoadConfig, Mode, Stop, Target, Workload};
use crate::outcome::Outcome;
use crate::schedule::Schedule;
use crate::shared::Shared;
use crate::timeline::Timeline;
use crate::workload::Requests;
use millpond_http::Method;
use millpond_io::driver::sim::{FaultPlan, Network, PeerRead, SimPeer, Turn};
use millpond_io::{Address, Shard, ShardConfig};
use millpond_mempool::PoolMode;
use std::collections::VecDeque;

const MS_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000 * MS_NS;

/// How often the server looks for requests and due answers.
const LOOK_NS: u64 = 20_000;

/// How much later than the server meant an answer may be seen: its look, and the worker's tick.
const SLACK_NS: u64 = 2 * LOOK_NS + 10_000;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn address() -> Address {
    "10.0.0.1:80".parse().unwrap()
}

/// One connection as the server sees it.
struct Served {
    peer: SimPeer,
    unread: Vec<u8>,
    /// When the answers in front leave.
    due_ns: VecDeque<u64>,
    unsent: Vec<u8>,
}

impl Served {
    /// `answer_at_ns`: when a request that came now is answered.
    fn act(&mut self, now_ns: u64, answer_at_ns: u64) {
        while let PeerRead::Bytes(_) = self.peer.read(&mut self.unread, usize::MAX) {}
        while let Some(end) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
            self.unread.drain(..end + 4);
            self.due_ns.push_back(answer_at_ns);
        }
        while self.due_ns.front().is_some_and(|&due_ns| due_ns <= now_ns) {
            self.due_ns.pop_front();
            self.unsent.extend_from_slice(ANSWER);
        }
        let sent = self.peer.write(&self.unsent).unwrap_or(0);
        self.unsent.drain(..sent);
    }
}

/// Answers a request that comes `since_ns` after the schedule's start at `answer_at(since_ns)`.
fn serve(network: &Network, start_ns: u64, answer_at: impl Fn(u64) -> u64 + 'static) {
    let mut connections: Vec<Served> = Vec::new();
    assert!(network.listen(&address()));
    network.spawn(move |network| {
        while let Some(peer) = network.accept(&address()) {
            connections.push(Served {
                peer,
                unread: Vec::new(),
                due_ns: VecDeque::new(),
                unsent: Vec::new(),
            });
        }
        let now_ns = network.now_ns();
        let answer_at_ns = start_ns + answer_at(now_ns.saturating_sub(start_ns));
        for connection in &mut connections {
            connection.act(now_ns, answer_at_ns);
        }
        Turn::At(now_ns + LOOK_NS)
    });
}

/// Ten seconds of load at this rate.
fn load(
    seed: u64,
    plan: FaultPlan,
    change: impl FnOnce(&mut LoadConfig),
    answer_at: impl Fn(u64) -> u64 + 'static,
) -> Outcome {
    let target = Target {
        address: address(),
        host: "a".to_owned(),
        path: "/".to_owned(),
    };
    let workload = Workload::Static {
        method: Method::Get,
        fields: Vec::new(),
        body: Vec::new(),
    };
    let mut config = LoadConfig::new(target, workload);
    config.mode = Mode::ConstantRate { per_s: 100.0 };
    config.stop = Stop::after_ns(10 * SECOND_NS);
    change(&mut config);
    config.check().unwrap();
    let network = Network::new(seed, plan);
    let start_ns = network.now_ns() + SECOND_NS;
    serve(&network, start_ns, answer_at);
    let pace = config.pace().unwrap();
    let shared = Shared::new(&config, pace.clone(), Requests::new(&config).unwrap(), 1);
    let stop = config.stop;
    let schedule = Schedule::new(pace, start_ns, 0, stop.duration_ns, stop.requests);
    assert!(shared.schedule.set(schedule).is_ok());
    let driver = network.driver(config.pool_mode).unwrap();
    let shard_config = ShardConfig {
        index: 0,
        cpu: None,
        pool_mode: PoolMode::On,
    };
    let mut worker = Worker::new(&shared, 0, config.connections);
    Shard::new(shard_config, driver).run(&mut worker).unwrap();
    assert!(worker.failure.is_none());
    worker.end_seconds();
    let mut timeline = Timeline::new(&shared.exchange, 1);
    timeline.collect(start_ns, &mut |_| {});
    let mut outcome = worker.outcome;
    outcome.change(timeline.totals);
    outcome
}

/// Goal: against a server that answers after exactly 3 ms, every request leaves on time and every
/// clock shows 3 ms, for each of them.
#[test]
fn a_constant_delay_is_measured_exactly() {
    let outcome = load(
        1,
        FaultPlan::none(),
        |_| {},
        |since_ns| since_ns + 3 * MS_NS,
    );
    assert_eq!((outcome.sent, outcome.requests()), (1_000, 1_000));
    assert_eq!(outcome.errors.total(), 0);
    for (name, clock) in [
        ("response", &outcome.response),
        ("service", &outcome.service),
    ] {
        assert_eq!(clock.count(), 1_000, "{name}");
        let is_exact = clock.min() >= 3 * MS_NS - MS_NS / 100
            && clock.max() <= 3 * MS_NS + SLACK_NS + MS_NS / 100;
        assert!(is_exact, "{name}: {} to {}", clock.min(), clock.max());
    }
}

/// Goal: a server that stalls for a second is shown as that by response time, from the intended
/// starts: 100 requests were due in that second, and those late by half a second or more are
/// half of them. Service time sees one slow request, which is the error it is known for.
#[test]
fn a_stall_is_charged_to_all_who_were_due_in_it() {
    let stall = |since_ns: u64| match since_ns {
        since_ns if (4 * SECOND_NS..5 * SECOND_NS).contains(&since_ns) => 5 * SECOND_NS,
        since_ns => since_ns + MS_NS / 10,
    };
    let outcome = load(1, FaultPlan::none(), |_| {}, stall);
    assert_eq!((outcome.sent, outcome.errors.total()), (1_000, 0));
    let slower_than = |limit_ns: u64, clock: &millpond_measure::histogram::LatencyHistogram| {
        let bins = clock.bins().filter(|&(value_ns, _)| value_ns >= limit_ns);
        bins.map(|(_, count)| count).sum::<u64>()
    };
    let late = slower_than(SECOND_NS / 2, &outcome.response);
    assert!((49..=52).contains(&late), "{late} of the 100 that were due");
    assert_eq!(slower_than(SECOND_NS / 2, &outcome.service), 1);
    let max_ns = outcome.response.max();
    assert!((990 * MS_NS..1_010 * MS_NS).contains(&max_ns), "{max_ns}");
}

/// Goal: whatever the network does to bytes and completions, every request is counted once: sent
/// ones are answered, all are in time for the window, and none is an error.
#[test]
fn faults_of_the_network_lose_no_request() {
    for seed in 0..20 {
        let plan = FaultPlan {
            // Failed connects are errors by right.
            connect_failures: 0.0,
            ..FaultPlan::drawn(seed)
        };
        let set_up = |config: &mut LoadConfig| {
            config.connections = 7;
            config.pipeline = 3;
            config.stop = Stop::after_requests(500);
        };
        let outcome = load(seed, plan, set_up, |since_ns| since_ns + 2 * MS_NS);
        let counts = (outcome.sent, outcome.requests(), outcome.response.count());
        assert_eq!(counts, (500, 500, 500), "seed {seed}");
        assert_eq!(outcome.errors.total(), 0, "seed {seed}");
    }
}

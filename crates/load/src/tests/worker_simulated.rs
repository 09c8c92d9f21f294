//! The generator against a server whose delays are known to the nanosecond: over a simulated network
//! the clocks can be checked for what they show, not only for being plausible.

use super::Worker;
use crate::config::{LoadConfig, Mode, Stop, WarmUp};
use crate::outcome::Outcome;
use crate::schedule::Schedule;
use crate::shared::Shared;
use crate::timeline::Timeline;
use crate::workload::Requests;
use millpond_io::driver::sim::{FaultPlan, Network, PeerRead, SimPeer, Turn};
use millpond_io::{Address, Shard, ShardConfig};
use millpond_measure::record::LoadSecond;
use millpond_mempool::PoolMode;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

const MS_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000 * MS_NS;

/// How often the server checks for requests and due responses.
const LOOK_NS: u64 = 20_000;

/// How much later than the server intended a response may be seen: its check, and the worker's tick.
const SLACK_NS: u64 = 2 * LOOK_NS + 10_000;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn address() -> Address {
    "10.0.0.1:80".parse().unwrap()
}

/// One connection on the server's side.
struct Served {
    peer: SimPeer,
    unread: Vec<u8>,
    /// When the responses in front leave.
    due_ns: VecDeque<u64>,
    unsent: Vec<u8>,
}

impl Served {
    /// `answer_at_ns`: when the response to the arrived request is sent.
    fn act(&mut self, now_ns: u64, mut answer_at_ns: impl FnMut(usize) -> u64) {
        while let PeerRead::Bytes(_) = self.peer.read(&mut self.unread, usize::MAX) {}
        while let Some(end) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
            self.unread.drain(..end + 4);
            self.due_ns.push_back(answer_at_ns(self.due_ns.len()));
        }
        while self.due_ns.front().is_some_and(|&due_ns| due_ns <= now_ns) {
            self.due_ns.pop_front();
            self.unsent.extend_from_slice(ANSWER);
        }
        let sent = self.peer.write(&self.unsent).unwrap_or(0);
        self.unsent.drain(..sent);
    }
}

/// A request on the server's side.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Counts the requests, from 0.
    number: usize,
    /// Counts the connections, from 0.
    connection: usize,
    /// Requests of its connection without a response so far.
    before: usize,
    /// When it came, after the schedule's start.
    since_ns: u64,
}

/// Responds to each request at the time after the schedule's start that `answer_at` returns.
fn serve(network: &Network, start_ns: u64, mut answer_at: impl FnMut(Asked) -> u64 + 'static) {
    let mut connections: Vec<Served> = Vec::new();
    let mut number = 0;
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
        for (place, connection) in connections.iter_mut().enumerate() {
            connection.act(now_ns, |before| {
                let asked = Asked {
                    number,
                    connection: place,
                    before,
                    since_ns: now_ns.saturating_sub(start_ns),
                };
                number += 1;
                start_ns + answer_at(asked)
            });
        }
        Turn::At(now_ns + LOOK_NS)
    });
}

/// Ten seconds of load at this rate.
fn load(
    seed: u64,
    plan: FaultPlan,
    change: impl FnOnce(&mut LoadConfig),
    answer_at: impl FnMut(Asked) -> u64 + 'static,
) -> Outcome {
    run(seed, plan, change, answer_at).outcome
}

struct Ran {
    outcome: Outcome,
    /// After the schedule's start.
    rate_end_ns: u64,
    seconds: Vec<LoadSecond>,
}

fn run(
    seed: u64,
    plan: FaultPlan,
    change: impl FnOnce(&mut LoadConfig),
    answer_at: impl FnMut(Asked) -> u64 + 'static,
) -> Ran {
    let mut config = LoadConfig::for_tests();
    config.target.addresses = [address()].into();
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
    let warm_up_ns = config.warm_up.known_ns();
    let schedule = Schedule::new(pace, start_ns, warm_up_ns, stop.duration_ns, stop.requests);
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
    let rate_end_ns = shared.schedule.get().unwrap().rate_end_ns();
    Ran {
        outcome,
        rate_end_ns: rate_end_ns.saturating_sub(start_ns),
        seconds: timeline.seconds,
    }
}

/// Goal: a generator whose ticks take up to 0.2 ms sends late and sees responses late, and its clocks show that. Those
/// that leave its stalls out contain only the unknowable: that it woke late for a response, while nothing else was due.
#[test]
fn stalls_of_the_generator_are_left_out() {
    let plan = FaultPlan {
        tick_ns_max: 200_000,
        ..FaultPlan::none()
    };
    let set_up = |config: &mut LoadConfig| {
        config.watch_stalls = true;
        config.connections = 4;
    };
    let outcome = load(5, plan, set_up, |asked| asked.since_ns + 3 * MS_NS);
    assert_eq!(outcome.requests(), 1_000);
    let undisturbed = &outcome.stalls.as_ref().unwrap().undisturbed;
    assert_eq!(
        undisturbed.response.count() + undisturbed.left_out,
        outcome.requests()
    );
    let (all, rest) = (outcome.response.max(), undisturbed.response.max());
    assert!(
        undisturbed.left_out > 100 && undisturbed.response.count() > 100,
        "{undisturbed:?}"
    );
    let is_shorter = all > 3 * MS_NS + 350_000 && rest < 3 * MS_NS + 200_000 + 2 * SLACK_NS;
    assert!(is_shorter, "{all} {rest}");
}

/// Goal: the last second of an open loop lasts as long as the window, however early the last response came: a thread
/// that was done a millisecond before once made it a millisecond shorter, and its rate higher.
#[test]
fn the_last_second_lasts_as_long_as_the_window() {
    let set_up = |config: &mut LoadConfig| config.stop = Stop::after_ns(2_500 * MS_NS);
    let answer = |asked: Asked| asked.since_ns + MS_NS;
    let ran = run(1, FaultPlan::none(), set_up, answer);
    let lengths: Vec<u64> = ran.seconds.iter().map(|one| one.duration_ns).collect();
    assert_eq!(lengths, [SECOND_NS, SECOND_NS, 500 * MS_NS]);
    let requests: u64 = ran.seconds.iter().map(|one| one.requests).sum();
    assert_eq!((requests, ran.outcome.requests()), (250, 250));
}

/// Goal: a straggler does not decide the rate of a number of requests: what counts for it has its response before a
/// connection finds none to send, and all still get a response and are counted.
#[test]
fn a_straggler_does_not_decide_the_rate() {
    let set_up = |config: &mut LoadConfig| {
        config.mode = Mode::ClosedLoop;
        config.connections = 4;
        config.stop = Stop::after_requests(400);
    };
    let answer = |asked: Asked| match asked.number {
        200 => asked.since_ns + 1_000 * MS_NS,
        _ => asked.since_ns + MS_NS,
    };
    let ran = run(1, FaultPlan::none(), set_up, answer);
    let (outcome, rate_end_ns) = (ran.outcome, ran.rate_end_ns);
    assert_eq!((outcome.sent, outcome.requests()), (400, 400));
    assert!(outcome.service.max() >= 999 * MS_NS);
    // Half of them by four connections, and half by three.
    let expected_ns = (50 + 67) * MS_NS;
    let is_near = rate_end_ns.abs_diff(expected_ns) < expected_ns / 10;
    assert!(is_near, "{rate_end_ns}");
    let answers = outcome.answered_in_window;
    assert!((396..400).contains(&answers), "{answers}");
}

/// Goal: against a server that responds after exactly 3 ms, every request leaves on time and every
/// clock shows 3 ms, for each of them.
#[test]
fn a_constant_delay_is_measured_exactly() {
    let outcome = load(
        1,
        FaultPlan::none(),
        |_| {},
        |asked| asked.since_ns + 3 * MS_NS,
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
    let stall = |asked: Asked| match asked.since_ns {
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

/// Goal: with room left in every pipeline, requests still go to idle connections first, so nothing
/// queues behind a stall that another connection could have served.
#[test]
fn pipelines_fill_only_when_no_connection_is_idle() {
    let set_up = |config: &mut LoadConfig| {
        config.connections = 4;
        config.pipeline = 8;
    };
    let outcome = load(1, FaultPlan::none(), set_up, |asked| {
        assert_eq!(asked.before, 0, "{asked:?}");
        let stall_ns = if asked.number == 20 { 400 * MS_NS } else { 0 };
        asked.since_ns + stall_ns
    });
    assert_eq!((outcome.sent, outcome.requests()), (1_000, 1_000));
}

/// Goal: connections of a ramp join one after the other, each when it is due, while others send.
#[test]
fn a_ramp_adds_connections_while_sending() {
    let joined = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&joined);
    let set_up = |config: &mut LoadConfig| {
        config.mode = Mode::ClosedLoop;
        config.connections = 8;
        config.plan.ramp_ns = 400 * MS_NS;
        config.stop = Stop::after_ns(SECOND_NS);
    };
    let outcome = load(1, FaultPlan::none(), set_up, move |asked| {
        let mut joined = seen.borrow_mut();
        if asked.connection == joined.len() {
            joined.push((asked.number, asked.since_ns));
        }
        asked.since_ns + MS_NS
    });
    assert_eq!(outcome.errors.total(), 0);
    let joined = joined.borrow();
    assert_eq!(joined.len(), 8);
    for (place, (number, since_ns)) in joined.iter().enumerate() {
        let late_ns = since_ns - place as u64 * 50 * MS_NS;
        // The worker checks every 10 ms whether one is due.
        assert!(late_ns <= 15 * MS_NS, "{place}: {late_ns}");
        assert!(*number >= place * 20, "others send meanwhile: {joined:?}");
    }
}

/// Goal: in a closed loop what began in warm-up is left out of the count, and all else is in it.
#[test]
fn warm_up_of_a_closed_loop_is_not_counted() {
    let asked_of = Rc::new(Cell::new((0, 0)));
    let seen = Rc::clone(&asked_of);
    let set_up = |config: &mut LoadConfig| {
        config.mode = Mode::ClosedLoop;
        config.warm_up = WarmUp::Lasting {
            duration_ns: 200 * MS_NS,
        };
        config.stop = Stop::after_ns(300 * MS_NS);
    };
    let outcome = load(1, FaultPlan::none(), set_up, move |asked| {
        let (before, after) = seen.get();
        seen.set(match asked.since_ns < 200 * MS_NS {
            true => (before + 1, after),
            false => (before, after + 1),
        });
        asked.since_ns + MS_NS
    });
    let (before, after) = asked_of.get();
    assert!(before > 150 && after > 200, "{before} {after}");
    // The one at the edge was sent before it and came after it, or not.
    assert!(outcome.requests().abs_diff(after) <= 1);
    assert_eq!(outcome.requests(), outcome.sent);
}

/// Goal: a request later than the deadline is not sent, so no sent request had waited longer.
#[test]
fn a_deadline_bounds_slip() {
    let set_up = |config: &mut LoadConfig| {
        config.mode = Mode::ConstantRate { per_s: 500.0 };
        config.deadline_ns = Some(50 * MS_NS);
        config.stop = Stop::after_ns(SECOND_NS);
    };
    let outcome = load(1, FaultPlan::none(), set_up, |asked| {
        asked.since_ns + 20 * MS_NS
    });
    assert_eq!(outcome.requests() + outcome.shed, 500);
    assert!(outcome.shed > 400, "one connection serves at most 50");
    let slip_max_ns = outcome.slip.max();
    assert!(
        slip_max_ns > 40 * MS_NS && slip_max_ns <= 51 * MS_NS,
        "{slip_max_ns}"
    );
}

/// Goal: whatever the network does to bytes and completions, every request is counted once: sent
/// ones get a response, all are in time for the window, and none is an error.
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
        let outcome = load(seed, plan, set_up, |asked| asked.since_ns + 2 * MS_NS);
        let counts = (outcome.sent, outcome.requests(), outcome.response.count());
        assert_eq!(counts, (500, 500, 500), "seed {seed}");
        assert_eq!(outcome.errors.total(), 0, "seed {seed}");
    }
}

//! Many clients of all manners at once, thousands of seeds: the well-mannered get exactly what
//! they are owed, whatever the others and the network do, and in the end nothing is left.

use crate::client::{Client, Ended, ResponseFraming};
use crate::line::Speech;
use crate::stage::{SECOND_NS, Stage};
use fastrand::Rng;
use millpond_http::{LimitValues, Limits};
use millpond_io::driver::sim::{FaultPlan, Turn};
use millpond_mempool::{Checks, PoolMode};
use std::cell::RefCell;
use std::num::NonZeroU64;
use std::ops::Range;
use std::rc::Rc;

/// Seeds tried without being asked for more: a few seconds.
const SEEDS: u64 = 60;

fn seeds() -> Range<u64> {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect(name));
    let from = number("MILLPOND_SIM_FROM", 0);
    from..from + number("MILLPOND_SIM_SEEDS", SEEDS)
}

/// Decisions of one seed before the first client comes.
#[derive(Debug)]
pub(crate) struct HostNoise {
    plan: FaultPlan,
    limits: Limits,
    pool_mode: PoolMode,
    clients: usize,
    /// The server has to stop while clients still send.
    stops_early: bool,
}

impl HostNoise {
    pub(crate) fn drawn(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x9e37_79b9_7f4a_7c15);
        let mut plan = FaultPlan::drawn(seed);
        if rng.u8(0..4) == 0 {
            plan.resets = [0.0001, 0.01][rng.usize(0..2)];
        }
        if rng.u8(0..4) == 0 {
            plan.descriptors_max = rng.usize(2..8);
        }
        let mut limits = LimitValues::default();
        limits.pipelined_per_tick_max = [1, 2, 64][rng.usize(0..3)];
        limits.output_bytes_max = [1, 1_000, limits.output_bytes_max][rng.usize(0..3)];
        if rng.u8(0..6) == 0 {
            limits.connections_max = rng.usize(2..8);
        }
        Self {
            plan,
            limits: limits.checked().unwrap(),
            pool_mode: drawn_pool_mode(&mut rng),
            clients: rng.usize(1..12),
            stops_early: rng.u8(0..5) == 0,
        }
    }

    fn lacks_memory(&self) -> bool {
        matches!(self.pool_mode, PoolMode::Checked(checks) if checks.fail_at.is_some())
    }

    /// Nothing but clients can end a connection.
    fn is_fair(&self) -> bool {
        let defaults = Limits::default();
        self.plan.resets == 0.0
            && self.plan.accept_failures == 0.0
            && self.plan.descriptors_max == usize::MAX
            && self.limits.connections_max == defaults.connections_max
            && !self.stops_early
            && !self.lacks_memory()
    }
}

/// Mostly as in production; now and then checked, or with each pool refusing one allocation.
fn drawn_pool_mode(rng: &mut Rng) -> PoolMode {
    let fail_at = NonZeroU64::new(rng.u64(1..60));
    let checks = Checks {
        guard_pages: false,
        fail_at: None,
    };
    match rng.u8(0..12) {
        0 => PoolMode::Off,
        1 => PoolMode::ArenaOnly,
        2 => PoolMode::Checked(checks),
        3 => PoolMode::Checked(Checks { fail_at, ..checks }),
        _ => PoolMode::On,
    }
}

/// Summary of a run, for comparison with another.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Played {
    end_ns: u64,
    counters: String,
    ends: Vec<(ResponseFraming, Ended)>,
}

/// Plays one seed through.
pub(crate) fn play(seed: u64) -> Played {
    play_in(seed, Speech::Clear)
}

pub(crate) fn play_in(seed: u64, speech: Speech) -> Played {
    let weather = HostNoise::drawn(seed);
    let (plan, limits) = (weather.plan.clone(), weather.limits);
    let mut stage = Stage::speaking(seed, plan, limits, weather.pool_mode, speech);
    let mut rng = Rng::with_seed(seed);
    let ends: Rc<RefCell<Vec<(ResponseFraming, Ended)>>> = Rc::default();
    for _ in 0..weather.clients {
        let mut client = Client::drawn(&stage.network, &mut rng, speech);
        client.may_be_cut = weather.lacks_memory() || weather.stops_early;
        let (ends, stop) = (Rc::clone(&ends), stage.stop_handle());
        let clients = weather.clients;
        stage
            .network
            .spawn(move |network| match client.act(network) {
                Ok(turn) => turn,
                Err(end) => {
                    let mut ends = ends.borrow_mut();
                    ends.push((client.manner, end));
                    if ends.len() == clients {
                        stop.request_stop();
                    }
                    Turn::Done
                }
            });
    }
    if weather.stops_early {
        let stop = stage.stop_handle();
        let mut due_ns = Some(stage.network.now_ns() + rng.u64(0..SECOND_NS / 10));
        stage.network.spawn(move |_| match due_ns.take() {
            Some(due_ns) => Turn::At(due_ns),
            None => {
                stop.request_stop();
                Turn::Done
            }
        });
    }
    let counters = format!("{:?}", stage.play());
    let ends = ends.take();
    if weather.is_fair() {
        assert_eq!(ends.len(), weather.clients);
        for (manner, end) in &ends {
            let is_owed = matches!(
                manner,
                ResponseFraming::Polite
                    | ResponseFraming::HalfClosing
                    | ResponseFraming::FinishingEarly
            );
            let is_well = if is_owed {
                *end == Ended::Satisfied
            } else {
                // A client that checks once a second cannot always finish a handshake in time.
                let is_too_slow = *manner == ResponseFraming::Silent && speech != Speech::Clear;
                matches!(end, Ended::Left | Ended::Satisfied | Ended::CutBetween)
                    || is_too_slow && *end == Ended::TurnedAway
            };
            assert!(is_well, "{manner:?} {end:?}; {weather:?}");
        }
    }
    Played {
        end_ns: stage.network.now_ns(),
        counters,
        ends,
    }
}

/// Goal: the invariants at the top of this file.
#[test]
fn the_well_mannered_get_what_they_are_owed() {
    for seed in seeds() {
        play(seed);
    }
}

/// Goal: the same over TLS, where a response without the server's goodbye behind it counts as cut.
#[test]
fn the_well_mannered_get_what_they_are_owed_over_tls() {
    for seed in seeds() {
        let version = if seed % 2 == 0 {
            Speech::Tls13
        } else {
            Speech::Tls12
        };
        play_in(seed, version);
    }
}

/// Goal: a failing seed can be examined: it runs the same again, to the nanosecond.
#[test]
fn a_seed_plays_the_same_again() {
    for seed in 0..5 {
        assert_eq!(play(seed), play(seed));
    }
    assert_ne!(play(5), play(6));
}

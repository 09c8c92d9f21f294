//! The timer wheel against a model that scans a list.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use millpond_io::timer_wheel::GRANULE_NS;
use millpond_io::{TimerId, TimerWheel};
use proptest::prelude::*;
use std::collections::HashMap;

/// A user's operations on a wheel; `which` picks among the timers created so far, stale ones too.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create,
    Set { which: usize, after_ns: u64 },
    SetPast { which: usize, before_ns: u64 },
    Clear { which: usize },
    Remove { which: usize },
    Reuse { which: usize, user: u64 },
    Sleep { for_ns: u64 },
    SleepUntilNext,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Delays around a granule, within the wheel, around its end (17 s) and far beyond it.
    let delay_ns = prop_oneof![
        0..4 * GRANULE_NS,
        0..2_000_000_000_u64,
        16_000_000_000..19_000_000_000_u64,
        0..200_000_000_000_u64,
    ];
    let which = 0..24_usize;
    let step = prop_oneof![
        3 => Just(Step::Create),
        6 => (which.clone(), delay_ns.clone())
            .prop_map(|(which, after_ns)| Step::Set { which, after_ns }),
        1 => (which.clone(), delay_ns.clone())
            .prop_map(|(which, before_ns)| Step::SetPast { which, before_ns }),
        1 => which.clone().prop_map(|which| Step::Clear { which }),
        1 => which.clone().prop_map(|which| Step::Remove { which }),
        1 => (which, 1000..2000_u64).prop_map(|(which, user)| Step::Reuse { which, user }),
        3 => delay_ns.prop_map(|for_ns| Step::Sleep { for_ns }),
        4 => Just(Step::SleepUntilNext),
    ];
    prop::collection::vec(step, 1..200)
}

/// The oracle: deadlines in a map. `due_ns` is when a timer counts as due: its deadline, or the
/// time it was set if that was later.
#[derive(Default)]
struct Model {
    deadlines: HashMap<TimerId, (u64, u64)>,
    users: HashMap<TimerId, u64>,
}

struct Run {
    wheel: TimerWheel,
    model: Model,
    created: Vec<TimerId>,
    now_ns: u64,
}

impl Run {
    fn new(now_ns: u64) -> Self {
        let wheel = TimerWheel::new(now_ns);
        Self {
            wheel,
            model: Model::default(),
            created: Vec::new(),
            now_ns,
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Create => {
                let user = self.created.len() as u64;
                let timer = self.wheel.create(user);
                assert!(
                    self.model.users.insert(timer, user).is_none(),
                    "an id was given twice"
                );
                self.created.push(timer);
            }
            Step::Set { which, after_ns } => self.set(which, self.now_ns + after_ns),
            Step::SetPast { which, before_ns } => {
                self.set(which, self.now_ns.saturating_sub(before_ns));
            }
            Step::Clear { which } => {
                let Some(&timer) = self.created.get(which) else {
                    return;
                };
                self.wheel.clear(timer);
                self.model.deadlines.remove(&timer);
            }
            Step::Remove { which } => {
                let Some(&timer) = self.created.get(which) else {
                    return;
                };
                self.wheel.remove(timer);
                self.model.deadlines.remove(&timer);
                self.model.users.remove(&timer);
            }
            Step::Reuse { which, user } => {
                let Some(&timer) = self.created.get(which) else {
                    return;
                };
                self.wheel.reuse(timer, user);
                if let Some(known) = self.model.users.get_mut(&timer) {
                    *known = user;
                }
            }
            Step::Sleep { for_ns } => self.wake_at(self.now_ns + for_ns),
            Step::SleepUntilNext => {
                let next_ns = self.wheel.next_deadline_ns();
                let earliest_ns = self
                    .model
                    .deadlines
                    .values()
                    .map(|&(_, due_ns)| due_ns)
                    .min();
                if let Some(earliest_ns) = earliest_ns {
                    let next_ns = next_ns.expect("a deadline is set, so a wake-up is due");
                    assert!(
                        next_ns <= earliest_ns + GRANULE_NS,
                        "{next_ns} {earliest_ns}"
                    );
                }
                if let Some(next_ns) = next_ns {
                    self.wake_at(next_ns.max(self.now_ns));
                }
            }
        }
    }

    fn set(&mut self, which: usize, deadline_ns: u64) {
        let Some(&timer) = self.created.get(which) else {
            return;
        };
        self.wheel.set(timer, deadline_ns);
        if self.model.users.contains_key(&timer) {
            self.model
                .deadlines
                .insert(timer, (deadline_ns, deadline_ns.max(self.now_ns)));
        }
    }

    fn wake_at(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        let Self { wheel, model, .. } = self;
        wheel.advance(now_ns, &mut |user, timer| {
            let (deadline_ns, _) = model
                .deadlines
                .remove(&timer)
                .expect("fired without a deadline, or twice");
            assert!(deadline_ns <= now_ns, "early: {deadline_ns} at {now_ns}");
            assert_eq!(model.users.get(&timer), Some(&user));
        });
        for (timer, &(_, due_ns)) in &model.deadlines {
            assert!(
                now_ns < due_ns + GRANULE_NS,
                "late: {timer:?} {due_ns} at {now_ns}"
            );
        }
    }
}

proptest! {
    /// Goal: under any use, a timer fires once per deadline, never early, at most one granule
    /// late, and the next wake-up asked for is never past an unserved deadline.
    #[test]
    fn timers_fire_like_the_model(steps in steps(), start_ns in 0..u64::MAX / 4) {
        let mut run = Run::new(start_ns);
        for step in steps {
            run.apply(step);
            prop_assert_eq!(run.wheel.count(), run.model.users.len());
        }
        // Nothing is lost: after the longest delay every deadline has been served.
        run.wake_at(run.now_ns + 300_000_000_000);
        prop_assert!(run.model.deadlines.is_empty());
    }
}

/// Goal: a handler that sets its timer into the past does not keep the same tick busy without end.
#[test]
fn a_timer_set_into_the_past_while_firing_waits_for_the_next_granule() {
    let mut wheel = TimerWheel::new(0);
    let timer = wheel.create(7);
    let now_ns = 10 * GRANULE_NS;
    wheel.set(timer, 1);
    let mut fired = 0;
    while let Some((user, expired)) = wheel.pop_expired(now_ns) {
        assert_eq!((user, expired), (7, timer));
        wheel.set(timer, 1);
        fired += 1;
    }
    assert_eq!(fired, 1);
    assert_eq!(wheel.next_deadline_ns(), Some(now_ns + GRANULE_NS));
}

/// Goal: a timer removed or moved by an earlier timer of the same tick does not fire.
#[test]
fn timers_of_one_tick_can_cancel_each_other() {
    let mut wheel = TimerWheel::new(0);
    let timers: Vec<_> = (0..3).map(|user| wheel.create(user)).collect();
    for &timer in &timers {
        wheel.set(timer, GRANULE_NS);
    }
    let (first, _) = wheel.pop_expired(GRANULE_NS).unwrap();
    let mut others = (0..3).filter(|&user| user != first);
    let (removed, moved) = (others.next().unwrap(), others.next().unwrap());
    wheel.remove(timers[usize::try_from(removed).unwrap()]);
    wheel.set(timers[usize::try_from(moved).unwrap()], 3 * GRANULE_NS);
    assert_eq!(wheel.pop_expired(GRANULE_NS), None);
    assert_eq!(
        wheel.pop_expired(3 * GRANULE_NS).map(|(user, _)| user),
        Some(moved)
    );
}

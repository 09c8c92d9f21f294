use super::*;

fn search(first_per_s: f64, mut step: impl FnMut(f64) -> StepOutcome) -> (Bracket, SearchEnd) {
    let mut bracket = Bracket::new(first_per_s, 0.01);
    loop {
        match bracket.next() {
            Ok(per_s) => bracket.observe(per_s, step(per_s)),
            Err(ended) => return (bracket, ended),
        }
    }
}

fn limit(capacity_per_s: f64) -> impl FnMut(f64) -> StepOutcome {
    move |per_s| {
        if per_s <= capacity_per_s {
            StepOutcome::Met
        } else {
            StepOutcome::Missed
        }
    }
}

/// A queue with one server that takes exactly `1/capacity` for each request, evenly spaced
/// arrivals for two seconds, and stalls of up to 5 ms from `random`: what p99 < 20 ms says.
fn queue(capacity_per_s: f64, per_s: f64, random: &mut impl FnMut() -> f64) -> StepOutcome {
    let (service_s, gap_s, span_s) = (1.0 / capacity_per_s, 1.0 / per_s, 2.0);
    let (mut free_at_s, mut stall_at_s) = (0.0_f64, random() * 0.2);
    let count = (span_s / gap_s) as usize;
    let mut late = 0;
    for number in 0..count {
        let arrival_s = number as f64 * gap_s;
        let mut start_s = free_at_s.max(arrival_s);
        if start_s >= stall_at_s {
            start_s += random() * 0.005;
            stall_at_s = start_s + 0.1 + random() * 0.2;
        }
        free_at_s = start_s + service_s;
        late += usize::from(free_at_s - arrival_s >= 0.020);
    }
    if late * 100 <= count {
        StepOutcome::Met
    } else {
        StepOutcome::Missed
    }
}

/// Goal: the rate that is found lies within 3 % of what a queue can do that also stalls now and
/// then, ten times of ten; the stalls take up to 1.3 % of its time.
#[test]
fn a_noisy_queues_capacity_is_found() {
    let mut state = 1_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    for run in 0..10 {
        let capacity_per_s = 400.0 * 1.37_f64.powi(run);
        let first_per_s = capacity_per_s * (0.05 + random() * 0.3);
        let (bracket, ended) = search(first_per_s, |per_s| {
            queue(capacity_per_s, per_s, &mut random)
        });
        assert_eq!(ended, SearchEnd::Found, "run {run}");
        let ratio = bracket.low().unwrap() / capacity_per_s;
        assert!((0.97..=1.005).contains(&ratio), "run {run}: {ratio}");
        assert!(bracket.steps < 40, "run {run}: {} steps", bracket.steps);
    }
}

/// Goal: a sharp limit is bracketed to the precision, from below and from above.
#[test]
fn a_sharp_limit_is_bracketed() {
    for first_per_s in [10.0, 999.0, 1_000.0, 50_000.0] {
        let (bracket, ended) = search(first_per_s, limit(1_000.0));
        assert_eq!(ended, SearchEnd::Found);
        let (low, high) = (bracket.low().unwrap(), bracket.high().unwrap());
        assert!(
            low <= 1_000.0 && high > 1_000.0 && high / low <= 1.01,
            "{low} {high}"
        );
    }
}

/// Goal: a good rate that fails by accident, even in the climb, does not end the search there.
#[test]
fn one_bad_vote_is_outvoted() {
    let mut votes = 0;
    let mut target = limit(1_000.0);
    let (bracket, ended) = search(100.0, |per_s| {
        votes += 1;
        if votes % 4 == 0 {
            StepOutcome::Missed
        } else {
            target(per_s)
        }
    });
    assert_eq!(ended, SearchEnd::Found);
    assert!(bracket.low().unwrap() > 985.0, "{:?}", bracket.low());
}

/// Goal: a rate that held once by luck is asked again, fails, and the search continues below it.
#[test]
fn luck_does_not_become_the_answer() {
    let mut was_lucky = false;
    let mut target = limit(1_000.0);
    let (bracket, ended) = search(700.0, |per_s| {
        let is_lucky = per_s > 1_000.0 && per_s < 1_300.0 && !was_lucky;
        was_lucky |= is_lucky;
        if is_lucky {
            StepOutcome::Met
        } else {
            target(per_s)
        }
    });
    assert_eq!(ended, SearchEnd::Found);
    assert!(was_lucky);
    let low = bracket.low().unwrap();
    assert!((985.0..=1_000.0).contains(&low), "{low}");
}

/// Goal: a rate far below the limit that failed twice by accident is not the end of the search.
#[test]
fn two_bad_votes_are_outvoted() {
    let mut target = limit(1_000.0);
    for first_per_s in [700.0, 800.0, 900.0] {
        let mut bad = 2;
        let (bracket, ended) = search(first_per_s, |per_s| {
            let is_bad = bad > 0 && per_s > 705.0 && per_s < 990.0;
            bad -= i32::from(is_bad);
            if is_bad {
                StepOutcome::Missed
            } else {
                target(per_s)
            }
        });
        assert_eq!((ended, bad), (SearchEnd::Found, 0));
        let low = bracket.low().unwrap();
        assert!((985.0..=1_000.0).contains(&low), "{first_per_s}: {low}");
    }
}

/// Goal: the generator's own limit is not given out as the target's.
#[test]
fn the_generators_limit_is_named() {
    let (bracket, ended) = search(100.0, |per_s| {
        if per_s > 500.0 {
            StepOutcome::Rejected
        } else {
            StepOutcome::Met
        }
    });
    assert_eq!(ended, SearchEnd::GeneratorLimit);
    assert!(bracket.low().unwrap() <= 500.0);
}

/// Goal: a target that never keeps its objectives ends the search, and one that changes does too.
#[test]
fn hopeless_searches_end() {
    let (bracket, ended) = search(100.0, |_| StepOutcome::Missed);
    assert_eq!((ended, bracket.low()), (SearchEnd::NoneHolds, None));
    assert!(bracket.steps <= 30);
    let mut turn = 0;
    let outcomes = [StepOutcome::Met, StepOutcome::Missed, StepOutcome::Rejected];
    let (_, ended) = search(100.0, |_| {
        turn += 1;
        outcomes[turn % 3]
    });
    assert_ne!(ended, SearchEnd::Interrupted);
    let (_, ended) = search(100.0, |_| StepOutcome::Met);
    assert_eq!(ended, SearchEnd::GeneratorLimit);
}

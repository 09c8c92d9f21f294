use super::*;
use crate::config::{IDLE_DEFAULT, TIME_BUDGET_DEFAULT};

/// Goal: a load program of the user's keeps its length; rounds are what is dropped.
#[test]
fn a_load_program_keeps_its_length() {
    let load = Duration::from_secs(2);
    let known = Known {
        candidates: 4,
        load_command: Some(load),
        ..Known::example()
    };
    let plan = Plan::make(&known);
    assert_eq!(plan.throughput_phase, load);
    // Two and a half seconds each: 24 rounds of four candidates fit, with two analyses.
    assert_eq!((plan.rounds, plan.looks.as_slice()), (24, &[10, 24][..]));
    assert!(!plan.over_budget && plan.requests.is_empty());
    let tight = Known {
        left: Duration::from_secs(90),
        ..known
    };
    let plan = Plan::make(&tight);
    assert!((tight.rounds_min()..10).contains(&plan.rounds), "{plan:?}");
    let lines = plan.describe(&["request"], 4, &tight);
    assert!(lines[1].contains("the load command, about"), "{lines:?}");
    let plan = Plan::make(&Known {
        left: Duration::from_secs(9),
        ..tight
    });
    assert!(plan.over_budget && plan.rounds == plan.rounds_min);
}

/// Goal: the default comparison has the rounds that a verdict needs, blocks and a p99, stays inside the budget
/// and uses it.
#[test]
fn default_comparison_fits() {
    let plan = Plan::make(&Known::example());
    assert!(
        plan.rounds >= plan.rounds_min && !plan.over_budget,
        "{plan:?}"
    );
    assert!(!plan.block.is_zero() && plan.cycles > 1, "{plan:?}");
    assert!(plan.duration(7) <= Duration::from_secs(250));
    assert!(
        plan.duration(7) >= Duration::from_secs(210),
        "time is used: {plan:?}"
    );
    let seconds = plan.throughput_phase.as_secs_f64();
    assert_eq!(
        plan.requests,
        [10_000.0, 40_000.0].map(|r| (r * seconds).ceil() as u64)
    );
    assert_eq!(plan.rate_per_s, [4_000.0, 16_000.0]);
    assert!((1..=CYCLES_MAX).contains(&plan.cycles));
    assert_eq!(plan.slice, SLICE_MIN);
}

/// Goal: in the default time a slice of writes has flushes and a compaction, in the closed loop and at the constant rate,
/// and no block; reads keep short slices, as many as a p99 of theirs takes. Where there is no time for it, or the
/// user says how long slices are, writes are measured as everything else is.
#[test]
fn writes_have_long_slices() {
    let store = Known {
        left: Duration::from_secs(267),
        slowest_per_s: vec![75_000.0, 130_000.0],
        writes: vec![true, false],
        ..Known::example()
    };
    let plan = Plan::make(&store);
    assert!(
        !plan.over_budget && plan.rounds >= plan.rounds_min,
        "{plan:?}"
    );
    let (counts, windows) = (plan.counts(0), plan.windows(0));
    assert!(75_000.0 * windows[0].as_secs_f64() >= 57_999.0, "{plan:?}");
    let paced = plan.rate_per_s[0] * windows[1].as_secs_f64();
    assert!(
        paced >= 15_900.0 && counts[0] >= 1 && counts[2] == 0,
        "{plan:?}"
    );
    let (counts, windows) = (plan.counts(1), plan.windows(1));
    assert_eq!((windows[0], counts[2]), (SLICE_MIN, 1));
    let paced = plan.rate_per_s[1] * windows[1].as_secs_f64() * f64::from(counts[1]);
    assert!((10_000.0..20_000.0).contains(&paced), "{plan:?}");
    let lines = plan.describe(&["PUT", "GET"], 7, &store);
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("but for PUT: 1 of 773 ms")),
        "{lines:?}"
    );
    let tight = Known {
        left: Duration::from_secs(120),
        ..store.clone()
    };
    let given = Known {
        lengths: Lengths {
            slice: Some(SLICE_MIN),
            ..Lengths::default()
        },
        ..store
    };
    for known in [tight, given] {
        let plan = Plan::make(&known);
        assert_eq!(
            (plan.counts(0), plan.windows(0)),
            (plan.counts(1), plan.windows(1))
        );
    }
}

/// Goal: what the default budget has room for before anything is measured: glibc, three libraries
/// of the distribution and mempool, each with pools on and off; for a third-party server four more
/// allocators; but not those four for ours as well.
#[test]
fn the_default_budget_has_room_for_eleven_candidates() {
    assert!(shortest(11, 2, None, IDLE_DEFAULT) <= TIME_BUDGET_DEFAULT);
    assert!(shortest(10, 1, None, IDLE_DEFAULT) <= TIME_BUDGET_DEFAULT);
    assert!(shortest(19, 2, None, IDLE_DEFAULT) > TIME_BUDGET_DEFAULT);
    assert!(shortest(19, 2, Some(3), IDLE_DEFAULT) <= TIME_BUDGET_DEFAULT);
    let known = Known {
        candidates: 11,
        left: Duration::from_secs(240),
        ..Known::example()
    };
    let plan = Plan::make(&known);
    assert!(plan.rounds >= 10 && !plan.over_budget, "{plan:?}");
    let lines = plan.describe(&["PUT", "GET"], 11, &known);
    let has_block = lines.iter().any(|line| line.contains("and one block of"));
    assert!(plan.block.is_zero() && !has_block, "{lines:?}");
}

/// Goal: cycles go first, then rounds, then the budget; never the rounds a verdict needs, or a slice that
/// says something.
#[test]
fn less_time_means_fewer_rounds_then_an_honest_overrun() {
    let tight = Known {
        left: Duration::from_secs(180),
        ..Known::example()
    };
    let plan = Plan::make(&tight);
    assert!(
        (tight.rounds_min()..=ROUNDS_DEFAULT).contains(&plan.rounds),
        "{plan:?}"
    );
    assert!(!plan.over_budget, "{plan:?}");
    assert!(plan.duration(7) <= tight.left);
    let impossible = Known {
        left: Duration::from_secs(5),
        ..Known::example()
    };
    let plan = Plan::make(&impossible);
    assert_eq!(
        (plan.rounds, plan.throughput_phase, plan.cycles),
        (impossible.rounds_min(), PHASE_MIN, 1)
    );
    assert!(plan.over_budget);
    let lines = plan.describe(&["PUT", "GET"], 7, &impossible);
    assert!(
        lines.iter().any(|line| line.contains("--time-budget")),
        "{lines:?}"
    );
}

/// Goal: the slices of a round have the responses for a p99 together, if they need not be too long for it; a slow
/// server's connections get a few responses in each slice.
#[test]
fn slices_are_long_enough() {
    let plan = |per_s| {
        Plan::make(&Known {
            candidates: 3,
            left: Duration::from_secs(250),
            slowest_per_s: vec![per_s],
            warm_up_requests: vec![0],
            ..Known::example()
        })
    };
    let answers =
        |plan: &Plan| plan.rate_per_s[0] * plan.latency_phase.as_secs_f64() * f64::from(plan.paced);
    for per_s in [200_000.0, 40_000.0, 20_000.0] {
        let plan = plan(per_s);
        assert!(answers(&plan) >= 10_000.0, "{plan:?}");
        assert!(plan.latency_phase >= SLICE_MIN && plan.slice == SLICE_MIN);
        let work = per_s * plan.throughput_phase.as_secs_f64();
        assert_eq!(plan.requests, [work.ceil() as u64]);
    }
    let slow = plan(1_000.0);
    assert_eq!(slow.slice, Duration::from_millis(512));
    // 26 s for a p99 are too many.
    assert_eq!((slow.latency_phase, slow.paced), (slow.slice, 1));
    assert_eq!(plan(1.0).slice, SLICE_CLOSED_MAX);
}

/// A server whose responses take 0.1 s got one request as its "equal work", and memory a firm verdict from it.
///
/// Goal: memory has a thousand requests and sixteen per connection, or gets no verdict and the plan says so.
#[test]
fn memory_has_a_floor_of_work() {
    let slow = Known {
        candidates: 3,
        left: Duration::from_secs(250),
        slowest_per_s: vec![640.0],
        warm_up_requests: vec![0],
        ..Known::example()
    };
    let plan = Plan::make(&slow);
    assert_eq!(
        (plan.requests.as_slice(), plan.missed_floor),
        (&[1_024][..], None)
    );
    assert!(
        plan.work >= Duration::from_millis(1_600) && !plan.over_budget,
        "{plan:?}"
    );
    let slower = Known {
        slowest_per_s: vec![20.0],
        ..slow.clone()
    };
    let plan = Plan::make(&slower);
    assert_eq!(
        (plan.requests.as_slice(), plan.missed_floor),
        (&[6][..], Some(1_024))
    );
    let lines = plan.describe(&["request"], 3, &slower);
    let said =
        |line: &String| line.starts_with("memory gets no verdict: a run has no time for the 1024");
    assert!(lines.iter().any(said), "{lines:?}");
    // An hour has the time.
    let hours = Known {
        left: Duration::from_secs(10_800),
        ..slower.clone()
    };
    assert_eq!(Plan::make(&hours).missed_floor, None);
    // The user's fixed amount is done, and is no more keys than usual.
    let insists = |memory| {
        Plan::make(&Known {
            lengths: Lengths {
                memory: Some(memory),
                ..Lengths::default()
            },
            ..slow.clone()
        })
    };
    let plan = insists(MemoryWork::For(Duration::from_secs(600)));
    assert_eq!(
        (plan.requests.as_slice(), plan.keys),
        (&[384_000][..], 1_024)
    );
    assert!(plan.over_budget && plan.run > Duration::from_secs(600));
    let plan = insists(MemoryWork::Requests(10));
    assert_eq!((plan.requests.as_slice(), plan.keys), (&[10][..], 10));
}

/// Goal: a server whose last responses come seconds after the end of a slice makes runs longer, and the plan says so.
#[test]
fn late_answers_are_part_of_a_run() {
    let slow = Known {
        tail: Duration::from_secs(2),
        ..Known::example()
    };
    let (usual, late) = (Plan::make(&Known::example()), Plan::make(&slow));
    let slices = late.cycles + late.paced + u32::from(!late.block.is_zero());
    assert!(late.run >= slow.tail * slices, "{late:?}");
    let total = |plan: &Plan, known: &Known| plan.run * plan.rounds * known.candidates;
    assert!(
        late.over_budget || total(&late, &slow) <= slow.left,
        "{late:?}"
    );
    assert!(late.slices() > usual.run, "{usual:?}");
}

/// Goal: the user's fixed values are used, and their cost is reported.
#[test]
fn the_users_wishes_win() {
    let wishes = Known {
        rounds: Some(3),
        rate_per_s: Some(500.0),
        ..Known::example()
    };
    let plan = Plan::make(&wishes);
    assert_eq!(
        (plan.rounds, plan.rate_per_s.clone()),
        (3, vec![500.0, 500.0])
    );
    let lines = plan.describe(&["PUT", "GET"], 7, &wishes);
    assert!(
        lines.iter().any(|line| line.contains("below 8 rounds")),
        "{lines:?}"
    );
}

/// Goal: time that ten rounds do not need becomes interim analyses, not longer phases; few candidates are analysed
/// early, and the plan says so.
#[test]
fn ample_time_means_more_looks() {
    let ample = Known {
        candidates: 3,
        left: Duration::from_secs(280),
        slowest_per_s: vec![50_000.0],
        warm_up_requests: vec![0],
        ..Known::example()
    };
    let plan = Plan::make(&ample);
    let (first, last) = (plan.looks[0], plan.rounds);
    assert!(
        first == 10 && last >= 20 && plan.looks.len() > 1,
        "{plan:?}"
    );
    assert!(!plan.over_budget);
    assert!(plan.duration(3) <= ample.left);
    let lines = plan.describe(&["request"], 3, &ample);
    assert!(
        lines[0].starts_with(&format!("at most {last} rounds")),
        "{lines:?}"
    );
    assert!(lines[1].contains(&format!("or {last} rounds")), "{lines:?}");
    // A slow server's p99 needs long slices, so there are fewer rounds.
    let slow = Known {
        slowest_per_s: vec![7_000.0],
        ..ample.clone()
    };
    assert!(Plan::make(&slow).rounds < plan.rounds);
    // What the user insists on is analysed once.
    let fixed = Known {
        rounds: Some(40),
        ..ample.clone()
    };
    assert_eq!(Plan::make(&fixed).looks, [40]);
    // A whole night: the analyses stay few.
    let night = Known {
        left: Duration::from_secs(36_000),
        ..ample
    };
    let plan = Plan::make(&night);
    assert!((2..=4).contains(&plan.looks.len()), "{plan:?}");
    assert_eq!(plan.looks[0], 10);
    assert!(plan.throughput_phase > PHASE_MIN, "{plan:?}");
}

/// Goal: warm-up and idle time are planned for; a warm-up that would eat the runs is cut, and said.
#[test]
fn warm_up_and_idle_take_their_time() {
    let plain = Plan::make(&Known::example());
    let idle = Known {
        idle: Duration::from_secs(12),
        left: Duration::from_secs(2_000),
        ..Known::example()
    };
    let plan = Plan::make(&idle);
    assert!(plan.run >= Duration::from_secs(12) && plan.idle == idle.idle);
    assert!(!plan.over_budget);
    let warm = Known {
        warm_up_requests: vec![2_000, 4_000],
        ..Known::example()
    };
    let plan = Plan::make(&warm);
    assert_eq!(plan.warm_up_requests, [2_000, 4_000]);
    assert!(
        !plan.warm_up_is_cut && plan.run > plain.run,
        "{plan:?} {plain:?}"
    );
    assert!(plan.duration(7) <= warm.left);
    let lines = plan.describe(&["PUT", "GET"], 7, &warm);
    let said = "warm-up per run: 2000 PUT, 4000 GET (what it took until all were steady)";
    assert!(lines.iter().any(|line| line == said), "{lines:?}");
    let long = Known {
        warm_up_requests: vec![100_000, 0],
        ..Known::example()
    };
    let plan = Plan::make(&long);
    assert!(plan.warm_up_is_cut && plan.warm_up_requests[0] < 100_000);
    assert!(
        plan.warm_up_requests[0] > 1_000 && !plan.over_budget,
        "{plan:?}"
    );
    let lines = plan.describe(&["PUT", "GET"], 7, &long);
    assert!(
        lines.iter().any(|line| line.contains("less than it took")),
        "{lines:?}"
    );
}

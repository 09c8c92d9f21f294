use super::*;

fn usage(voluntary_switches: u64, context_switches: Option<u64>) -> Usage {
    Usage {
        at: Instant::now(),
        process: ProcessSample {
            voluntary_switches,
            ..ProcessSample::default()
        },
        counters: CounterValues {
            context_switches,
            ..CounterValues::default()
        },
        cgroup: CgroupSample::default(),
        has_threads: true,
    }
}

/// Goal: switches of threads that have ended count. `/proc` has those of living threads, whose sum
/// shrinks as threads end, which made it zero; it stands in where the kernel counts nothing else, and
/// where it was not read either there is no number.
#[test]
fn switches_of_ended_threads_count() {
    let per_request = |before: &Usage, after: &Usage| {
        let mut round = RoundMeasures::default();
        let costs = after.costs_since(before);
        costs.note(Operation::Request, 100, &mut round);
        round.get(Measure::of(Operation::Request, Quantity::ContextSwitches))
    };
    let counted = (usage(900, Some(1_000)), usage(50, Some(1_700)));
    assert_eq!(per_request(&counted.0, &counted.1), Some(7.0));
    let (before, after) = (usage(900, None), usage(1_200, None));
    assert_eq!(per_request(&before, &after), Some(3.0));
    let quick = Usage {
        has_threads: false,
        ..after
    };
    assert_eq!(per_request(&before, &quick), None);
}

/// Goal: costs add up, and what was not counted in every part is in no sum.
#[test]
fn costs_add_up() {
    let costs = |pairs: &[(Quantity, f64)], millis| Costs {
        sums: pairs.iter().copied().collect(),
        scaled: BTreeSet::new(),
        over: Duration::from_millis(millis),
    };
    let one = costs(&[(Quantity::CpuTime, 8e6), (Quantity::Cycles, 3.0)], 16);
    let one = one.stretched_to(Duration::from_millis(10));
    let both = one.plus(&costs(&[(Quantity::CpuTime, 7e6)], 10));
    assert_eq!((both.cpu_ns(), both.sums.len()), (12e6, 1));
    assert_eq!(both.over, Duration::from_millis(20));
}

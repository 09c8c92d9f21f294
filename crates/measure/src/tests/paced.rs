use super::*;

const P50: Measure = Measure::of(Operation::Get, Quantity::ResponseP50);
const P99: Measure = Measure::of(Operation::Get, Quantity::ResponseP99);

/// Slices as (cycle, median, distance) with so many responses each, beside percentiles of all together.
fn round(number: u32, answers: u64, slices: &[(u32, u64, f64)]) -> RoundMeasures {
    let mut columns = PacedColumns::default();
    for &(cycle, p50_ns, distance_ns) in slices {
        columns.cycle.push(cycle);
        columns.requests.push(answers);
        columns.p50_ns.push(p50_ns);
        columns.p99_ns.push(9 * p50_ns);
        columns.service_p50_ns.push(p50_ns / 3);
        columns.service_p99_ns.push(9 * p50_ns);
        columns.cpu_ns.push(0.0);
        columns.core_distance_ns.push(distance_ns);
    }
    let mut entry = RoundMeasures {
        round: number,
        ..RoundMeasures::default()
    };
    entry.set(P50, 777.0);
    entry.set(P99, 9_000_000.0);
    entry.paced.insert("get".to_owned(), columns);
    entry
}

fn found(rounds: [Vec<RoundMeasures>; 2]) -> Vec<[Option<f64>; 2]> {
    let roles = [Role::Baseline, Role::Candidate];
    let mut number = 0;
    let mut candidates = rounds.map(|rounds| {
        number += 1;
        CandidateRounds {
            role: roles[number - 1],
            rounds,
            ..CandidateRounds::default()
        }
    });
    paced_work_out(&mut candidates);
    let count = candidates[0].rounds.len();
    let value = |index: usize, round: usize| {
        let round = &candidates[index].rounds[round];
        // A tail is left as it is, or goes with the median.
        let tail = round.get(P50).map(|_| 9_000_000.0);
        assert_eq!(round.get(P99), tail);
        round.get(P50)
    };
    (0..count)
        .map(|round| [value(0, round), value(1, round)])
        .collect()
}

/// Goal: one slice in another state does not decide the median, and a cycle that the baseline lacks is not paired; the
/// tail of all responses stays.
#[test]
fn one_slice_does_not_decide_the_median() {
    let baseline = [(0, 50_000, 64.0), (1, 50_000, 64.0), (2, 900_000, 64.0)];
    let own = [
        (0, 55_000, 64.0),
        (1, 55_000, 64.0),
        (2, 990_000, 64.0),
        (3, 4_000_000, 64.0),
    ];
    let all = found([
        vec![round(0, 9_000, &baseline)],
        vec![round(0, 9_000, &own)],
    ]);
    let [Some(baseline), Some(own)] = all[0] else {
        panic!("{all:?}")
    };
    assert!(
        (own / baseline - 1.1).abs() < 1e-9 && (baseline - 50_000.0).abs() < 1.0,
        "{all:?}"
    );
}

/// Goal: cycles measured while the CPUs were far apart count where there is nothing else, and not where enough
/// rounds were measured near; a round that has only far ones has no percentiles then.
#[test]
fn near_cycles_count_if_there_are_enough() {
    let near = |number| round(number, 9_000, &[(0, 60_000, 64.0), (1, 400_000, 300.0)]);
    let far = |number| round(number, 9_000, &[(0, 400_000, 300.0)]);
    let side =
        |count: u32| -> Vec<RoundMeasures> { (0..count).map(near).chain([far(count)]).collect() };
    let enough = u32::try_from(smallest_rounds(1)).unwrap();
    let all = found([side(enough), side(enough)]);
    assert!(
        all[..enough as usize]
            .iter()
            .all(|pair| pair[0].is_some_and(|ns| ns < 61_000.0))
    );
    assert_eq!(all[enough as usize], [None, None]);
    let all = found([side(enough - 1), side(enough - 1)]);
    assert!(all.iter().flatten().all(Option::is_some), "{all:?}");
    assert!(all[0][0] > Some(61_000.0));
}

/// Goal: a median of few responses is that of all slices together, and columns that were cut change nothing.
#[test]
fn few_answers_are_taken_together() {
    let slices = [(0, 60_000, 64.0), (1, 60_000, 64.0)];
    let few = || vec![round(0, 39, &slices)];
    assert_eq!(found([few(), few()]), [[Some(777.0); 2]]);
    // One too few of one candidate: the other's is not taken from single slices either.
    let nearly = found([vec![round(0, 40, &slices)], vec![round(0, 39, &slices)]]);
    assert_eq!(nearly, [[Some(777.0); 2]]);
    let mut cut = round(0, 9_000, &slices);
    cut.paced.get_mut("get").unwrap().p99_ns.clear();
    assert_eq!(found([vec![cut.clone()], vec![cut]]), [[Some(777.0); 2]]);
}

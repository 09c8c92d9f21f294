use super::*;
use crate::record::{PhaseEnd, PhaseKind, PhaseSpec};

const SECOND: u64 = 1_000_000_000;
const MIB: f64 = 1024.0 * 1024.0;

/// Ten samples a second for `length_s`.
fn series(length_s: u64, mib: impl Fn(f64) -> f64) -> Series {
    let mut series = Series::default();
    for step in 0..=length_s * 10 {
        series.push(step * SECOND / 10, mib(step as f64 / 10.0) * MIB);
    }
    series
}

/// Goal: peak, floor and the time until it are those of the curve; a single low sample is no floor; a curve that keeps
/// falling is reported, and a burst that gives nothing back has no time.
#[test]
fn a_burst_falls_to_its_floor() {
    let burst = (2 * SECOND, 4 * SECOND);
    let falling = |at_s: f64| match at_s {
        at if at < 2.0 => 20.0,
        at if at < 3.0 => 100.0,
        at if at <= 4.0 => 80.0,
        at if at < 7.0 => 80.0 - 20.0 * (at - 4.0),
        _ => 20.0,
    };
    let found = floor_after(&series(12, falling), 1, burst, 12 * SECOND).unwrap();
    assert_eq!(found.peak_bytes, 100 << 20);
    assert_eq!(
        (found.burst_end_bytes, found.floor_bytes),
        (80 << 20, 20 << 20)
    );
    // All but 2 % of 80 MiB, at 20 MiB a second.
    let reached_s = found.reached_ns.unwrap() as f64 / 1e9;
    assert!((2.7..=3.1).contains(&reached_s), "{reached_s}");
    assert!(!found.is_falling);
    let dip = |at_s: f64| if at_s == 9.0 { 1.0 } else { falling(at_s) };
    let dipped = floor_after(&series(12, dip), 1, burst, 12 * SECOND).unwrap();
    assert_eq!(dipped.floor_bytes, 20 << 20);
    let gone = |at_s: f64| {
        if (2.0..3.9).contains(&at_s) {
            90.0
        } else {
            20.0
        }
    };
    let gone = floor_after(&series(12, gone), 1, burst, 12 * SECOND).unwrap();
    assert_eq!((gone.reached_ns, gone.floor_bytes), (Some(0), 20 << 20));
    let cut = floor_after(&series(12, falling), 1, burst, 6 * SECOND).unwrap();
    assert!(cut.is_falling && cut.floor_bytes > 30 << 20, "{cut:?}");
    let kept = |at_s: f64| if at_s < 2.0 { 20.0 } else { 80.0 };
    let kept = floor_after(&series(12, kept), 1, burst, 12 * SECOND).unwrap();
    assert_eq!((kept.reached_ns, kept.is_falling), (None, false));
    assert_eq!(
        floor_after(&series(12, falling), 1, burst, 4 * SECOND + 1),
        None
    );
}

fn floors(mib: &[u64]) -> Vec<Floor> {
    let floor = |(cycle, &mib): (u32, &u64)| Floor {
        cycle,
        peak_bytes: (mib + 60) << 20,
        burst_end_bytes: (mib + 50) << 20,
        floor_bytes: mib << 20,
        reached_ns: Some(SECOND),
        is_falling: false,
    };
    (0..).zip(mib).map(floor).collect()
}

/// Goal: the first cycle's filling is no growth where there are others; of two cycles there is only that.
#[test]
fn growth_is_from_cycle_to_cycle() {
    let growth = |mib: &[u64]| growth_per_cycle(&floors(mib)).map(|bytes| bytes / MIB);
    assert_eq!(growth(&[20, 50, 50, 50]), Some(0.0));
    assert_eq!(growth(&[20, 50, 53, 56]), Some(3.0));
    assert_eq!(growth(&[20, 24]), Some(4.0));
    assert_eq!(growth(&[20]), None);
}

fn plan() -> PhasePlan {
    let phase = |kind| PhaseSpec {
        kind,
        duration_ns: SECOND,
        ..PhaseSpec::default()
    };
    PhasePlan {
        phases: [PhaseKind::Steady, PhaseKind::Burst, PhaseKind::Idle]
            .map(phase)
            .into(),
        cycles: 4,
    }
}

fn candidate(rounds: &[&[u64]], heaps: Vec<PhaseHeap>) -> CandidateRounds {
    let rounds = rounds.iter().map(|mib| {
        let floors = floors(mib);
        let mut round = RoundMeasures {
            phase_ends: vec![PhaseEnd {
                cycle: 0,
                place: 2,
                requests: 0,
                memory_bytes: 33 << 20,
                parts: MemoryParts {
                    kernel_bytes: Some(mib[1] << 20),
                    ..MemoryParts::default()
                },
                ..PhaseEnd::default()
            }],
            ..RoundMeasures::default()
        };
        round.measures.extend(measures_of(&floors));
        round.floors = floors;
        round
    });
    CandidateRounds {
        name: "x".to_owned(),
        rounds: rounds.collect(),
        phase_heaps: heaps,
        ..CandidateRounds::default()
    }
}

/// Goal: parts of memory are medians of those that have them; the cost of age is reported with its interval, as a loss
/// only where that is above 1, and not for few rounds.
#[test]
fn age_and_parts_are_told() {
    let mut aged = candidate(&GROWING, Vec::new());
    let measure = Measure::of(Operation::Request, Quantity::AgedCpu);
    let of = |candidate: &CandidateRounds| of_all(std::slice::from_ref(candidate), &plan());
    for (round, ratio) in aged
        .rounds
        .iter_mut()
        .zip([1.10, 1.12, 1.11, 1.09, 1.10, 1.13])
    {
        round.set(measure, ratio);
    }
    let found = &of(&aged)[0];
    let ratio = found.aged_cpu_ratio.unwrap();
    assert!(
        (1.09..1.13).contains(&ratio.value) && ratio.low > 1.08,
        "{ratio:?}"
    );
    assert!(
        found
            .sentence
            .contains("an aged heap costs it: CPU per request is 1.1"),
        "{found:?}"
    );
    assert_eq!(found.ends_parts[2].kernel_bytes, Some(20 << 20));
    assert_eq!(found.ends_parts[0], MemoryParts::default());
    aged.rounds[0].set(measure, 0.8);
    let text = &of(&aged)[0].sentence;
    assert!(text.contains("no significant CPU"), "{text}");
    aged.rounds.truncate(3);
    let text = &of(&aged)[0].sentence;
    assert!(text.contains("too few rounds to tell from noise"), "{text}");
}

fn heaps(live_mib: &[u64], malloc_mib: &[u64], stacks_mib: &[u64]) -> Vec<PhaseHeap> {
    let held = |holder, mib: u64| Held {
        holder,
        bytes: mib << 20,
    };
    let all = live_mib.iter().zip(malloc_mib).zip(stacks_mib);
    (0..)
        .zip(all)
        .map(|(cycle, ((&live, &malloc), &stacks))| PhaseHeap {
            cycle,
            live_bytes: Some(live << 20),
            held: vec![held(Holder::Malloc, malloc), held(Holder::Stacks, stacks)],
        })
        .collect()
}

fn answer(rounds: &[&[u64]], heaps: Vec<PhaseHeap>) -> PhasesAnswer {
    of_all(&[candidate(rounds, heaps)], &plan()).remove(0)
}

const GROWING: [&[u64]; 6] = [
    &[10, 20, 25, 30],
    &[10, 20, 26, 31],
    &[10, 21, 25, 30],
    &[10, 20, 25, 31],
    &[10, 20, 24, 30],
    &[10, 20, 25, 30],
];

/// Goal: growth is attributed to the program, to malloc, or to another part, by name; memory that does not grow has no
/// cause.
#[test]
fn growth_has_a_cause() {
    let live = answer(&GROWING, heaps(&[5, 10, 15, 20], &[9, 14, 19, 24], &[1; 4]));
    assert_eq!(live.cause, GrowthCause::Live);
    assert!(
        live.heap_sentence
            .contains("the growth is the program's: live bytes grow by 5.00 MiB")
    );
    let retained = answer(&GROWING, heaps(&[5; 4], &[9, 14, 19, 24], &[1; 4]));
    assert_eq!(retained.cause, GrowthCause::Retained);
    let text = &retained.heap_sentence;
    assert!(
        text.contains("malloc holds 24.0 MiB: 5.00 MiB that the program uses"),
        "{text}"
    );
    assert!(
        text.contains("(live bytes do not grow), and malloc keeps 5.00 MiB more"),
        "{text}"
    );
    let stacks = answer(&GROWING, heaps(&[5; 4], &[9; 4], &[1, 6, 11, 16]));
    assert_eq!(stacks.cause, GrowthCause::Elsewhere);
    assert!(
        stacks.heap_sentence.contains("stacks grows by 5.00 MiB"),
        "{}",
        stacks.heap_sentence
    );
    let untraced = answer(&GROWING, Vec::new());
    assert_eq!(untraced.cause, GrowthCause::Unknown);
    assert_eq!(untraced.heap_sentence, "");
    let level: [&[u64]; 6] = [&[10, 20, 20, 20]; 6];
    assert_eq!(answer(&level, Vec::new()).cause, GrowthCause::None);
}

/// Goal: the sentence says from where to where, how soon, and growth with its interval; too few rounds claim nothing.
#[test]
fn the_sentence_tells_fall_and_growth() {
    let found = answer(&GROWING, Vec::new());
    assert!(
        found
            .sentence
            .starts_with("x: falls from 82.5 MiB to 22.5 MiB ["),
        "{}",
        found.sentence
    );
    assert!(
        found.sentence.contains("] in 1.00 s ["),
        "{}",
        found.sentence
    );
    assert!(
        found.sentence.contains("it grows by 5.00 MiB ["),
        "{}",
        found.sentence
    );
    assert_eq!(found.ends_bytes.len(), 3);
    assert_eq!(found.ends_bytes[2].unwrap().value, 33.0 * MIB);
    assert!(found.ends_bytes[0].is_none());
    let few = answer(&GROWING[..3], Vec::new());
    assert!(
        few.sentence.contains("3 rounds are too few to say"),
        "{}",
        few.sentence
    );
    let level: [&[u64]; 6] = [&[10, 20, 20, 20]; 6];
    let sentence = answer(&level, Vec::new()).sentence;
    assert!(
        sentence.contains("does not grow (less than 128 KiB)"),
        "{sentence}"
    );
}

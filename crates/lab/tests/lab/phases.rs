//! Comparisons of phases, of a server whose memory is known: what falls after a burst, what stays, what leaks.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use millpond_lab::{CompareConfig, LimitTrials, compare};
use millpond_measure::record::{
    ComparisonRecord, GrowthCause, Measure, MemoryParts, Operation, PhaseKind, PhasePlan,
    PhaseSpec, PhasesAnswer, Quantity,
};

use crate::common::{free_address, is_here, short_comparison};
use crate::memory::DOUBLING;
use crate::presence::compile_c;

const MIB: f64 = 1024.0 * 1024.0;
/// Both thresholds pinned: everything of 128 KiB and more comes from the kernel and goes back to it.
const PINNED: &str = "glibc:mmap_threshold=131072,trim_threshold=131072";

/// Some of what the server does for `path`, and as long nothing, so often.
fn phases(path: &str, cycles: u32) -> PhasePlan {
    let phase = |kind, path: Option<&str>| PhaseSpec {
        kind,
        duration_ns: 600_000_000,
        rate_per_s: (kind == PhaseKind::Burst).then_some(2_000.0),
        path: path.map(str::to_owned),
        ..PhaseSpec::default()
    };
    PhasePlan {
        phases: vec![
            phase(PhaseKind::Burst, Some(path)),
            phase(PhaseKind::Idle, None),
        ],
        cycles,
    }
}

fn config(directory: &Path, path: &str, cycles: u32, rounds: u32) -> CompareConfig {
    let source = include_str!("phase_server.c");
    let program = compile_c(directory, "phases", source, &["-pthread", "-O1"]);
    let words = [program, "{port}".to_owned()];
    let allocators = ["glibc", PINNED].map(str::to_owned).to_vec();
    let mut config = short_comparison(directory, &words, free_address(), allocators);
    config.connections = 16;
    config.rounds = Some(rounds);
    config.phases = Some(phases(path, cycles));
    config
}

fn run(config: &CompareConfig) -> ComparisonRecord {
    let outcome = compare(config, &mut |_| {}, &AtomicBool::new(false)).expect("a comparison");
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    outcome.record
}

fn answer<'a>(record: &'a ComparisonRecord, name: &str) -> &'a PhasesAnswer {
    let mut all = record.analysis.phases.iter();
    all.find(|one| one.candidate == name)
        .unwrap_or_else(|| panic!("{name} in {:?}", record.analysis.phases))
}

/// Goal: what connections hold in a burst is its peak and is gone after it where malloc gives it back at once; memory
/// pinned block by block stays, and is distinguished from what the program uses.
#[test]
#[ignore = "slow tier: the peak is in samples, which a busy machine may let come too late"]
fn a_burst_falls_or_is_retained() {
    let directory = tempfile::tempdir().unwrap();
    let record = run(&config(directory.path(), "/large", 2, 1));
    let found = answer(&record, PINNED);
    let (peak, floor) = (found.peak_bytes.unwrap(), found.floor_bytes.unwrap());
    assert!(
        peak.value > 16.0 * MIB && floor.value < 8.0 * MIB,
        "{found:?}"
    );
    assert!(found.reached_ns.is_some(), "{found:?}");
    assert_eq!(found.ends_bytes.len(), 2);
    let run_of = &record.candidates[0].rounds[0];
    let course = run_of.memory_course.as_ref().unwrap();
    let names: Vec<&str> = course.phases.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["burst", "idle", "burst", "idle"]);

    let record = run(&config(directory.path(), "/pin", 2, 1));
    let found = answer(&record, "glibc");
    let (peak, floor) = (found.peak_bytes.unwrap(), found.floor_bytes.unwrap());
    assert!(
        peak.value > 60.0 * MIB && floor.value > 0.6 * peak.value,
        "{found:?}"
    );
    let (live, malloc) = (found.live_bytes.unwrap(), found.malloc_bytes.unwrap());
    // A quarter of the blocks lives, in all of the pages.
    assert!(live < malloc / 2 && live > malloc / 8, "{found:?}");
    assert!(found.heap_sentence.contains("(retained)"), "{found:?}");
}

/// Goal: a leak is attributed to the program under every allocator, and not to malloc.
#[test]
#[ignore = "slow tier: a whole comparison, a minute"]
fn a_leak_is_the_programs() {
    let directory = tempfile::tempdir().unwrap();
    let record = run(&config(directory.path(), "/leak", 3, 6));
    for name in ["glibc", PINNED] {
        let found = answer(&record, name);
        let growth = found.growth_bytes.unwrap();
        // 1,200 blocks of 1,000 bytes at most.
        assert!((0.3 * MIB..1.4 * MIB).contains(&growth.value), "{found:?}");
        assert_eq!(found.cause, GrowthCause::Live, "{found:?}");
    }
}

/// Goal: an allocator that requests twice the bytes needs twice the limit, and the server is killed below it.
#[test]
#[ignore = "slow tier: two bisections, a minute; needs root"]
fn a_doubling_allocator_needs_twice_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["-shared", "-fPIC"];
    let object = compile_c(directory.path(), "doubling.so", DOUBLING, &flags);
    let mut config = config(directory.path(), "/pin", 1, 1);
    config.allocators = Some(vec!["glibc".to_owned(), format!("doubling={object}")]);
    config.limit_trials = Some(LimitTrials { needed: 2, of: 3 });
    let record = match compare(&config, &mut |_| {}, &AtomicBool::new(false)) {
        Ok(outcome) => outcome.record,
        Err(error) if error.to_string().contains("cannot be limited here") => {
            eprintln!("skipped: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let limit = |name: &str| {
        let mut all = record.candidates.iter();
        let found = all.find(|one| one.name == name).and_then(|one| one.limit);
        found.unwrap_or_else(|| panic!("{name}: {:?}", record.analysis.warnings))
    };
    let (plain, doubled) = (limit("glibc"), limit("doubling"));
    assert!(plain.died_at_bytes < plain.limit_bytes && plain.limit_bytes <= plain.peak_bytes * 2);
    // 64 MiB of blocks in use at once.
    assert!(plain.limit_bytes as f64 > 60.0 * MIB, "{plain:?}");
    let ratio = doubled.limit_bytes as f64 / plain.limit_bytes as f64;
    assert!(
        (1.88..2.1).contains(&ratio),
        "{ratio}: {plain:?} {doubled:?}"
    );
}

/// Goal: a server that is killed at its limit is reported with the limit, and the others are compared.
#[test]
fn a_kill_at_the_limit_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), "/pin", 1, 1);
    config.options.memory_limit_bytes = Some(40 << 20);
    // It dies when it is tried out or in its first round: both name the limit.
    match compare(&config, &mut |_| {}, &AtomicBool::new(false)) {
        Err(error) if error.to_string().contains("cannot be limited here") => {
            eprintln!("skipped: {error}");
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("(limit 40.0 MiB)"), "{text}");
        }
        Ok(outcome) => panic!("it lived: {:?}", outcome.record.analysis.phases),
    }
}

/// Goal: a churn ages the heap of every candidate in the server's own threads, CPU per request is compared with that
/// before it, and memory has parts at the end of each phase.
#[test]
fn a_churn_ages_the_heap() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), "/", 1, 1);
    let phase = |kind| PhaseSpec {
        kind,
        duration_ns: 600_000_000,
        ..PhaseSpec::default()
    };
    config.phases = Some(PhasePlan {
        phases: [PhaseKind::Steady, PhaseKind::Churn, PhaseKind::Steady]
            .map(phase)
            .into(),
        cycles: 1,
    });
    let record = run(&config);
    for name in ["glibc", PINNED] {
        let found = answer(&record, name);
        let mut all = record.candidates.iter();
        let candidate = all.find(|one| one.name == name).unwrap();
        let ends = &candidate.rounds[0].phase_ends;
        let churned: Vec<bool> = ends
            .iter()
            .map(|end| end.churned_blocks.is_some())
            .collect();
        assert_eq!(churned, [false, true, false]);
        let is_aged = ends[1].churned_blocks.unwrap() >= 65_536;
        assert_eq!(found.aged_cpu_ratio.is_some(), is_aged, "{found:?}");
        // Not that of the baseline's double, whose name begins with the baseline's.
        let start = format!("{name}: a churn");
        let told = |warning: &&String| warning.starts_with(&start);
        let is_told = record.analysis.warnings.iter().find(told).is_some();
        assert_eq!(is_told, !is_aged, "{:?}", record.analysis.warnings);
        let [before, churned, after] = &found.ends_parts[..] else {
            panic!("{found:?}")
        };
        let bytes = |parts: &MemoryParts| parts.anonymous_bytes.unwrap() as f64;
        if is_aged {
            // One block in sixteen stays, and what malloc keeps of the others.
            assert!(bytes(churned) > bytes(before) + 0.7 * MIB, "{found:?}");
        }
        assert!(after.mappings.unwrap() > 10 && after.file_bytes.unwrap() > 0);
    }
}

/// Goal: a cache that fills once is the program's memory, and no growth.
#[test]
#[ignore = "slow tier: a whole comparison, a minute"]
fn a_cache_is_live_and_does_not_grow() {
    let directory = tempfile::tempdir().unwrap();
    let record = run(&config(directory.path(), "/cache", 3, 6));
    for name in ["glibc", PINNED] {
        let found = answer(&record, name);
        assert_eq!(found.cause, GrowthCause::None, "{found:?}");
        let (live, malloc) = (found.live_bytes.unwrap(), found.malloc_bytes.unwrap());
        assert!(live as f64 > 6.0 * MIB && live > malloc / 2, "{found:?}");
    }
}

/// Goal: jemalloc gives memory back while the server idles only with its background thread; without, it keeps the
/// memory of a burst, because nothing calls it.
#[test]
#[ignore = "slow tier: idle phases of seconds; needs jemalloc"]
fn a_background_thread_gives_back_while_idle() {
    const WITH: &str = "jemalloc:background_thread=true,dirty_decay_ms=500,muzzy_decay_ms=0";
    const WITHOUT: &str = "jemalloc:dirty_decay_ms=500,muzzy_decay_ms=0";
    if !is_here("jemalloc") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), "/large", 1, 2);
    config.allocators = Some(vec![
        "glibc".to_owned(),
        WITH.to_owned(),
        WITHOUT.to_owned(),
    ]);
    if let Some(plan) = &mut config.phases {
        plan.phases[1].duration_ns = 4_000_000_000;
    }
    let record = run(&config);
    let end = |name: &str| answer(&record, name).ends_bytes[1].unwrap().value;
    let (with, without) = (end(WITH), end(WITHOUT));
    assert!(with + 8.0 * MIB < without, "{with} {without}");
}

/// Goal: memory that is given back after each request is faulted in again by the next, page by page, and costs CPU.
#[test]
#[ignore = "slow tier: it is about CPU time; needs jemalloc"]
fn memory_given_back_at_once_is_faulted_in_again() {
    const AT_ONCE: &str = "jemalloc:dirty_decay_ms=0,muzzy_decay_ms=0";
    if !is_here("jemalloc") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), "/mib", 1, 2);
    config.allocators = Some(vec!["jemalloc".to_owned(), AT_ONCE.to_owned()]);
    let steady = PhaseSpec {
        kind: PhaseKind::Steady,
        duration_ns: 1_500_000_000,
        rate_per_s: Some(300.0),
        path: Some("/mib".to_owned()),
        ..PhaseSpec::default()
    };
    if let Some(plan) = &mut config.phases {
        plan.phases.insert(0, steady);
    }
    let record = run(&config);
    let median = |name: &str, quantity| {
        let mut all = record.candidates.iter();
        let candidate = all.find(|one| one.name == name).unwrap();
        candidate
            .median(Measure::of(Operation::Request, quantity))
            .unwrap()
    };
    let faults = |name: &str| median(name, Quantity::PageFaults);
    assert!(faults(AT_ONCE) >= 250.0, "{}", faults(AT_ONCE));
    assert!(faults("jemalloc") < 50.0, "{}", faults("jemalloc"));
    let cpu = |name: &str| median(name, Quantity::CpuTime);
    assert!(
        cpu(AT_ONCE) > cpu("jemalloc"),
        "{} {}",
        cpu(AT_ONCE),
        cpu("jemalloc")
    );
}

/// Goal: arenas of many threads hold what a burst had; fewer arenas hold less.
#[test]
#[ignore = "slow tier: a whole comparison, a minute"]
fn fewer_arenas_hold_less_after_a_burst() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), "/pin", 2, 2);
    config.allocators = Some(["glibc", "glibc:arena_max=1"].map(str::to_owned).to_vec());
    let record = run(&config);
    let floor = |name: &str| answer(&record, name).floor_bytes.unwrap().value;
    let (many, one) = (floor("glibc"), floor("glibc:arena_max=1"));
    eprintln!("floor of many arenas {many}, of one {one}");
    assert!(one < many, "{one} {many}");
}

//! The benchmark as its users run it, with little work.

use millpond_bench::candidate::{NO_ALLOCATION, POOL};
use millpond_bench::program::MemoryKind;
use millpond_bench::{BenchConfig, BenchError, BenchEvent, BenchOutcome, Program, report};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Some milliseconds for each run, and no idleness.
fn small(programs: &[Program]) -> BenchConfig {
    let mut config = BenchConfig::new(PathBuf::from(env!("CARGO_BIN_EXE_millpond-bench-child")));
    config.programs = programs.to_vec();
    config.iterations = 60;
    config.repetitions = 2;
    config.idle_seconds = 0;
    config.seed = 7;
    config
}

fn run(config: &BenchConfig) -> BenchOutcome {
    millpond_bench::run(config, &mut |_| {}, &AtomicBool::new(false)).expect("it runs")
}

/// Goal: every program runs on every candidate that is installed, finds in its memory what it wrote,
/// and all candidates find the same.
#[test]
#[ignore = "slow tier: every program under every allocator, over a minute"]
fn every_program_runs_on_every_candidate() {
    let outcome = run(&small(&Program::ALL));
    assert_eq!(outcome.failures, Vec::<String>::new());
    assert!(!outcome.interrupted);
    let found: Vec<Program> = outcome.record.programs.iter().map(|it| it.name).collect();
    assert_eq!(found, Program::ALL);
    for program in &outcome.record.programs {
        let expected = outcome.record.candidates.len() + usize::from(program.name.has_placed());
        assert_eq!(program.allocators.len(), expected, "{}", program.name);
        assert!(program.speedup.is_some(), "{}", program.name);
        assert_eq!(
            program.not_allocation.is_some(),
            program.name.has_placed(),
            "{}",
            program.name
        );
        for allocator in &program.allocators {
            let name = &allocator.allocator;
            assert!(allocator.ns_per_iteration.mean > 0.0, "{name}");
            let is_about_memory = program.name.is_about_memory();
            let runs = if is_about_memory { 1 } else { 2 };
            assert_eq!(allocator.ns_per_iteration_runs.len(), runs, "{name}");
        }
    }
}

/// Goal: the first program does 280 operations per iteration; with malloc it calls malloc for each
/// object and for each growth of the vectors, with the pools for the growths alone.
#[test]
fn heap_calls_are_those_of_the_earlier_program() {
    let outcome = run(&small(&[Program::Objects, Program::Pair, Program::Mixed]));
    let record = &outcome.record;
    let calls = |program: usize, allocator: &str| {
        let found = record.programs[program].of(allocator).unwrap();
        found.heap_calls_per_op.unwrap()
    };
    let operations = record.programs[0].operations_per_iteration;
    assert!((operations - 280.0).abs() < 1e-9);
    let growths = 16.0 / 280.0;
    for (program, allocator, expected) in [
        (0, "glibc", 0.5 + growths),
        (0, POOL, growths),
        (0, NO_ALLOCATION, growths),
        (1, "glibc", 0.5),
        (1, POOL, 0.0),
        (2, "glibc", 0.5),
    ] {
        let found = calls(program, allocator);
        assert!(
            (found - expected).abs() < 0.002,
            "{allocator}: {found} instead of {expected}"
        );
    }
}

/// Goal: the record has the fields that other tools rely on, also without hardware counters.
#[test]
fn the_record_has_its_fields() {
    let outcome = run(&small(&[
        Program::Objects,
        Program::Churn,
        Program::Connections,
    ]));
    let record: Value = serde_json::from_str(&outcome.record.to_json().unwrap()).unwrap();
    let programs = record["programs"].as_array().unwrap();
    for program in programs {
        assert!(program["name"].is_string() && program["speedup"].is_number());
        for allocator in program["allocators"].as_array().unwrap() {
            for figure in ["mean", "median", "stdev", "cv"] {
                assert!(
                    allocator["ns_per_iteration"][figure].is_number(),
                    "{figure}"
                );
            }
            let counts = &allocator["instructions_per_op"];
            assert!(counts.is_number() || counts.is_null());
            assert_eq!(counts.is_null(), record["counters_missing"].is_string());
        }
    }
    assert!(programs[0]["not_allocation"]["share_of_pool"].is_number());
    let churn = &programs[1]["allocators"][0]["retention"];
    for figure in ["rss_per_live_end", "rss_per_live_worst", "returned_share"] {
        assert!(churn[figure].is_number(), "{figure}");
    }
    let connections = &programs[2]["allocators"][0]["per_connection"];
    assert!(connections["active_bytes"].is_number() && connections["idle_bytes"].is_number());
    assert!(record["verdict"]["status"].is_string() && record["verdict"]["reasons"].is_array());
    assert!(record["environment"]["kernel"].is_string());
}

/// Goal: the report fits 100 columns, with counters and without, and has every candidate in it.
#[test]
fn the_report_fits_a_terminal() {
    let mut outcome = run(&small(&[
        Program::Objects,
        Program::Churn,
        Program::Connections,
    ]));
    for counts in [None, Some(12.345)] {
        for allocator in outcome
            .record
            .programs
            .iter_mut()
            .flat_map(|it| &mut it.allocators)
        {
            allocator.instructions_per_op = counts;
            allocator.cycles_per_op = counts;
            allocator.branch_misses_per_op = counts;
            allocator.cache_misses_per_op = counts;
        }
        let text = report::render(&outcome.record, 80);
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        assert_eq!(text.contains("cycles"), counts.is_some());
        for candidate in &outcome.record.candidates {
            assert!(text.contains(&candidate.name), "{text}");
        }
    }
}

/// Goal: a candidate whose library is not what its name says is named and left out; the others are
/// measured.
#[test]
fn an_unproved_candidate_is_left_out() {
    // The heap call counter exports malloc, so it passes as an allocator; the linker then gets
    // another file of the same content, which is not the one that will be mapped.
    let directory = tempfile::tempdir().unwrap();
    let trace = millpond_lab::trace::Trace::create(directory.path()).unwrap();
    let mut config = small(&[Program::Pair]);
    let word = format!("counter={}", trace.object().display());
    config.allocators = Some(vec!["glibc".to_owned(), word]);
    let outcome = run(&config);
    assert_eq!(outcome.failures, Vec::<String>::new());
    assert!(outcome.record.programs[0].of("counter").is_some());

    // The same with a library that vanishes between the start and the first run.
    let stop = AtomicBool::new(false);
    let object = trace.object().to_owned();
    let outcome = millpond_bench::run(
        &config,
        &mut |event| {
            if matches!(event, BenchEvent::Run { run: 1, .. }) {
                std::fs::remove_file(&object).unwrap();
            }
        },
        &stop,
    )
    .unwrap();
    assert_eq!(outcome.failures.len(), 1, "{:?}", outcome.failures);
    let failure = &outcome.failures[0];
    assert!(failure.contains("pair on counter"), "{failure}");
    assert!(failure.contains("allocator not in use"), "{failure}");
    let program = &outcome.record.programs[0];
    assert!(program.of("counter").is_none() && program.of("glibc").is_some());
}

/// Goal: measurements from before Ctrl-C are in the record, and nothing continues after it.
#[test]
fn an_interruption_keeps_what_there_is() {
    let mut config = small(&[Program::Pair, Program::Mixed]);
    config.repetitions = 50;
    config.allocators = Some(vec!["glibc".to_owned()]);
    let stop = AtomicBool::new(false);
    let mut runs = 0;
    let outcome = millpond_bench::run(
        &config,
        &mut |event| {
            if let BenchEvent::Run { run, .. } = event {
                runs = *run;
                stop.fetch_or(*run == 20, Ordering::Relaxed);
            }
        },
        &stop,
    )
    .unwrap();
    assert!(outcome.interrupted && outcome.record.interrupted);
    assert_eq!(outcome.failures, Vec::<String>::new());
    assert_eq!(outcome.record.programs.len(), 1);
    assert!(runs < 25, "{runs} runs");
    let runs = |name| {
        outcome.record.programs[0]
            .of(name)
            .unwrap()
            .ns_per_iteration_runs
            .len()
    };
    assert!((3..=7).contains(&runs(POOL)), "{}", runs(POOL));

    stop.store(true, Ordering::Relaxed);
    let early = millpond_bench::run(&config, &mut |_| {}, &stop).unwrap_err();
    assert!(matches!(early, BenchError::InterruptedEarly), "{early}");
}

/// Goal: a launcher that is not there is one sentence that names it.
#[test]
fn a_missing_launcher_is_named() {
    let mut config = small(&[Program::Pair]);
    config.launcher = PathBuf::from("/nowhere/millpond");
    let stop = AtomicBool::new(false);
    let error = millpond_bench::run(&config, &mut |_| {}, &stop).unwrap_err();
    assert!(error.to_string().contains("/nowhere/millpond"), "{error}");
}

/// Goal: every kind of memory has a name of its own.
#[test]
fn memory_kinds_read_back() {
    for kind in [MemoryKind::Pool, MemoryKind::Malloc, MemoryKind::Placed] {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
}

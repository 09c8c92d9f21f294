//! Client and server in one process, as their users run them, with little work.

use millpond_bench::BenchError;
use millpond_bench::loopback::{
    LoopbackConfig, LoopbackEvent, LoopbackOutcome, LoopbackRecord, report, run,
};
use millpond_lab::allocator;
use millpond_measure::record::PoolSetting;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Some milliseconds for each run.
fn small() -> LoopbackConfig {
    let mut config = LoopbackConfig::new(PathBuf::from(env!("CARGO_BIN_EXE_millpond-bench-child")));
    config.connections = 20;
    config.iterations = 100;
    config.repetitions = 2;
    config.seed = 7;
    config
}

fn measure(config: &LoopbackConfig) -> LoopbackOutcome {
    run(config, &mut |_| {}, &AtomicBool::new(false)).expect("it runs")
}

/// Goal: every combination of allocator and pools responds to every request, under the allocator it
/// is named after, and the record reads back.
#[test]
#[ignore = "slow tier: every pair of pools and allocator, 45 s"]
fn every_combination_is_measured() {
    let mut config = small();
    let allocators: Vec<String> = allocator::discover()
        .into_iter()
        .map(|it| it.name)
        .collect();
    config.allocators = Some(allocators.clone());
    let outcome = measure(&config);
    assert_eq!(outcome.failures, Vec::<String>::new());
    let record = &outcome.record;
    assert_eq!(record.candidates.len(), 2 * allocators.len());
    assert_eq!(record.candidates[0].name, "glibc, no pools");
    assert_eq!(record.candidates[0].times_the_first, None);
    for candidate in &record.candidates {
        assert_eq!(candidate.runs.len(), 2, "{}", candidate.name);
        assert_eq!(candidate.failures(), 0, "{}", candidate.name);
        assert_eq!(candidate.library.is_none(), candidate.allocator == "glibc");
        for run in &candidate.runs {
            assert_eq!((run.requests, run.accepts), (2_000, 20), "{run:?}");
            let spread = run.per_connection;
            assert_eq!(spread.connections, 20);
            assert!((spread.mean - 100.0).abs() < 1e-9, "{spread:?}");
            // Jain's index is the variance over the mean's square, in another form.
            let expected = 1.0 / (1.0 + spread.variance / (spread.mean * spread.mean));
            assert!((spread.fairness - expected).abs() < 1e-9, "{spread:?}");
            assert!(spread.min <= 100 && spread.max >= 100, "{spread:?}");
        }
    }
    let text = record.to_json().unwrap();
    let again: LoopbackRecord = serde_json::from_str(&text).unwrap();
    assert_eq!(again.to_json().unwrap(), text);
}

/// Goal: pools are what they are said to be: with them a transaction takes next to nothing from malloc,
/// without them both sides take something for each.
#[test]
fn heap_calls_tell_pools_apart() {
    let mut config = small();
    config.repetitions = 1;
    let outcome = measure(&config);
    let calls = |pools: PoolSetting| {
        let mut candidates = outcome.record.candidates.iter();
        let found = candidates.find(|it| it.pools == pools).unwrap();
        found.heap_calls_per_transaction.expect("counted")
    };
    let (with, without) = (calls(PoolSetting::On), calls(PoolSetting::Off));
    // Periodic calls count too, however few transactions there are: the slower the machine, the more of it.
    assert!(with < 0.1, "{with} heap calls instead of none");
    assert!(without >= 2.0, "{without} heap calls, of two sides");
}

/// Goal: the report fits its columns, has every combination, and no figure of another program.
#[test]
fn the_report_fits_a_terminal() {
    let outcome = measure(&small());
    let text = report::render(&outcome.record, 80);
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for part in [
        "glibc, no pools",
        "glibc, pools",
        "heap calls",
        "fairness",
        "--repetitions",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Figures of other programs belong to the run that measured them.
    assert!(!text.contains("everscale"), "{text}");
}

/// Goal: each second of a run is reported while it goes on, and they add up to it.
#[test]
fn seconds_are_told() {
    let mut config = small();
    config.pools = vec![PoolSetting::On];
    config.repetitions = 1;
    let (mut requests, mut lines) = (0, 0);
    let outcome = run(
        &config,
        &mut |event| {
            if let LoopbackEvent::Second(second) = event {
                requests += second.requests;
                lines += 1;
                assert!(report::second_line(second).contains("p99="));
            }
        },
        &AtomicBool::new(false),
    )
    .unwrap();
    assert!(lines >= 1);
    assert_eq!(requests, outcome.record.candidates[0].runs[0].requests);
}

/// Goal: a candidate whose library is not in place is named and left out; Ctrl-C keeps what there is,
/// or says that there is nothing.
#[test]
fn what_fails_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let trace = millpond_lab::trace::Trace::create(directory.path()).unwrap();
    let mut config = small();
    config.pools = vec![PoolSetting::On];
    let word = format!("counter={}", trace.object().display());
    config.allocators = Some(vec!["glibc".to_owned(), word]);
    let object = trace.object().to_owned();
    let outcome = run(
        &config,
        &mut |event| {
            if matches!(event, LoopbackEvent::Run { run: 1, .. }) {
                std::fs::remove_file(&object).unwrap();
            }
        },
        &AtomicBool::new(false),
    )
    .unwrap();
    assert_eq!(outcome.failures.len(), 1, "{:?}", outcome.failures);
    let failure = &outcome.failures[0];
    assert!(failure.contains("counter, pools"), "{failure}");
    assert!(failure.contains("allocator not in use"), "{failure}");
    assert_eq!(outcome.record.candidates.len(), 1);

    let stop = AtomicBool::new(false);
    config.allocators = None;
    config.repetitions = 50;
    let outcome = run(
        &config,
        &mut |event| {
            if matches!(event, LoopbackEvent::Run { run: 3, .. }) {
                stop.store(true, Ordering::Relaxed);
            }
        },
        &stop,
    )
    .unwrap();
    assert!(outcome.interrupted && outcome.record.interrupted);
    assert!((2..=3).contains(&outcome.record.candidates[0].runs.len()));
    let early = run(&config, &mut |_| {}, &stop).unwrap_err();
    assert!(matches!(early, BenchError::InterruptedEarly), "{early}");
}

/// Goal: more connections than a process may have descriptors for both ends of is one sentence.
#[test]
fn too_many_connections_are_one_sentence() {
    let mut config = small();
    config.connections = 1 << 40;
    let error = run(&config, &mut |_| {}, &AtomicBool::new(false)).unwrap_err();
    let sentence = error.to_string();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.maximum.is_some() {
        assert!(sentence.contains("ulimit -Hn 2199023255680"), "{sentence}");
    }
}

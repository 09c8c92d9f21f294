//! Candidates that fail, and requests that do: which are left out with which cause, which are counted, and the results
//! of the others. A server of our own, under shims that crash, hang, or are killed at a certain heap call.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use millpond_lab::{CompareConfig, CompareOutcome, LabError, Target, compare};
use millpond_measure::record::{FailureCause, LeftOut, LeftOutWhen, RoundStatus};
use millpond_measure::report::terminal::{self, TerminalOptions};

use crate::common::{free_address, short_comparison};
use crate::presence::compile_c;

/// Later than the last call before the first request, earlier than the end of the first burst.
const LIMIT: u32 = 500;
/// A server that responds at once and then not for so long hangs.
const SILENCE: Duration = Duration::from_secs(2);

/// A comparison of the server in `directory`, with this word, under the C library's malloc, a setting of it, and shims:
/// their names, what they do, and in targets with which label.
fn config(directory: &Path, bad_every: u32, shims: &[(&str, &str, &str)]) -> CompareConfig {
    let source = include_str!("failing_server.c");
    let program = compile_c(directory, "server", source, &["-pthread"]);
    let words = [program, "{port}".to_owned(), bad_every.to_string()];
    let mut allocators = vec!["glibc".to_owned(), "glibc:arena_max=1".to_owned()];
    for (name, act, label) in shims {
        let flags = [
            "-shared".to_owned(),
            "-fPIC".to_owned(),
            format!("-DLIMIT={LIMIT}"),
            format!("-DACT={act}"),
            format!("-DLABEL=\"{label}\""),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let source = include_str!("failing_shim.c");
        let library = compile_c(directory, &format!("lib{name}.so"), source, &flags);
        allocators.push(format!("{name}={library}"));
    }
    let mut config = short_comparison(directory, &words, free_address(), allocators);
    config.silence_min = SILENCE;
    config.rounds = Some(1);
    config
}

fn run(config: &CompareConfig) -> Result<CompareOutcome, LabError> {
    compare(config, &mut |_| {}, &AtomicBool::new(false))
}

fn of<'a>(left_out: &'a [LeftOut], name: &str) -> &'a LeftOut {
    let found = left_out.iter().find(|one| one.candidate == name);
    found.unwrap_or_else(|| panic!("{name} in {left_out:?}"))
}

fn names(outcome: &CompareOutcome) -> Vec<&str> {
    let candidates = outcome.record.candidates.iter();
    candidates.map(|one| one.name.as_str()).collect()
}

/// Goal: a candidate that crashes, one that hangs and one that is killed are left out when they are tried, each with its
/// cause and its last words, as entries of results.json and as rows; the others are judged.
#[test]
fn failing_candidates_are_rows_with_their_cause() {
    let directory = tempfile::tempdir().unwrap();
    let shims = [
        ("crashes", "*(volatile int *)0 = 1", "-preflight"),
        ("hangs", "for (;;) pause()", "-preflight"),
        ("killed", "raise(SIGKILL)", "-preflight"),
    ];
    let outcome = run(&config(directory.path(), 0, &shims)).unwrap();
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    assert_eq!(
        names(&outcome),
        ["glibc", "glibc (again)", "glibc:arena_max=1"]
    );
    let left_out = &outcome.record.left_out;
    assert_eq!(left_out.len(), 3, "{left_out:?}");
    assert!(left_out.iter().all(|one| one.when == LeftOutWhen::TriedOut));
    let crash = of(left_out, "crashes");
    assert_eq!(crash.cause.label(), "crashed (SIGSEGV)", "{crash:?}");
    assert!(
        crash.sentence.contains("the shim has had enough"),
        "{crash:?}"
    );
    let hang = of(left_out, "hangs");
    let FailureCause::Hung {
        after_requests,
        silent_ns,
    } = hang.cause
    else {
        panic!("{hang:?}")
    };
    assert!((1..u64::from(LIMIT)).contains(&after_requests), "{hang:?}");
    assert!(silent_ns > 1_000_000_000, "{hang:?}");
    let killed = of(left_out, "killed");
    assert!(
        killed.cause.label().starts_with("killed (SIGKILL)"),
        "{killed:?}"
    );
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(&outcome.results).unwrap()).unwrap();
    assert_eq!(json["left_out"].as_array().map(Vec::len), Some(3));
    let text = terminal::render(&outcome.record, &TerminalOptions::default());
    let mut lines = text.lines();
    let row = lines.find(|line| line.starts_with("crashes "));
    assert!(
        row.is_some_and(|row| row.contains("crashed (SIGSEGV)")),
        "{text}"
    );
    let page = fs::read_to_string(&outcome.report).unwrap();
    assert!(page.contains("hung after "));
}

/// Goal: a candidate that crashes in the rounds is left out after the second time, and no round waits for it; the others
/// have all theirs.
#[test]
fn a_crash_in_the_rounds_leaves_out() {
    let directory = tempfile::tempdir().unwrap();
    let shims = [("crashes", "*(volatile int *)0 = 1", "-round")];
    let mut config = config(directory.path(), 0, &shims);
    config.rounds = Some(3);
    let outcome = run(&config).unwrap();
    let [left_out] = &outcome.record.left_out[..] else {
        panic!("{:?}", outcome.record.left_out)
    };
    assert_eq!(left_out.label(), "crashed (SIGSEGV) in round 2");
    assert_eq!(left_out.rounds_done, 0);
    assert_eq!(outcome.failures.len(), 2, "{:?}", outcome.failures);
    assert_eq!(outcome.record.settings.rounds_done, 3);
    for candidate in &outcome.record.candidates {
        let done = candidate
            .rounds
            .iter()
            .filter(|run| run.status == RoundStatus::Done);
        assert_eq!(done.count(), 3, "{}", candidate.name);
    }
}

/// Goal: one request of a thousand that fails ends nothing: it is counted, and the response is as always.
#[test]
fn a_failure_in_a_thousand_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let outcome = run(&config(directory.path(), 1_000, &[])).unwrap();
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let record = &outcome.record;
    assert_eq!(record.settings.errors_allowed, Some(0.001));
    for candidate in &record.candidates {
        let errors: u64 = candidate.rounds.iter().map(|run| run.errors).sum();
        let requests: u64 = candidate.rounds.iter().map(|run| run.requests).sum();
        assert!(
            errors > 0 && errors < requests / 200,
            "{errors} of {requests}"
        );
        let tells = |text: &String| text.starts_with(&format!("{}: {errors} of ", candidate.name));
        let warnings = &record.analysis.warnings;
        assert!(warnings.iter().any(tells), "{warnings:?}");
    }
    let none = || {
        let mut config = config(directory.path(), 1_000, &[]);
        config.errors_allowed = 0.0;
        config
    };
    let told = run(&none()).unwrap_err().to_string();
    assert!(told.contains("responses had status 500"), "{told}");
    assert!(told.contains("0 % may fail"), "{told}");
}

/// Goal: one request of ten that fails leaves a candidate out, with the statuses and their numbers.
#[test]
fn a_tenth_of_failures_leaves_out() {
    let directory = tempfile::tempdir().unwrap();
    let shims = [("fails", "(void)0", "nowhere")];
    let outcome = run(&config(directory.path(), 0, &shims)).unwrap();
    let left_out = of(&outcome.record.left_out, "fails");
    let FailureCause::FailedRequests {
        failed,
        requests,
        statuses,
        ..
    } = &left_out.cause
    else {
        panic!("{left_out:?}")
    };
    assert_eq!(statuses.get("500"), Some(failed), "{left_out:?}");
    let share = *failed as f64 / *requests as f64;
    assert!((0.05..0.2).contains(&share), "{left_out:?}");
    assert!(
        left_out.sentence.contains("responses had status 500"),
        "{left_out:?}"
    );
    assert_eq!(names(&outcome).len(), 3);
}

/// Goal: a URL that does not exist is named with the status, and so is that it may be the wrong one.
#[test]
fn a_wrong_url_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), 0, &[]);
    let Target::Command { requests, .. } = &mut config.target else {
        panic!("a command")
    };
    requests.text += "nowhere";
    requests.plan.target.path += "nowhere";
    let text = requests.text.clone();
    let told = run(&config).unwrap_err().to_string();
    assert!(told.contains("responses had status 404"), "{told}");
    assert!(told.contains(&format!("is {text} the right URL")), "{told}");
}

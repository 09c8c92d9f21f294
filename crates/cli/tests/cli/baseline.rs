//! `--baseline`: the check against an earlier record, and its exit status.

use crate::support::{Finished, millpond, run};
use crate::synthetic::{nine_plans, record};
use millpond_measure::record::{ComparisonRecord, Quantity};
use std::path::Path;

pub(crate) fn write(directory: &Path, name: &str, record: &ComparisonRecord) -> String {
    let file = directory.join(name);
    std::fs::write(&file, record.to_json().unwrap()).unwrap();
    file.display().to_string()
}

/// A record, and a later one in which one candidate has a fifth more memory after the work.
pub(crate) fn with_a_regression() -> (ComparisonRecord, ComparisonRecord) {
    let before = record(&nine_plans(), 10, 0.01, 3);
    let mut after = before.clone();
    for round in &mut after.candidates[7].rounds {
        for (measure, value) in &mut round.measures {
            if measure.quantity == Quantity::MemoryAfterWork {
                *value *= 1.2;
            }
        }
    }
    after.analyse();
    (before, after)
}

fn report(now: &str, earlier: &str, more: &[&str]) -> Finished {
    run(millpond(&["report", now, "--baseline", earlier]).args(more))
}

/// Goal: a planted regression ends with status 3, with the candidate named in text, page and record; the
/// same session against itself, and the other way round, ends with 0.
#[test]
fn a_regression_is_status_three() {
    let directory = tempfile::tempdir().unwrap();
    let (before, after) = with_a_regression();
    let earlier = write(directory.path(), "earlier.json", &before);
    let now = write(directory.path(), "results.json", &after);
    let checked = directory.path().join("checked.json").display().to_string();
    let finished = report(&now, &earlier, &["--json", &checked]);
    assert_eq!(finished.code(), 3, "{finished:?}");
    let words = "Regression: mimalloc with pools: memory 20 % higher than the earlier record";
    assert!(
        finished.stdout.contains("Against the earlier record (2026"),
        "{finished:?}"
    );
    assert!(unwrapped(&finished.stdout).contains(words), "{finished:?}");
    let page = std::fs::read_to_string(directory.path().join("report.html")).unwrap();
    assert!(page.contains("Against the earlier record") && page.contains("memory, now over then"));
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&checked).unwrap()).unwrap();
    assert_eq!(json["regression"]["regressed"], true);
    for (now, earlier) in [(&earlier, &now), (&earlier, &earlier)] {
        let finished = report(now, earlier, &[]);
        assert_eq!(finished.code(), 0, "{finished:?}");
        assert!(
            finished.stdout.contains("No regression beyond the margins"),
            "{finished:?}"
        );
    }
    // Figures of an earlier check are shown again without the earlier record.
    let finished = run(&mut millpond(&["report", &checked]));
    assert_eq!(finished.code(), 3, "{finished:?}");
    let again = std::fs::read_to_string(directory.path().join("report.html")).unwrap();
    assert!(again.contains("Against the earlier record"));
}

fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Goal: a slowdown of all candidates is seen by value and reported by ratio; a record of something else is one
/// sentence.
#[test]
fn values_and_refusals() {
    let directory = tempfile::tempdir().unwrap();
    let before = record(&nine_plans(), 10, 0.01, 3);
    let mut after = before.clone();
    for candidate in &mut after.candidates {
        for round in &mut candidate.rounds {
            for (measure, value) in &mut round.measures {
                if measure.quantity == Quantity::Throughput {
                    *value *= 0.6;
                }
            }
        }
    }
    let earlier = write(directory.path(), "earlier.json", &before);
    let now = write(directory.path(), "results.json", &after);
    let finished = report(&now, &earlier, &[]);
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert!(finished.stdout.contains("itself is 0.60x"), "{finished:?}");
    let finished = report(&now, &earlier, &["--baseline-values"]);
    assert_eq!(finished.code(), 3, "{finished:?}");

    after.environment.cpu_model = Some("Another".to_owned());
    let elsewhere = write(directory.path(), "elsewhere.json", &after);
    let finished = report(&elsewhere, &earlier, &[]);
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(
        finished.sentence().contains("another machine"),
        "{finished:?}"
    );
    let finished = run(&mut millpond(&["report", &now, "--baseline-values"]));
    assert_eq!(finished.code(), 2, "{finished:?}");
}

/// Goal: the two presets that need no other program run in one command and set the earlier figure beside
/// ours, with what may be compared.
#[test]
#[ignore = "slow tier: two presets, a minute"]
fn presets_set_the_earlier_figure_beside_ours() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("report").display().to_string();
    let common = ["compare", "--out", &out, "--preset-share", "0.001"];
    let finished = run(millpond(&common).args(["--preset", "mempool"]));
    // 4: other tests keep the machine busy.
    assert!([0, 4].contains(&finished.code()), "{finished:?}");
    assert!(
        finished.stdout.contains("0.007 ms (7,000 ns)"),
        "{finished:?}"
    );
    assert!(!finished.stdout.contains("not measured"), "{finished:?}");

    let more = [
        "--preset",
        "everscale",
        "--allocators",
        "glibc,mempool",
        "--rounds",
        "1",
    ];
    let finished = run(millpond(&common).args(more));
    // One round decides nothing; status 4 says so.
    assert!([0, 4].contains(&finished.code()), "{finished:?}");
    let ours = finished
        .stdout
        .lines()
        .find(|line| line.contains("174,956/s"));
    assert!(
        ours.is_some_and(|line| line.contains("/s glibc")),
        "{finished:?}"
    );
    assert!(finished.stdout.contains("Not comparable: "), "{finished:?}");

    let more = ["--one-process", "--allocators", "glibc", "--rounds", "1"];
    let finished = run(millpond(&common).args(["--preset", "everscale"]).args(more));
    assert!([0, 4].contains(&finished.code()), "{finished:?}");
    for part in ["500 connections x 5 requests", "glibc, no pools"] {
        assert!(finished.stdout.contains(part), "{part}: {finished:?}");
    }
    assert!(directory.path().join("report/loopback.json").is_file());
    let words = ["--preset", "haywire", "--one-process"];
    let refused = run(millpond(&common).args(words));
    assert_eq!(refused.code(), 2, "{refused:?}");
    assert!(
        refused.sentence().contains("--preset everscale"),
        "{refused:?}"
    );
}

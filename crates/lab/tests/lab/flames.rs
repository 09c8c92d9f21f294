//! The flame graphs of a comparison's report.

use std::fs;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use millpond_lab::{CompareOutcome, LabEvent, compare};
use millpond_measure::flamegraph::Stacks;
use millpond_measure::record::FlameKind;

use crate::common::{free_address, python_server, short_comparison};

fn run(directory: &std::path::Path, profile: bool, budget: u64) -> (CompareOutcome, Vec<LabEvent>) {
    let address = free_address();
    let allocators = ["glibc", "mempool"].map(str::to_owned).to_vec();
    let mut config = short_comparison(directory, &python_server(address), address, allocators);
    config.profile = profile;
    config.time_budget = Duration::from_secs(budget);
    let mut events = Vec::new();
    let outcome = compare(
        &config,
        &mut |event| events.push(event.clone()),
        &AtomicBool::new(false),
    );
    let outcome = outcome.expect("a comparison");
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    (outcome, events)
}

/// Goal: the report has the baseline's and the other one's graphs, with the files beside it; the record
/// holds what the page draws; rounds and verdicts are those of a comparison without them, and a later
/// comparison in the same place leaves no old graphs.
#[test]
#[ignore = "slow tier: a whole comparison with flame graphs, over a minute"]
fn a_report_has_flame_graphs() {
    let directory = tempfile::tempdir().unwrap();
    let (outcome, events) = run(directory.path(), true, 90);
    let record = &outcome.record;
    let names = |kind: FlameKind| -> Vec<&str> {
        let graphs = record.flame_graphs.iter();
        graphs
            .filter(|one| one.kind == kind)
            .map(|one| one.candidate.as_str())
            .collect()
    };
    let warnings = record.analysis.warnings.join("\n");
    // A machine that others hold up may have no time for the last: then it is named instead.
    let all_or_named = |kind: FlameKind, label: &str| {
        let found = names(kind);
        for name in ["glibc", "mempool"] {
            let is_named =
                warnings.contains("was used up") && warnings.contains(&format!("{name} ({label})"));
            let is_there = found.contains(&name);
            assert!(is_there != is_named, "{name} {label}: {warnings}");
        }
        assert!(found.is_sorted(), "{found:?}");
        found.len()
    };
    let allocations = all_or_named(FlameKind::AllocatedBytes, "allocations");
    let has_cpu = !warnings.contains("no CPU graph");
    let cpu = if has_cpu {
        all_or_named(FlameKind::CpuTime, "cpu")
    } else {
        0
    };
    if cpu + allocations < 4 {
        eprintln!("skipped: {warnings}");
    }
    for graph in &record.flame_graphs {
        assert!(graph.samples > 0 && !graph.note.is_empty(), "{graph:?}");
        let stacks = graph.stacks();
        assert!(stacks.to_folded().contains("python"), "{graph:?}");
        let stem = match graph.kind {
            FlameKind::CpuTime => "cpu",
            FlameKind::AllocatedBytes => "alloc-bytes",
        };
        let file = outcome.report.with_file_name(&graph.directory).join(stem);
        let whole = fs::read_to_string(file.with_extension("folded")).unwrap();
        let whole = Stacks::parse_folded(&whole).unwrap();
        assert_eq!(stacks.total(), whole.total(), "{}", file.display());
        let svg = fs::read_to_string(file.with_extension("svg")).unwrap();
        assert!(svg.contains("class=\"mpflame\""));
    }
    let flames = outcome.report.with_file_name("flamegraphs");
    let has_both = allocations == 2;
    for file in [
        "alloc.pb.gz",
        "diff-alloc-bytes.svg",
        "diff-alloc-bytes.folded",
    ] {
        let is_there = flames.join("mempool").join(file).is_file();
        assert_eq!(is_there, has_both, "{file}");
    }
    let page = fs::read_to_string(&outcome.report).unwrap();
    let title = "Bytes asked for: mempool against glibc";
    assert_eq!(page.contains(title), has_both);
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    let drawn = events
        .iter()
        .filter(|event| matches!(event, LabEvent::FlameGraph { .. }));
    assert_eq!(drawn.count(), cpu + allocations);
    assert_eq!(record.settings.rounds_done, 2);
    assert_eq!(record.candidates[0].rounds.len(), 2);
    let (plain, _) = run(directory.path(), false, 10);
    assert!(plain.record.flame_graphs.is_empty());
    assert!(!flames.exists());
}

/// Goal: where the budget's part has no room for a single run, the report says that and is complete
/// otherwise.
#[test]
#[ignore = "slow tier: a whole comparison, 20 s"]
fn no_time_for_graphs_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let (outcome, _) = run(directory.path(), true, 4);
    let warnings = outcome.record.analysis.warnings.join("\n");
    assert!(outcome.record.flame_graphs.is_empty());
    assert!(
        warnings.contains("no flame graphs of glibc ("),
        "{warnings}"
    );
    assert!(warnings.contains("--time-budget"), "{warnings}");
    assert!(outcome.report.is_file());
}

//! `millpond bench pools`: its results against the targets.
//!
//! Times come from the benchmark's own interleaved runs; instructions of one allocate and free come
//! from valgrind's callgrind in any case, as two runs of the program `pair` with different numbers of
//! iterations: the difference holds neither start nor end. The same loop without allocation is taken
//! off.

use super::Figure;
use super::{Bench, callgrind};
use serde_json::Value;
use std::process::Command;

/// Iterations of the two counted runs, and what one holds.
const COUNTED_ITERATIONS: [u64; 2] = [200, 1_200];
const PAIRS_PER_ITERATION: f64 = 140.0;

/// A program, and how many times as fast the pools are to be.
struct Goal {
    program: &'static str,
    over_glibc: &'static str,
    over_glibc_min: Option<f64>,
    over_best: &'static str,
    over_best_min: Option<f64>,
}

const GOALS: [Goal; 7] = [
    Goal {
        program: "objects",
        over_glibc: "pools_objects_speedup_over_glibc",
        over_glibc_min: Some(2.0),
        over_best: "pools_objects_speedup_over_best_allocator",
        over_best_min: Some(1.0),
    },
    Goal {
        program: "pair",
        over_glibc: "pools_pair_speedup_over_glibc",
        over_glibc_min: Some(4.0),
        over_best: "pools_pair_speedup_over_best_allocator",
        over_best_min: Some(1.0),
    },
    Goal {
        program: "pair-block",
        over_glibc: "pools_pair_block_speedup_over_glibc",
        over_glibc_min: None,
        over_best: "pools_pair_block_speedup_over_best_allocator",
        over_best_min: None,
    },
    Goal {
        program: "mixed",
        over_glibc: "pools_mixed_speedup_over_glibc",
        over_glibc_min: None,
        over_best: "pools_mixed_speedup_over_best_allocator",
        over_best_min: None,
    },
    Goal {
        program: "two-threads",
        over_glibc: "pools_two_threads_speedup_over_glibc",
        over_glibc_min: None,
        over_best: "pools_two_threads_speedup_over_best_allocator",
        over_best_min: None,
    },
    Goal {
        program: "producer-consumer",
        over_glibc: "pools_producer_consumer_speedup_over_glibc",
        over_glibc_min: None,
        over_best: "pools_producer_consumer_speedup_over_best_allocator",
        over_best_min: Some(1.5),
    },
    Goal {
        program: "producer-consumer-mixed",
        over_glibc: "pools_producer_consumer_mixed_speedup_over_glibc",
        over_glibc_min: None,
        over_best: "pools_producer_consumer_mixed_speedup_over_best_allocator",
        over_best_min: Some(1.5),
    },
];

const RSS_PER_LIVE_MAX: f64 = 1.15;
const RETURNED_MIN: f64 = 0.8;
const PAIR_INSTRUCTIONS_MAX: f64 = 12.0;

/// Runs the benchmark and reads its record.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let record = run(bench)?;
    let mut figures = Vec::new();
    for goal in &GOALS {
        figures.extend(speedups(&record, goal)?);
    }
    figures.extend(memory(&record)?);
    figures.extend(instructions(bench)?);
    Ok(figures)
}

fn run(bench: &Bench) -> Result<Value, String> {
    let file = bench.scratch.join("pools.json");
    let mut command = Command::new(&bench.millpond);
    command.args(["bench", "pools", "--json"]).arg(&file);
    if bench.plan.smoke {
        command.args(["--quick", "--iterations", "100", "--repetitions", "1"]);
        command.args(["--allocators", "glibc"]);
    }
    println!("$ {command:?}");
    let status = command
        .status()
        .map_err(|error| format!("millpond cannot be run: {error}"))?;
    // 4 means that the machine was busy; the record says so too.
    if !matches!(status.code(), Some(0 | 4)) {
        return Err(format!("millpond bench pools ended with {status}"));
    }
    let text =
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Pair by pair: the first over glibc, the second over whichever other allocator is the fastest.
fn speedups(record: &Value, goal: &Goal) -> Result<Vec<Figure>, String> {
    let allocators = allocators(record, goal.program)?;
    let pool = runs(allocators, "pool")?;
    let glibc = runs(allocators, "glibc")?;
    let mut figures = vec![with_target(
        goal.over_glibc,
        &glibc,
        &pool,
        goal.over_glibc_min,
    )];
    let rivals = allocators
        .iter()
        // Ours as malloc is no rival.
        .filter(|it| it["memory"] == "malloc" && it["allocator"] != "mempool")
        .filter_map(|it| Some((it["allocator"].as_str()?, median_of(it)?)));
    if let Some((best, _)) = rivals.min_by(|one, other| one.1.total_cmp(&other.1)) {
        println!("{}: the fastest other allocator is {best}", goal.program);
        let best = runs(allocators, best)?;
        figures.push(with_target(
            goal.over_best,
            &best,
            &pool,
            goal.over_best_min,
        ));
    }
    Ok(figures)
}

fn with_target(name: &'static str, theirs: &[f64], ours: &[f64], at_least: Option<f64>) -> Figure {
    let ratios = theirs.iter().zip(ours).map(|(theirs, ours)| theirs / ours);
    let figure = Figure::median(name, ratios.collect());
    match at_least {
        Some(limit) => figure.at_least(limit),
        None => figure,
    }
}

/// The output of `churn` and `connections` about the pools.
fn memory(record: &Value) -> Result<Vec<Figure>, String> {
    let of_pool = |program: &str, part: &str, field: &str| {
        let found = allocators(record, program)?
            .iter()
            .find(|it| it["allocator"] == "pool")
            .and_then(|it| it[part][field].as_f64());
        found.ok_or_else(|| format!("the record has no {field} of {program} on pools"))
    };
    let figure = |name, value| Figure::median(name, vec![value]);
    let churn = |field| of_pool("churn", "retention", field);
    let scattered = |field| of_pool("churn-scattered", "retention", field);
    let connections = |field| of_pool("connections", "per_connection", field);
    Ok(vec![
        figure(
            "pools_churn_rss_per_live_bytes_after_a_day",
            churn("rss_per_live_end")?,
        )
        .at_most(RSS_PER_LIVE_MAX),
        figure(
            "pools_churn_rss_per_live_bytes_worst",
            churn("rss_per_live_worst")?,
        ),
        figure(
            "pools_churn_share_of_peak_rss_returned",
            churn("returned_share")?,
        )
        .at_least(RETURNED_MIN),
        figure(
            "pools_churn_scattered_share_of_peak_rss_returned",
            scattered("returned_share")?,
        ),
        figure(
            "pools_rss_per_connection_active_bytes",
            connections("active_bytes")?,
        ),
        figure(
            "pools_rss_per_connection_idle_bytes",
            connections("idle_bytes")?,
        ),
    ])
}

/// One allocate and free, of pools and of glibc: what the program takes less what its loop takes when
/// it allocates nothing.
fn instructions(bench: &Bench) -> Result<Vec<Figure>, String> {
    if let Err(sentence) = callgrind::available() {
        println!("instructions are not counted: {sentence}");
        return Ok(Vec::new());
    }
    let per_pair = |memory: &str| -> Result<f64, String> {
        let [few, many] = COUNTED_ITERATIONS.map(|iterations| count(bench, memory, iterations));
        let iterations = (COUNTED_ITERATIONS[1] - COUNTED_ITERATIONS[0]) as f64;
        let per_pair = (many? - few?) / (iterations * PAIRS_PER_ITERATION);
        println!("pair on {memory}: {per_pair:.2} instructions, the loop included, by callgrind");
        Ok(per_pair)
    };
    let (pool, glibc, rest) = (per_pair("pool")?, per_pair("malloc")?, per_pair("placed")?);
    let figure = |name, value| Figure::median(name, vec![value]);
    Ok(vec![
        figure("pools_pair_instructions_by_callgrind", pool - rest).at_most(PAIR_INSTRUCTIONS_MAX),
        figure("glibc_pair_instructions_by_callgrind", glibc - rest),
    ])
}

fn count(bench: &Bench, memory: &str, iterations: u64) -> Result<f64, String> {
    let iterations = iterations.to_string();
    let words = ["bench-child", "pair", memory, &iterations, "1", "0"];
    callgrind::instructions(bench, &format!("pair-{memory}"), &words)
}

fn allocators<'a>(record: &'a Value, program: &str) -> Result<&'a Vec<Value>, String> {
    let programs = record["programs"].as_array().into_iter().flatten();
    let found = programs.into_iter().find(|it| it["name"] == program);
    found
        .and_then(|it| it["allocators"].as_array())
        .ok_or_else(|| format!("the record has no program {program}"))
}

fn runs(allocators: &[Value], name: &str) -> Result<Vec<f64>, String> {
    let found = allocators.iter().find(|it| it["allocator"] == name);
    found
        .and_then(|it| it["ns_per_iteration_runs"].as_array())
        .map(|runs| runs.iter().filter_map(Value::as_f64).collect())
        .ok_or_else(|| format!("the record has no runs on {name}"))
}

fn median_of(allocator: &Value) -> Option<f64> {
    allocator["ns_per_iteration"]["median"].as_f64()
}

#[cfg(test)]
#[path = "tests/pools.rs"]
mod tests;

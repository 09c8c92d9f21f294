//! The benchmark as a process: its output, its exit status, and what an interruption leaves.

use crate::support::{Running, millpond, run};
use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

fn record(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Goal: the table goes to stdout and the record to its file, with the fields other tools rely on.
#[test]
fn the_pools_are_compared_with_malloc() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pools.json");
    let words = "bench pools --allocators glibc,mempool --programs objects,pair --iterations 200 \
                 --repetitions 2 --json";
    let words: Vec<&str> = words.split_whitespace().collect();
    let finished = run(millpond(&words).arg(&file));
    // 4 says that something else kept the machine busy, as other tests do.
    assert!([0, 4].contains(&finished.code()), "{finished:?}");
    for part in ["objects:", "pool", "glibc", "Not allocation:"] {
        assert!(finished.stdout.contains(part), "{part}: {finished:?}");
    }
    let record = record(&file);
    let objects = &record["programs"][0];
    assert_eq!(objects["name"], "objects");
    assert_eq!(objects["operations_per_iteration"], 280.0);
    assert!(objects["speedup"].as_f64().unwrap() > 0.0);
    for allocator in objects["allocators"].as_array().unwrap() {
        for figure in ["mean", "median", "stdev", "cv"] {
            assert!(
                allocator["ns_per_iteration"][figure].is_number(),
                "{figure}"
            );
        }
        assert!(allocator.get("instructions_per_op").is_some());
    }
    assert_eq!(record["verdict"]["status"] == "OK", finished.code() == 0);
}

/// Goal: seconds and tables go to stdout, the record to its file, and the heap calls of pools and of
/// malloc stand beside the rates.
#[test]
fn client_and_server_run_in_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("loopback.json");
    let words = "bench loopback -c 20 -i 100 --allocators glibc,mempool --repetitions 2 --json";
    let words: Vec<&str> = words.split_whitespace().collect();
    let finished = run(millpond(&words).arg(&file));
    // 4 says that something else kept the machine busy, as other tests do.
    assert!([0, 4].contains(&finished.code()), "{finished:?}");
    for part in [
        "run 1 of 8: ",
        "   1 s: ",
        "p99=",
        "20 connections x 100 requests",
        "mempool, no pools",
        "fairness",
    ] {
        assert!(finished.stdout.contains(part), "{part}: {finished:?}");
    }
    let record = record(&file);
    assert_eq!(record["candidates"].as_array().unwrap().len(), 4);
    for candidate in record["candidates"].as_array().unwrap() {
        for run in candidate["runs"].as_array().unwrap() {
            assert_eq!(
                (&run["requests"], &run["accepts"]),
                (&2_000.into(), &20.into())
            );
            assert!(run["seconds"][0]["response_ns"]["p99"].is_number());
        }
        let calls = candidate["heap_calls_per_transaction"].as_f64().unwrap();
        assert_eq!(calls >= 1.0, candidate["pools"] == "off", "{candidate}");
    }
    assert_eq!(record["verdict"]["status"] == "OK", finished.code() == 0);
}

/// Goal: Ctrl-C ends the pair soon, with what was measured, and leaves no child.
#[test]
fn an_interrupted_pair_tells_what_it_measured() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("loopback.json");
    // The number of connections is among the words of a child.
    let connections = 20 + std::process::id() % 500;
    let mark = format!("\"connections\":{connections},");
    let count = connections.to_string();
    let words = [
        "bench",
        "loopback",
        "-c",
        &count,
        "-i",
        "20",
        "--pools",
        "on",
        "--repetitions",
        "100000",
        "--json",
    ];
    let mut bench = Running::start(millpond(&words).arg(&file));
    // The second begins when the first has been measured.
    let begun = bench.until_line_with("run 2 of 100000: glibc, pools");
    assert!(
        begun.starts_with("run 1 of 100000: glibc, pools"),
        "{begun}"
    );
    bench.signal("INT");
    let finished = bench.finish();
    assert_eq!(finished.code(), 130, "{finished:?}");
    assert!(finished.stdout.contains("Interrupted"), "{finished:?}");
    assert_eq!(record(&file)["interrupted"], true);
    assert_eq!(children_with(&mark), []);
}

/// Goal: Ctrl-C ends it soon with what it measured, on paper and in the record, and leaves no child.
#[test]
fn an_interrupted_benchmark_tells_what_it_measured() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pools.json");
    let seed = format!("7000000{}", std::process::id());
    let words = format!(
        "bench pools --programs pair --allocators glibc --iterations 2000 --repetitions 1000000 \
         --seed {seed} --json"
    );
    let words: Vec<&str> = words.split_whitespace().collect();
    let bench = Running::start(millpond(&words).arg(&file));
    // Until some repetitions have certainly ended: each has a child for the pool and one for malloc.
    let mut seen = HashSet::new();
    while seen.len() < 12 {
        seen.extend(children_with(&seed));
        std::thread::sleep(Duration::from_millis(1));
    }
    bench.signal("INT");
    let finished = bench.finish();
    assert_eq!(finished.code(), 130, "{finished:?}");
    assert!(finished.stdout.contains("Interrupted"), "{finished:?}");
    assert_eq!(record(&file)["interrupted"], true);
    assert_eq!(children_with(&seed), []);
}

/// Process ids and words of the benchmark's children that were started with `mark` among their words.
fn children_with(mark: &str) -> Vec<(String, String)> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let named = processes.filter_map(|process| {
        let words = std::fs::read(process.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let id = process.file_name().to_string_lossy().into_owned();
        Some((id, words))
    });
    named
        .filter(|(_, words)| words.contains("bench-child") && words.contains(mark))
        .collect()
}

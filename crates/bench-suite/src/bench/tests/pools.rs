use super::*;
use serde_json::json;

fn allocator(name: &str, memory: &str, runs: [f64; 2]) -> Value {
    let median = f64::midpoint(runs[0], runs[1]);
    json!({
        "allocator": name,
        "memory": memory,
        "ns_per_iteration": { "median": median },
        "ns_per_iteration_runs": runs,
    })
}

/// Goal: ratios are of pairs, the best rival is the fastest malloc and never the loop alone, and
/// a program that is missing is named.
#[test]
fn speedups_are_over_glibc_and_over_the_best() {
    let record = json!({ "programs": [{ "name": "objects", "allocators": [
        allocator("pool", "pool", [10.0, 20.0]),
        allocator("glibc", "malloc", [40.0, 80.0]),
        allocator("swift", "malloc", [15.0, 30.0]),
        allocator("none", "placed", [1.0, 1.0]),
    ]}]});
    let figures = speedups(&record, &GOALS[0]).unwrap();
    assert_eq!(figures[0].runs, [4.0, 4.0]);
    assert_eq!(figures[1].runs, [1.5, 1.5]);
    let error = speedups(&record, &GOALS[1]).unwrap_err();
    assert!(error.contains("pair"), "{error}");
}

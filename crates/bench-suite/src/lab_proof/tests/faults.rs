use super::*;
use serde_json::json;

fn scout(measures: &serde_json::Value) -> Comparison {
    Comparison::of_record(json!({
        "candidates": [{"role": "baseline", "rounds": [{"measures": measures}]}]
    }))
}

/// Goal: the planted work follows from the cost of a request, in whole turns and pages; the
/// baseline stalls as often as the other, and for less time.
#[test]
fn faults_are_sized_by_the_plain_server() {
    let plain = json!({HEAP_CALLS: 2.0, THROUGHPUT: 100_000.0, CPU: 8_000.0, MEMORY: 20_000_000.0});
    let scene = Scene::sized(&scout(&plain), 0.125).unwrap();
    let (base, planted) = (scene.baseline, scene.planted);
    // 4 us of a request are 32,000 instructions, in whole turns in each of two allocations; 3 % of 12 us are 2,880.
    assert_eq!(
        (base.instructions, planted.instructions),
        (16_002.0, 16_002.0 + 1_440.0)
    );
    assert_eq!(scene.faults[0].truth, Truth::Added(360.0));
    assert_eq!((base.stall_every, planted.stall_every), (8_000.0, 8_000.0));
    assert_eq!((base.stall_us, planted.stall_us), (20_000.0, 21_600.0));
    assert_eq!(
        (base.retain_bytes, planted.retain_bytes % 4096.0),
        (0.0, 0.0)
    );
    let measures: Vec<_> = scene.faults.iter().map(|fault| fault.measure).collect();
    assert_eq!(measures, [CPU, P99, MEMORY, THROUGHPUT]);
    assert_eq!(
        scene.allocators("/x.so"),
        "base=/x.so:PLANT_INSTRUCTIONS=16002,PLANT_STALL_EVERY=8000,PLANT_STALL_US=20000,planted=/x.so:\
         PLANT_INSTRUCTIONS=17442,PLANT_STALL_EVERY=8000,PLANT_STALL_US=21600,PLANT_RETAIN_BYTES=598016"
    );
}

/// Goal: counters are taken where there are some, with the baseline's own instructions; a server
/// without heap calls is no subject; the smoke run's baseline is plain.
#[test]
fn counters_come_first_and_a_server_without_calls_is_refused() {
    let counted = json!({HEAP_CALLS: 1.0, THROUGHPUT: 1_000.0, CPU: 8_000.0, INSTRUCTIONS: 10_000.0,
        MEMORY: 20_000_000.0});
    let scene = Scene::sized(&scout(&counted), 0.125).unwrap();
    assert_eq!(scene.faults[0].measure, INSTRUCTIONS);
    let added = scene.planted.instructions - scene.baseline.instructions;
    // 1 % of 10,000 and of 32,001 of the baseline's own.
    assert_eq!((added, scene.faults[0].truth), (423.0, Truth::Added(423.0)));
    let counted = json!({HEAP_CALLS: 4.03, EMULATED: 30_000.0});
    let work = Scene::of_work(&scout(&counted)).unwrap();
    let (base, planted) = (work.baseline.instructions, work.planted.instructions);
    // 1 % is 75 in each, which is 25 turns.
    assert_eq!((base, planted), (3.0, 78.0));
    assert_eq!(work.faults[0].truth, Truth::Added(300.0));
    assert!(Scene::of_work(&scout(&json!({HEAP_CALLS: 4.0}))).is_err());
    let silent = json!({HEAP_CALLS: 0.0, THROUGHPUT: 1.0, CPU: 1.0, MEMORY: 1.0});
    assert!(Scene::sized(&scout(&silent), 0.125).is_err());
    let memory = Scene::of_memory(&scout(&json!({MEMORY: 10_000_000.0})), 0.3).unwrap();
    assert_eq!(
        memory.allocators("/x.so"),
        "glibc,planted=/x.so:PLANT_RETAIN_BYTES=2998272"
    );
}

/// Goal: the truths of time follow from the model, worked out by hand: a server that takes 10 us for a request, sleeps
/// 20 ms after 2,000 of them and is asked 20,000 times a second keeps 20 of 2,000 waiting longer than 19.2 ms.
#[test]
fn truths_follow_from_what_was_planted() {
    let model = Model {
        requests_per_sleep: 2_000.0,
        base_sleep_ns: 20e6,
        planted_sleep_ns: 21.6e6,
        added_ns: 0.0,
    };
    let p99_ns = model.p99_ns(20e6, 10_000.0, 20_000.0);
    assert!(
        (p99_ns - (20e6 - 20.0 * 50_000.0 * 0.8)).abs() < 1.0,
        "{p99_ns}"
    );
    let comparison = Comparison::of_record(json!({
        "settings": {"rate_per_s": {"request": 20_000.0}},
        "details": [{"measure": CPU, "comparisons": [{"candidate": "planted:X=1", "verdict": "worse",
            "ratio": 1.0, "low": 1.0, "high": 1.0, "baseline_value": 10_000.0}]}],
    }));
    let of = |truth: Truth| truth.of(&comparison, 100.0).unwrap();
    assert!((of(Truth::Sleep(model)) - 20.8 / 19.2).abs() < 1e-9);
    assert!((of(Truth::Rate(model)) - 40.0 / 41.6).abs() < 1e-9);
    let busier = Model {
        added_ns: 1_000.0,
        ..model
    };
    assert!((of(Truth::Rate(busier)) - 40.0 / 43.6).abs() < 1e-9);
    assert!((of(Truth::Sleep(busier)) - (21.6 - 0.78) / 19.2).abs() < 1e-9);
    assert_eq!((of(Truth::Added(3.0)), of(Truth::Same)), (1.03, 1.0));
    let empty = Comparison::of_record(json!({}));
    assert_eq!(Truth::Rate(model).of(&empty, 1.0), None);
}

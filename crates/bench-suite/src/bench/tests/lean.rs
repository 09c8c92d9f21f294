use super::*;

const TEXT: &str = "{\"requests\": 1000, \"window_ns\": 500000000, \"generator_cpu_ns\": \
                    490000000, \"server_cpu_ns\": 250000000, \"requests_in_all\": 1200}\n";

/// Goal: the figures follow from the counts, and a generator that never rested is named.
#[test]
fn what_it_prints_is_read() {
    let run = Run::parse(TEXT).unwrap();
    assert_eq!(run.requests_in_all, 1200);
    let close = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
    assert!(close(run.requests_per_s(), 2000.0));
    assert!(close(run.requests_per_cpu_s(), 4000.0));
    assert!(close(run.cpu_ns(), 250_000.0));
    assert!(run.is_saturated(), "{run}");
    let server_cpu_ns = 490e6;
    assert!(
        !Run {
            server_cpu_ns,
            ..run
        }
        .is_saturated()
    );
    assert!(Run::parse("").is_err());
    assert!(Run::parse(&TEXT.replace("250000000", "null")).is_err());
}

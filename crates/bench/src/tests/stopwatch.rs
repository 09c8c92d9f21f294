use super::*;
use std::time::Duration;

/// Goal: sleeping takes time on the clock and next to none on the CPU, and two threads take the
/// longer time and both CPU times.
#[test]
fn clock_and_cpu_are_told_apart() {
    let asleep = Timed::of(|| std::thread::sleep(Duration::from_millis(30)));
    assert!(asleep.wall_ns >= 30_000_000);
    assert!(asleep.cpu_ns < asleep.wall_ns);
    let longer = Timed {
        wall_ns: asleep.wall_ns + 1,
        cpu_ns: 5,
        counts: None,
    };
    let both = asleep.beside(longer);
    assert_eq!(
        (both.wall_ns, both.cpu_ns, both.counts),
        (asleep.wall_ns + 1, asleep.cpu_ns + 5, None)
    );
}

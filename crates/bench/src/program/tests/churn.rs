use super::*;
use crate::memory::Malloc;

/// Goal: the load is a wave from noon to noon.
#[test]
fn the_load_is_a_wave() {
    for (time, load) in [(0.0, 1.0), (0.5, NIGHT), (1.0, 1.0)] {
        assert!((load_at(time) - load).abs() < 1e-9);
    }
    assert_eq!(
        [0, 72, 144, 216].map(scale_at),
        [(1, 1), (3, 2), (1, 1), (3, 4)]
    );
}

/// Goal: live bytes reach the peak and follow the load down; then what was to survive does, and
/// of the two ways one keeps the oldest.
#[test]
fn a_day_ends_with_its_survivors() {
    let mut mean_births = Vec::new();
    for survivors in [Survivors::Oldest, Survivors::Random] {
        let plan = Plan {
            iterations: 1_000,
            seed: 1,
            idle_seconds: 0,
            on_idle: || {},
        };
        let mut day = Day::<Malloc>::new(&plan);
        let mut watch = Watch::default();
        day.live_through(plan.iterations * ALLOCATIONS_PER_ITERATION, &mut watch);
        let peak_bytes = day.live_peak_bytes as f64;
        assert!(watch.live_peak_bytes as f64 > 0.9 * peak_bytes);
        let part = |bytes: u64| bytes as f64 / peak_bytes;
        assert!(
            (0.9..1.05).contains(&part(day.live_bytes)),
            "{}",
            day.live_bytes
        );
        day.drop_the_rest(survivors);
        assert!(
            (0.03..0.06).contains(&part(day.live_bytes)),
            "{}",
            day.live_bytes
        );
        let births: Vec<u64> = day
            .long
            .iter()
            .flatten()
            .map(|block| u64::from(block.tag_half()))
            .collect();
        mean_births.push(births.iter().sum::<u64>() / births.len() as u64);
    }
    assert!(mean_births[0] < mean_births[1], "{mean_births:?}");
}

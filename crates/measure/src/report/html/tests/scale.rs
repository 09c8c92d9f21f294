use super::*;

#[test]
fn linear_ticks_are_round() {
    let scale = Scale::linear(0.0, 47_300.0, 0.0, 500.0);
    assert_eq!(
        scale.linear_ticks(5),
        [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0]
    );
    assert_eq!(Scale::linear(3.0, 3.0, 0.0, 1.0).linear_ticks(2).len(), 3);
}

#[test]
fn ratio_ticks_keep_their_distance_and_show_one() {
    for (low, high) in [(0.97, 1.04), (0.8, 1.6), (0.3, 2.4), (0.05, 20.0)] {
        let scale = Scale::logarithmic(low, high, 0.0, 300.0);
        let ticks = scale.ratio_ticks(38.0);
        assert!(ticks.contains(&1.0) && ticks.len() >= 3, "{ticks:?}");
        assert!(
            ticks
                .windows(2)
                .all(|two| scale.at(two[1]) - scale.at(two[0]) >= 38.0)
        );
    }
}

#[test]
fn values_outside_stick_to_the_ends() {
    let scale = Scale::logarithmic(1.0, 100.0, 0.0, 200.0);
    assert_eq!(scale.at(10.0), 100.0);
    assert_eq!(scale.at(0.0), 0.0);
    assert_eq!(scale.at(1e9), 200.0);
    assert_eq!(
        scale.decade_ticks(),
        [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    );
}

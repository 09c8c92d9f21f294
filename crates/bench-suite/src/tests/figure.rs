use super::*;

/// Goal: the median does not depend on the order of the runs, and the table says which run missed.
#[test]
fn targets_are_judged_by_the_median() {
    let figure = Figure::median("a_ratio", vec![0.9, 0.7, 0.8]).at_most(0.85);
    assert!((figure.value - 0.8).abs() < 1e-12);
    assert_eq!(figure.is_met(), Some(true));
    let missed = Figure::median("b_per_s", vec![2.0, 4.0]).at_least(10.0);
    let text = table(&[figure, missed, Figure::median("c", vec![1.0])]);
    assert_eq!(text.matches("met").count(), 1);
    assert_eq!(text.matches("MISSED").count(), 1, "{text}");
    assert!(text.contains(">= 10.00"));
}

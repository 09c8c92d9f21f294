use super::*;

/// Goal: only what was used between the two readings counts, and no use at all is no share.
#[test]
fn reuse_is_of_what_came_in_between() {
    let figure = reuse([10.0, 64.0], [1009.0, 65.0]).unwrap();
    assert!((figure.value - 0.999).abs() < 1e-12, "{}", figure.value);
    assert!(reuse([10.0, 64.0], [10.0, 64.0]).is_err());
}

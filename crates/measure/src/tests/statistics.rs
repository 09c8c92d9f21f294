use super::*;

#[test]
fn medians() {
    assert_eq!(median(&mut []), None);
    assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
    assert_eq!(
        median(&mut [f64::INFINITY, f64::INFINITY]),
        Some(f64::INFINITY)
    );
    assert_eq!(median(&mut [f64::NEG_INFINITY, f64::INFINITY]), Some(0.0));
}

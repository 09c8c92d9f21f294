use super::*;

/// Goal: time left by one round serves the next, and no more than that can be spent.
#[test]
fn rounds_add_up() {
    let second = Duration::from_secs(1);
    let mut reserve = Reserve::default();
    assert!(!reserve.exceeds(Duration::ZERO));
    reserve.add(second);
    reserve.add(second);
    assert!(reserve.exceeds(second) && !reserve.exceeds(2 * second));
    reserve.spend_since(Instant::now().checked_sub(60 * second).unwrap());
    assert!(!reserve.exceeds(Duration::ZERO));
}

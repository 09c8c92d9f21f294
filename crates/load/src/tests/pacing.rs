use super::*;

/// Goal: the window settles just above steady lateness and follows it down again.
#[test]
fn the_window_follows_the_lateness() {
    let mut window = SpinWindow::new(1_000_000);
    for _ in 0..200 {
        window.observe(20_000);
    }
    assert!(
        (19_000..25_000).contains(&window.width_ns()),
        "{}",
        window.width_ns()
    );
    for _ in 0..200 {
        window.observe(2_000);
    }
    assert!(window.width_ns() < 4_000, "{}", window.width_ns());
}

/// Goal: a busy machine cannot make the generator burn a whole CPU.
#[test]
fn the_window_is_bounded() {
    let mut window = SpinWindow::new(1_000_000);
    (0..100).for_each(|_| window.observe(50_000_000));
    assert_eq!(window.width_ns(), SPIN_NS_MAX);
    let mut dense = SpinWindow::new(40_000);
    (0..100).for_each(|_| dense.observe(50_000_000));
    assert_eq!(dense.width_ns(), 10_000);
}

use super::*;

/// Goal: steps ascend, and what is drawn has the recorded mean and the recorded small half.
#[test]
fn drawn_sizes_are_like_the_recorded() {
    assert!(RECORDED.is_sorted_by(|one, next| one.0 < next.0));
    let mut sizes = Sizes::draw(&mut Rng::with_seed(1));
    let drawn: Vec<usize> = (0..DRAWN_COUNT).map(|_| sizes.next()).collect();
    let mean = drawn.iter().sum::<usize>() as f64 / DRAWN_COUNT as f64;
    assert!((250.0..420.0).contains(&mean), "{mean}");
    let small = drawn.iter().filter(|&&size| size <= 40).count() as f64 / DRAWN_COUNT as f64;
    assert!((0.84..0.88).contains(&small), "{small}");
    assert!(drawn.iter().all(|size| (16..=20_480).contains(size)));
}

use super::*;

/// Goal: what hits all equally belongs to no candidate, what hits one belongs to it, and a single one cannot be judged.
#[test]
fn the_own_is_told_from_the_common() {
    let mut common = Disturbances::default();
    for slice in 0..300 {
        common.note(slice % 3, slice % 5 == 0);
    }
    assert!((0..4).all(|candidate| !common.are_its_own(candidate)));
    (0..40).for_each(|_| common.note(1, true));
    assert!(common.are_its_own(1) && !common.are_its_own(0) && !common.are_its_own(2));
    let mut alone = Disturbances::default();
    (0..50).for_each(|_| alone.note(0, true));
    assert!(!alone.are_its_own(0));
}

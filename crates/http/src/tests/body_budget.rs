use super::*;

const MIB: u64 = 1 << 20;
const GRACE_NS: u64 = 2 * SECOND_NS;

/// Goal: bodies have no more than there is, a longer one apart, and leave it to others.
#[test]
fn bodies_leave_room_for_one_another() {
    let budget = BodyBudget::new(8 * MIB, GRACE_NS);
    let mut growing = budget.begin(None, None);
    let long = budget.take(80 * MIB, 0, None).unwrap();
    assert!(
        budget.take(9 * MIB, 0, None).is_none(),
        "its place is taken"
    );
    assert!(growing.grow_to(4 * MIB, 0), "it is in nobody's way");
    let other = budget.take(4 * MIB, 0, None).unwrap();
    assert!(!growing.grow_to(4 * MIB + 1, 0) && !budget.has_room_for(1));
    assert_eq!(budget.held_bytes(), 88 * MIB);
    drop((other, long));
    assert!(growing.grow_to(80 * MIB, 0), "the place beside is free");
    assert!(budget.has_room_for(8 * MIB) && !budget.has_room_for(8 * MIB + 1));
    drop(growing);
    assert_eq!(budget.held_bytes(), 0);
}

/// One upload of 260 B/s that announced 60 MB kept all others from beginning.
///
/// Goal: announcements hold nothing; a body that has begun can be completed, whatever others begin.
#[test]
fn announcements_are_free_and_no_body_is_stranded() {
    let budget = BodyBudget::new(8 * MIB, GRACE_NS);
    let mut announced: Vec<_> = (0..1000)
        .map(|_| budget.begin(Some(8 * MIB), None))
        .collect();
    assert!(announced[0].grow_to(1, 0));
    let begun = announced[1..]
        .iter_mut()
        .filter_map(|hold| hold.grow_to(1, 0).then_some(()));
    assert_eq!(begun.count(), 0, "they could not all be completed");
    for _ in 0..10 {
        let mut short = budget.begin(Some(7 * MIB), None);
        for at in 1..=7 {
            assert!(short.grow_to(at * MIB, 0));
        }
    }
    assert!(announced[0].grow_to(8 * MIB, 0));
}

/// Goal: of holders of memory that others wait for, the one furthest behind is cut, one at a time, and none that keeps
/// up.
#[test]
fn the_slowest_is_cut_first() {
    let budget = BodyBudget::new(8 * MIB, GRACE_NS);
    let holds = [0; 3].map(|_| budget.take(2 * MIB, 0, None).unwrap());
    budget.cut_slowest(4 * MIB, GRACE_NS);
    assert!(holds.iter().all(|hold| !hold.is_cut()), "none is behind");
    for second in 1..10 {
        let now_ns = second * SECOND_NS;
        holds[0].moved(20 << 10, now_ns);
        holds[1].moved(18 << 10, now_ns);
        holds[2].moved(1 << 20, now_ns);
    }
    let now_ns = 10 * SECOND_NS;
    budget.cut_slowest(4 * MIB, now_ns);
    budget.cut_slowest(4 * MIB, now_ns);
    assert_eq!(holds.each_ref().map(BodyHold::is_cut), [false, true, false]);
    let [first, second, third] = holds;
    drop(second);
    assert!(!budget.has_marked() && !budget.has_room_for(5 * MIB));
    budget.cut_slowest(5 * MIB, now_ns);
    assert!(first.is_cut());
    drop(first);
    budget.cut_slowest(8 * MIB, now_ns);
    assert!(!third.is_cut(), "it keeps up");
    assert_eq!(budget.cut_count(), 2);
}

/// Goal: with concurrent holds and releases the sum is kept, and is never more than the total.
#[test]
fn threads_share_one_budget() {
    const MAX: u64 = 64 * STEP_BYTES_MIN;
    let budget = BodyBudget::new(MAX, GRACE_NS);
    let granted: u64 = std::thread::scope(|scope| {
        let take_many = |seed: u64| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut holds = Vec::new();
            let mut granted = 0;
            for _ in 0..10_000 {
                holds.extend(budget.take(random.u64(1..=MAX / 2), 0, None));
                assert!(budget.held_bytes() <= MAX);
                if random.bool() {
                    granted += holds.drain(..).count() as u64;
                }
            }
            granted
        };
        let threads = [1, 2, 3].map(|seed| scope.spawn(move || take_many(seed)));
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    assert!(granted > 0);
    assert_eq!(budget.held_bytes(), 0);
}

use super::*;
use proptest::prelude::*;

fn candidates(weights: &[u32]) -> Vec<Candidate> {
    let make = |(index, &weight): (usize, &u32)| Candidate {
        weight,
        identity: mix(index as u64 + 1),
        outstanding: 0,
        is_usable: true,
    };
    weights.iter().enumerate().map(make).collect()
}

fn balancer(text: &str) -> Balancer {
    Balancer::new(text.parse().unwrap(), 7)
}

/// Goal: written values parse again, and no others do; the message names every valid form.
#[test]
fn names_are_read_and_written() {
    for text in [
        "round-robin",
        "least-requests",
        "two-choices",
        "hash:path",
        "hash:header:X-User",
        "hash:cookie:session",
    ] {
        assert_eq!(text.parse::<Balance>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "hash",
        "hash:",
        "hash:header:",
        "hash:cookie:a b",
        "Round-Robin",
    ] {
        let error = text.parse::<Balance>().unwrap_err().to_string();
        assert!(
            error.contains("two-choices") && error.contains("hash:cookie:NAME"),
            "{error}"
        );
    }
}

/// Goal: nginx's own example (weights 5, 1, 1): shares are exact, and the heavy one is spread.
#[test]
fn turns_are_smooth() {
    let (mut balancer, candidates) = (balancer("round-robin"), candidates(&[5, 1, 1]));
    let chosen: Vec<_> = (0..14)
        .map(|_| balancer.choose(&candidates, None).unwrap())
        .collect();
    assert_eq!(chosen, [0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0]);
}

/// Goal: the least busy for its weight is taken, and equals take turns.
#[test]
fn the_least_busy_is_taken() {
    let mut balancer = balancer("least-requests");
    let mut list = candidates(&[1, 1, 4]);
    for (index, outstanding) in [3, 2, 8].into_iter().enumerate() {
        list[index].outstanding = outstanding;
    }
    assert_eq!(
        balancer.choose(&list, None),
        Some(2),
        "9 of 4 is less than 3 of 1"
    );
    list[2].is_usable = false;
    assert_eq!(balancer.choose(&list, None), Some(1));
    let equals = candidates(&[1, 1, 1]);
    let mut seen = [0; 3];
    for _ in 0..9 {
        seen[balancer.choose(&equals, None).unwrap()] += 1;
    }
    assert_eq!(seen, [3, 3, 3]);
}

/// Goal: the busier of any two is never taken, so the busiest of all is not either.
#[test]
fn the_busiest_loses_every_draw() {
    let mut balancer = balancer("two-choices");
    let mut list = candidates(&[1, 1, 1, 1]);
    list[2].outstanding = 5;
    for _ in 0..1000 {
        assert_ne!(balancer.choose(&list, None), Some(2));
    }
    list.iter_mut()
        .for_each(|it| it.is_usable = it.outstanding > 0);
    assert_eq!(
        balancer.choose(&list, None),
        Some(2),
        "unless it is the only one"
    );
}

/// Goal: keys fall to upstreams by weight, within a few standard deviations.
#[test]
fn hashed_shares_follow_weights() {
    let list = candidates(&[1, 2, 5]);
    let mut counts = [0_u32; 3];
    for key in 0..80_000_u64 {
        counts[highest_score(&list, mix(key)).unwrap()] += 1;
    }
    for (count, expected) in counts.into_iter().zip([10_000, 20_000, 50_000]) {
        assert!(count.abs_diff(expected) < 600, "{counts:?}");
    }
}

fn any_candidates() -> impl Strategy<Value = Vec<Candidate>> {
    let any = (1..20_u32, any::<u64>(), 0..50_u32, any::<bool>());
    let make = |(weight, identity, outstanding, is_usable)| Candidate {
        weight,
        identity,
        outstanding,
        is_usable,
    };
    proptest::collection::vec(any.prop_map(make), 0..12)
}

proptest! {
    /// Goal: whatever the way, a usable one is chosen if there is one, and never another.
    #[test]
    fn only_usable_ones_are_chosen(list in any_candidates(), key in any::<Option<u64>>()) {
        for text in ["round-robin", "least-requests", "two-choices", "hash:path"] {
            let mut balancer = balancer(text);
            for _ in 0..5 {
                match balancer.choose(&list, key) {
                    Some(index) => prop_assert!(list[index].is_usable),
                    None => prop_assert!(list.iter().all(|it| !it.is_usable)),
                }
            }
        }
    }

    /// Goal: an upstream that goes takes only its own keys along, and gets the same ones back.
    #[test]
    fn a_loss_moves_only_its_own_keys(list in any_candidates(), key in any::<u64>(), gone in 0..12_usize) {
        let before = highest_score(&list, key);
        let mut fewer = list.clone();
        if let Some(it) = fewer.get_mut(gone) {
            it.is_usable = false;
        }
        if before != Some(gone) {
            prop_assert_eq!(highest_score(&fewer, key), before);
        }
    }

    /// Goal: over a full cycle, round robin gives each exactly its weight.
    #[test]
    fn a_cycle_of_turns_is_exact(weights in proptest::collection::vec(1..9_u32, 1..6)) {
        let (mut balancer, list) = (balancer("round-robin"), candidates(&weights));
        let mut counts = vec![0_u32; weights.len()];
        for _ in 0..2 * weights.iter().sum::<u32>() {
            counts[balancer.choose(&list, None).unwrap()] += 1;
        }
        let expected: Vec<u32> = weights.iter().map(|weight| 2 * weight).collect();
        prop_assert_eq!(counts, expected);
    }
}

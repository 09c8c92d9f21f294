use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

fn shares(weights: &[u64]) -> Vec<Share> {
    let share = |(index, &weight): (usize, &u64)| Share {
        weight,
        class: index as u16,
        second: None,
    };
    weights.iter().enumerate().map(share).collect()
}

proptest! {
    /// Goal: every block holds each class exactly by weight, and ordinals count without a gap.
    #[test]
    fn blocks_are_exact(
        weights in prop::collection::vec(1u64..200, 1..6), seed in any::<u64>(), blocks in 1u64..4
    ) {
        let dealer = Dealer::new(&shares(&weights), seed);
        let sum: u64 = weights.iter().sum();
        let total = blocks * dealer.block_requests();
        let mut seen = vec![HashSet::new(); weights.len()];
        for number in 0..total {
            let choice = dealer.deal(number);
            prop_assert_eq!(choice.block, number / dealer.block_requests());
            prop_assert!(seen[usize::from(choice.class)].insert(choice.ordinal));
        }
        for (class, ordinals) in seen.iter().enumerate() {
            prop_assert_eq!(ordinals.len() as u64 * sum, total * weights[class]);
            prop_assert_eq!(ordinals.iter().max().copied(), Some(ordinals.len() as u64 - 1));
            prop_assert_eq!(dealer.per_block(class as u16) * blocks, ordinals.len() as u64);
        }
    }

    /// Goal: both halves of a pair are successive numbers about one key, in equal numbers.
    #[test]
    fn pairs_stay_together(read in 1u64..100, pair in 1u64..100, seed in any::<u64>()) {
        let halves = Share { weight: pair, class: 1, second: Some(2) };
        let dealer = Dealer::new(&[shares(&[read])[0], halves], seed);
        let (mut reads, mut pairs) = (0, 0);
        for number in (0..dealer.block_requests()).step_by(2) {
            let (one, two) = (dealer.deal(number), dealer.deal(number + 1));
            if one.class == 1 {
                prop_assert_eq!(two.class, 2);
                prop_assert_eq!(one.key_number, two.key_number);
                pairs += 1;
            } else {
                prop_assert_eq!((one.class, two.class), (0, 0));
                prop_assert!(one.key_number != two.key_number);
                prop_assert_eq!(one.ordinal + 1, two.ordinal);
                reads += 2;
            }
        }
        // As many reads to pairs as the weights say.
        prop_assert_eq!(reads * pair, pairs * read);
    }
}

/// Goal: a seed decides the order, and blocks do not repeat each other.
#[test]
fn orders_differ_between_blocks_and_seeds() {
    let dealt = |seed: u64, first: u64| -> Vec<u16> {
        let dealer = Dealer::new(&shares(&[1, 1]), seed);
        (first..first + 1_000)
            .map(|number| dealer.deal(number).class)
            .collect()
    };
    assert_eq!(dealt(1, 0), dealt(1, 0));
    assert_ne!(dealt(1, 0), dealt(2, 0));
    assert_ne!(dealt(1, 0), dealt(1, 1_000));
}

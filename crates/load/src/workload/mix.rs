//! Which class request i belongs to, and how many of its class came before it.
//!
//! On the path: `workload` asks first. Requests are dealt in blocks: each block holds every class
//! exactly as often as its weight says, in an order that a seed decides. So a mix is exact after
//! every block, and the ordinal of a request within its class, which names a new key, follows from
//! the number alone. Absent on purpose: counters shared by threads, and chance in the counts.
use crate::values::mix;

/// A block is the smallest multiple of the weights' sum that is at least this long.
const BLOCK_UNITS_MIN: u64 = 1_000;
/// Longest block, and so the largest sum of weights.
pub(crate) const WEIGHTS_SUM_MAX: u64 = 1 << 20;

/// What a request is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Choice {
    pub(crate) class: u16,
    /// Requests of its class before it.
    pub(crate) ordinal: u64,
    /// Decides the key: the two halves of a pair share it.
    pub(crate) key_number: u64,
    /// Whole blocks before it.
    pub(crate) block: u64,
}

/// One kind of place in a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Share {
    pub(crate) weight: u64,
    pub(crate) class: u16,
    /// The class of the second request about the same key, of those that come in pairs.
    pub(crate) second: Option<u16>,
}

/// Deals classes to numbers.
///
/// With pairs among the shares two successive numbers are one unit: both halves of a pair, or two
/// requests of one class. A pair's weight then counts double, since its weight is meant in pairs.
#[derive(Clone, Debug)]
pub(crate) struct Dealer {
    seed: u64,
    unit_requests: u64,
    shares: Box<[Share]>,
    /// Where each share ends in a block that is in order, in units.
    ends: Box<[u64]>,
    /// Two orders of a block's places: one after the other, each turned by the block's own amount.
    orders: [Box<[u32]>; 2],
}

impl Dealer {
    /// At least one share, none of weight 0, the sum within [`WEIGHTS_SUM_MAX`].
    pub(crate) fn new(shares: &[Share], seed: u64) -> Self {
        let has_pairs = shares.iter().any(|share| share.second.is_some());
        let units = |share: &Share| share.weight * if share.second.is_some() { 2 } else { 1 };
        let divisor = shares.iter().map(units).fold(0, greatest_divisor);
        let sum = shares.iter().map(units).sum::<u64>() / divisor;
        let repeats = BLOCK_UNITS_MIN.div_ceil(sum);
        let mut end = 0;
        let ends = shares.iter().map(|share| {
            end += units(share) / divisor * repeats;
            end
        });
        let ends: Box<[u64]> = ends.collect();
        let block = end as u32;
        Self {
            seed,
            unit_requests: if has_pairs { 2 } else { 1 },
            shares: shares.into(),
            ends,
            orders: [shuffled(block, mix(seed)), shuffled(block, mix(!seed))],
        }
    }

    /// Requests of a block.
    pub(crate) fn block_requests(&self) -> u64 {
        self.orders[0].len() as u64 * self.unit_requests
    }

    /// Requests of this class in each block.
    pub(crate) fn per_block(&self, class: u16) -> u64 {
        let mut start = 0;
        let mut sum = 0;
        for (share, &end) in self.shares.iter().zip(&self.ends) {
            let requests_per_unit = match share.second {
                Some(second) => u64::from(share.class == class) + u64::from(second == class),
                None if share.class == class => self.unit_requests,
                None => 0,
            };
            sum += (end - start) * requests_per_unit;
            start = end;
        }
        sum
    }

    pub(crate) fn deal(&self, number: u64) -> Choice {
        let (unit, half) = (number / self.unit_requests, number % self.unit_requests);
        let block_units = self.orders[0].len() as u64;
        let (block, place) = (unit / block_units, unit % block_units);
        let turns = mix(self.seed ^ mix(block));
        let turned = |place: u64, turn: u64| ((place + turn % block_units) % block_units) as usize;
        let place = self.orders[0][turned(place, turns & 0xffff_ffff)];
        let place = u64::from(self.orders[1][turned(u64::from(place), turns >> 32)]);
        let index = self.ends.partition_point(|&end| end <= place);
        let share = self.shares[index];
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        let per_block = self.ends[index] - start;
        let units_before = block * per_block + (place - start);
        match share.second {
            Some(second) => Choice {
                class: if half == 0 { share.class } else { second },
                ordinal: units_before,
                key_number: unit * 2,
                block,
            },
            None => Choice {
                class: share.class,
                ordinal: units_before * self.unit_requests + half,
                key_number: number,
                block,
            },
        }
    }
}

fn greatest_divisor(one: u64, other: u64) -> u64 {
    if other == 0 {
        one
    } else {
        greatest_divisor(other, one % other)
    }
}

/// Fisher and Yates.
fn shuffled(count: u32, seed: u64) -> Box<[u32]> {
    let mut order: Box<[u32]> = (0..count).collect();
    for last in (1..order.len()).rev() {
        let draw = mix(seed ^ mix(last as u64));
        order.swap(
            last,
            ((u128::from(draw) * (last as u128 + 1)) >> 64) as usize,
        );
    }
    order
}

#[cfg(test)]
mod tests {
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
}

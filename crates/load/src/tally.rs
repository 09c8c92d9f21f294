//! Times of one thread counted in HdrHistogram's bins, and nothing but counted.
//!
//! On the path: `outcome` records here what all of a closed loop's requests have, one time that stands
//! for two clocks; a dozen instructions for each. Once a second they go into the histograms.
//! Absent on purpose: percentiles, smallest and largest: a histogram that a bin is added to tells
//! those of the bin, which is all that it keeps of a time anyway.
use millpond_measure::histogram::{HIGHEST_NS, LatencyHistogram, SIGNIFICANT_DIGITS};
use std::ops::Range;

/// Times below `1 << BITS` have bins of their own; above, each doubling has half as many.
const BITS: u32 = 11;
const HALF: usize = 1 << (BITS - 1);
/// Of all times up to [`HIGHEST_NS`], and up to the next power of two.
const VALUE_BITS: u32 = u64::BITS - HIGHEST_NS.leading_zeros();
/// Beyond the first: how often the longest halves until it has a bin of its own.
const DOUBLINGS: u32 = VALUE_BITS - BITS;
/// The first doubling has two halves.
const BINS: usize = HALF * (DOUBLINGS as usize + 2);

const _: () = assert!(
    2 * 10_usize.pow(SIGNIFICANT_DIGITS as u32) <= 2 * HALF
        && 2 * 10_usize.pow(SIGNIFICANT_DIGITS as u32) > HALF,
    "the bins are those of a histogram"
);

/// Counts by bin. Invariant: a doubling without its bit in `used` has no counts.
#[derive(Debug)]
pub(crate) struct Tally {
    bins: Box<[u64]>,
    used: u64,
    count: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            bins: vec![0; BINS].into(),
            used: 0,
            count: 0,
        }
    }
}

impl Tally {
    /// How many times were recorded.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Counts a time so many times. One that has no bin counts as [`HIGHEST_NS`].
    #[inline]
    pub(crate) fn record_many(&mut self, value_ns: u64, count: u64) {
        let has_bin = value_ns >> VALUE_BITS == 0;
        let value_ns = if has_bin { value_ns } else { HIGHEST_NS };
        let doubling = u64::BITS - BITS - (value_ns | ((1 << BITS) - 1)).leading_zeros();
        let index = HALF * doubling as usize + (value_ns >> doubling) as usize;
        if let Some(bin) = self.bins.get_mut(index) {
            *bin += count;
            self.used |= 1 << doubling;
            self.count += count;
        }
    }

    /// Adds every time to both.
    pub(crate) fn add_to(&self, one: &mut LatencyHistogram, other: &mut LatencyHistogram) {
        for doubling in self.doublings() {
            let places = places_of(doubling);
            for (index, &count) in places.clone().zip(&self.bins[places]) {
                if count > 0 {
                    let value_ns = ((index - HALF * doubling) as u64) << doubling;
                    one.record_many(value_ns, count);
                    other.record_many(value_ns, count);
                }
            }
        }
    }

    /// Forgets all times.
    pub(crate) fn clear(&mut self) {
        for doubling in self.doublings() {
            self.bins[places_of(doubling)].fill(0);
        }
        (self.used, self.count) = (0, 0);
    }

    /// Those with counts: a thread's times lie in a few.
    fn doublings(&self) -> impl Iterator<Item = usize> + use<> {
        let used = self.used;
        (0..=DOUBLINGS as usize).filter(move |doubling| used >> doubling & 1 == 1)
    }
}

/// Where the bins of a doubling lie.
fn places_of(doubling: usize) -> Range<usize> {
    let first = if doubling == 0 {
        0
    } else {
        HALF * (doubling + 1)
    };
    first..HALF * (doubling + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(times: &[(u64, u64)]) {
        let mut tally = Tally::default();
        let mut expected = LatencyHistogram::new();
        // What was there before is forgotten.
        tally.record_many(77, 7);
        tally.clear();
        for &(value_ns, count) in times {
            tally.record_many(value_ns, count);
            expected.record_many(value_ns, count);
        }
        let mut pair = [LatencyHistogram::new(), LatencyHistogram::new()];
        let [one, other] = &mut pair;
        tally.add_to(one, other);
        assert_eq!(tally.count(), expected.count());
        for histogram in &pair {
            assert!(*histogram == expected, "{times:?}");
            assert_eq!(histogram.min(), expected.min(), "{times:?}");
            assert_eq!(histogram.max(), expected.max(), "{times:?}");
        }
    }

    /// Goal: every power of two and its neighbours, where bins begin and change their width, is
    /// counted as a histogram counts it, up to the longest and beyond.
    #[test]
    fn bins_are_those_of_a_histogram() {
        let edges = (0..64).flat_map(|bit| {
            let edge = 1_u64 << bit;
            [edge - 1, edge, edge + 1, edge + edge / 2]
        });
        let more = [
            0,
            2_047,
            2_048,
            HIGHEST_NS - 1,
            HIGHEST_NS,
            HIGHEST_NS + 1,
            u64::MAX,
        ];
        for value_ns in edges.chain(more) {
            check(&[(value_ns, 1)]);
        }
        check(&[]);
    }

    proptest! {
        /// Goal: whatever is recorded, both histograms hold what recording there would have given.
        #[test]
        fn nothing_is_lost_on_the_way(
            times in prop::collection::vec((0_u64..1 << 44, 1_u64..100), 0..60),
            shift in 0_u32..40,
        ) {
            let times: Vec<(u64, u64)> = times.iter().map(|(ns, count)| (ns >> shift, *count)).collect();
            check(&times);
        }
    }
}

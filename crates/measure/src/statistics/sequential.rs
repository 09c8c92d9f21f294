//! Looking at the data more than once without paying for it in false claims.
//!
//! On the path: `lab` plans the looks before the first round, and `analysis` hands them to every
//! comparison. A comparison that is looked at after 10, 16 and 27 rounds, and ended by the first look
//! that pleases, makes three times the choice of one: at 5 % each, two equal candidates would be called
//! different in about one comparison of ten. So each look gets an equal part of the 5 %.
//!
//! The sum of the parts bounds the chance of a false claim at any look (Bonferroni), whatever the
//! distribution, the dependence of looks and candidates on each other, and the distances between the
//! looks, because the test at each look is exact. The intervals are repeated confidence intervals in the
//! sense of Jennison & Turnbull (J. R. Stat. Soc. B 51, 1989): with 95 % all looks' intervals hold the
//! truth together, so the one at which the comparison stopped does, why ever it stopped.
//!
//! Absent on purpose: Pocock's and O'Brien & Fleming's constants. They spend a little more (2.2 % in the
//! place of 1.7 % at each of three looks, which is 4 % fewer rounds), but hold for normal sums at equal
//! distances and a single comparison, and here ranks of few rounds at any distance are corrected for
//! several candidates as well.

use super::{EQUIVALENCE_CONFIDENCE, SIGNIFICANCE, smallest_rounds};

/// More looks than this cost more rounds than stopping early saves.
const LOOKS_MAX: u32 = 4;

/// How often the data of a comparison are to be looked at, and so what each look may claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Looks(u32);

impl Looks {
    /// The number of rounds is fixed: one look, which has all of the 5 %.
    pub const ONE: Self = Self(1);

    /// So many were planned before the first round; none counts as one.
    #[must_use]
    pub fn planned(count: usize) -> Self {
        Self(u32::try_from(count).unwrap_or(u32::MAX).max(1))
    }

    /// How many.
    #[must_use]
    pub const fn count(self) -> usize {
        self.0 as usize
    }

    /// The chance of a false claim of a difference at one look.
    #[must_use]
    pub fn significance(self) -> f64 {
        SIGNIFICANCE / f64::from(self.0)
    }

    /// The confidence of one look's intervals, with which those of all looks hold with 95 %.
    #[must_use]
    pub fn confidence(self) -> f64 {
        1.0 - self.significance()
    }

    /// The confidence of the interval that has to lie within the margin for "equivalent".
    #[must_use]
    pub fn equivalence_confidence(self) -> f64 {
        1.0 - (1.0 - EQUIVALENCE_CONFIDENCE) / f64::from(self.0)
    }
}

/// After which rounds to look, if there is time for `last` rounds and `comparisons` are made at once:
/// first after `first`, or as many as a claim at that look needs, then in equal ratios of about two. With
/// less than a third more than the first look there is only the last one.
#[must_use]
pub fn look_rounds(first: u32, last: u32, comparisons: usize) -> Vec<u32> {
    let room = f64::from(last) / f64::from(first.max(1));
    let doublings = if room > 1.0 { room.log2().round() } else { 0.0 };
    let count = (doublings as u32 + 1).min(LOOKS_MAX);
    let smallest = smallest_rounds(comparisons.max(1) * count as usize);
    let first = first.max(u32::try_from(smallest).unwrap_or(u32::MAX));
    if count == 1 || f64::from(last) < f64::from(first) * FIRST_TO_LAST_MIN {
        return vec![last];
    }
    let ratio = (f64::from(last) / f64::from(first)).powf(1.0 / f64::from(count - 1));
    let mut looks: Vec<u32> = (0..count - 1)
        .map(|place| (f64::from(first) * ratio.powi(place as i32)).round() as u32)
        .collect();
    looks.push(last);
    looks
}

/// Between the first look and the last one; below it, stopping early saves too little.
const FIRST_TO_LAST_MIN: f64 = 4.0 / 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the parts add up to the whole, for differences and for equivalence.
    #[test]
    fn looks_share_the_error() {
        assert_eq!(Looks::planned(0), Looks::ONE);
        assert_eq!(Looks::ONE.significance(), SIGNIFICANCE);
        assert_eq!(Looks::ONE.equivalence_confidence(), EQUIVALENCE_CONFIDENCE);
        for count in 1..6 {
            let looks = Looks::planned(count);
            let spent = looks.significance() * count as f64;
            assert!((spent - SIGNIFICANCE).abs() < 1e-12);
            let spent = (1.0 - looks.equivalence_confidence()) / 2.0 * count as f64;
            assert!((spent - SIGNIFICANCE).abs() < 1e-12);
            assert!((looks.confidence() + looks.significance() - 1.0).abs() < 1e-12);
        }
    }

    /// Goal: few looks, rising, the last one where time ends, and each able to claim something.
    #[test]
    fn looks_are_few_and_each_can_claim() {
        assert_eq!(look_rounds(10, 10, 8), [10]);
        assert_eq!(look_rounds(10, 12, 2), [12]);
        assert_eq!(look_rounds(10, 16, 5), [10, 16]);
        assert_eq!(look_rounds(10, 40, 2), [10, 20, 40]);
        assert_eq!(look_rounds(10, 184, 2), [10, 26, 70, 184]);
        for comparisons in [1, 2, 5, 9, 18, 40] {
            for last in 6..300 {
                let looks = look_rounds(10, last, comparisons);
                assert!(looks.len() <= 4 && looks.windows(2).all(|pair| pair[0] < pair[1]));
                assert_eq!(looks.last(), Some(&last));
                if looks.len() > 1 {
                    let smallest = smallest_rounds(comparisons * looks.len());
                    assert!(looks[0] as usize >= smallest, "{comparisons} {looks:?}");
                }
            }
        }
    }
}

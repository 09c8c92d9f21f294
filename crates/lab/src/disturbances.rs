//! Whether what disturbs slices comes from outside of the candidates, or from the one that is measured.
//!
//! A slice that something outside disturbed is repeated. But if one candidate's slices are disturbed more often than
//! the others', the disturbance is probably its own (threads of the kernel that work for it, a generator that waits
//! for it), and to repeat them would take out a part of its price. Then they count as they are.

use millpond_measure::statistics::at_least_p;

/// The chance of taking a candidate's bad luck for its own doing.
const SIGNIFICANCE: f64 = 0.01;

/// Slices so far, by candidate.
#[derive(Debug, Default)]
pub(crate) struct Disturbances {
    of: Vec<Tried>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    slices: u32,
    disturbed: u32,
}

impl Disturbances {
    pub(crate) fn note(&mut self, candidate: usize, is_disturbed: bool) {
        if self.of.len() <= candidate {
            self.of.resize(candidate + 1, Tried::default());
        }
        if let Some(tried) = self.of.get_mut(candidate) {
            tried.slices += 1;
            tried.disturbed += u32::from(is_disturbed);
        }
    }

    /// Whether its slices were disturbed more often than the others', by more than chance.
    pub(crate) fn are_its_own(&self, candidate: usize) -> bool {
        let Some(own) = self.of.get(candidate) else {
            return false;
        };
        let (mut slices, mut disturbed) = (0, 0);
        for tried in &self.of {
            slices += tried.slices;
            disturbed += tried.disturbed;
        }
        if own.slices == slices {
            return false;
        }
        let share = f64::from(own.slices) / f64::from(slices);
        at_least_p(own.disturbed, disturbed, share) < SIGNIFICANCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what hits all alike is nobody's, what hits one is its own, and one alone cannot be told.
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
}

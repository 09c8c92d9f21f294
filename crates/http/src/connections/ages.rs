//! Connections in the order of their last activity, so that the one idle for longest is at hand.
//!
//! A list through dense slots, 8 bytes for each. A connection moves to the young end when it is
//! active, but at most once per epoch (a quarter of a second by default): a request usually costs
//! one comparison here. Hence two connections active in the same epoch stand in any order.

/// No connection: the end of the list.
const NONE: u32 = u32::MAX;

/// A slot that is not in the list.
const UNLISTED: Link = Link {
    older: NONE,
    younger: NONE,
};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Link {
    older: u32,
    younger: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ages {
    links: Vec<Link>,
    oldest: u32,
    youngest: u32,
}

impl Ages {
    pub(super) fn new() -> Self {
        Self {
            links: Vec::new(),
            oldest: NONE,
            youngest: NONE,
        }
    }

    /// Adds so many slots and asks for room for `room_count` at least; false without memory for it.
    pub(super) fn make_places(&mut self, added_count: usize, room_count: usize) -> bool {
        if self.links.try_reserve(room_count).is_err() {
            return false;
        }
        self.links.resize(self.links.len() + added_count, UNLISTED);
        true
    }

    /// Forgets the places from `count` on, none of which may be listed. The room of `kept_count_min`
    /// stays.
    pub(super) fn truncate(&mut self, count: usize, kept_count_min: usize) {
        self.links.truncate(count);
        if self.links.len() < self.links.capacity() / 4 {
            let kept_count = (self.links.capacity() / 2).max(kept_count_min);
            self.links.shrink_to(kept_count);
        }
    }

    /// Who was active least recently.
    pub(super) fn oldest(&self) -> Option<usize> {
        (self.oldest != NONE).then_some(self.oldest as usize)
    }

    /// Who comes after `slot`.
    pub(super) fn younger(&self, slot: usize) -> Option<usize> {
        let younger = self.links[slot].younger;
        (younger != NONE).then_some(younger as usize)
    }

    /// Puts an unlisted slot at the young end.
    pub(super) fn push(&mut self, slot: usize) {
        let this = slot as u32;
        self.links[slot] = Link {
            older: self.youngest,
            younger: NONE,
        };
        match self.youngest {
            NONE => self.oldest = this,
            youngest => self.links[youngest as usize].younger = this,
        }
        self.youngest = this;
    }

    pub(super) fn remove(&mut self, slot: usize) {
        let Link { older, younger } = std::mem::replace(&mut self.links[slot], UNLISTED);
        match older {
            NONE => self.oldest = younger,
            older => self.links[older as usize].younger = younger,
        }
        match younger {
            NONE => self.youngest = older,
            younger => self.links[younger as usize].older = older,
        }
    }

    /// Moves a listed slot to the young end.
    pub(super) fn renew(&mut self, slot: usize) {
        if self.youngest as usize != slot {
            self.remove(slot);
            self.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn order(ages: &Ages) -> Vec<usize> {
        std::iter::successors(ages.oldest(), |&slot| ages.younger(slot)).collect()
    }

    proptest! {
        /// Goal: any sequence of coming, moving and going leaves the order that a queue would have.
        #[test]
        fn the_list_is_a_queue(steps in proptest::collection::vec((0..3_u8, 0..8_usize), 0..200)) {
            let mut ages = Ages::new();
            prop_assert!(ages.make_places(8, 8));
            let mut model: VecDeque<usize> = VecDeque::new();
            for (step, slot) in steps {
                let is_listed = model.contains(&slot);
                model.retain(|&other| other != slot);
                match step {
                    0 if is_listed => ages.remove(slot),
                    _ if is_listed => {
                        ages.renew(slot);
                        model.push_back(slot);
                    }
                    0 => {}
                    _ => {
                        ages.push(slot);
                        model.push_back(slot);
                    }
                }
                prop_assert_eq!(order(&ages), model.iter().copied().collect::<Vec<_>>());
                let young: Vec<_> = std::iter::successors(
                    (ages.youngest != NONE).then_some(ages.youngest),
                    |&slot| Some(ages.links[slot as usize].older).filter(|&older| older != NONE),
                )
                .collect();
                prop_assert_eq!(young.len(), model.len(), "the list reads the same backwards");
            }
        }
    }
}

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

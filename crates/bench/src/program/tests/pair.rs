use super::*;
use crate::memory::Malloc;

/// Goal: all three do the allocations they are counted for, and see what they wrote.
#[test]
fn sums_are_those_of_the_numbers_written() {
    let count = 3 * ALLOCATIONS_PER_ITERATION;
    let expected = count * (count - 1) / 2;
    assert_eq!(one_at_a_time(&mut Malloc, 3), expected);
    assert_eq!(one_at_a_time(&mut one_place(), 3), expected);
    assert_eq!(blocks(&Malloc, 3), expected);
    let of_batches: u64 = (0..6_u64)
        .flat_map(|batch| (0..BATCH_COUNT).map(move |number| batch ^ number))
        .sum();
    assert_eq!(in_batches(&mut Malloc, &mut Vec::new(), 3), of_batches);
    assert_eq!(in_batches(&mut placed(), &mut Vec::new(), 3), of_batches);
}

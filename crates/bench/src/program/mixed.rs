//! Blocks of recorded sizes that live for a random time.
//!
//! Most objects die young: three blocks of four go in the place of a random one of 64 young ones,
//! the fourth in that of a random one of 16,384 old ones. Places and sizes are drawn beforehand.

use super::{ALLOCATIONS_PER_ITERATION, Outcome, Plan, WARM_UP_ITERATIONS};
use crate::memory::Memory;
use crate::sizes::Sizes;
use crate::stopwatch::Timed;
use crate::tagged::Tagged;
use fastrand::Rng;

const YOUNG_COUNT: u16 = 64;
const OLD_COUNT: u16 = 16_384;
/// Of four blocks, how many are young.
const YOUNG_OF_FOUR: u8 = 3;
/// As many as are drawn beforehand.
const PLACE_COUNT: usize = 1 << 16;

/// The blocks of one thread.
pub(super) struct Mixed<M: Memory> {
    memory: M,
    blocks: Vec<Tagged<M::Block>>,
    places: Vec<u16>,
    sizes: Sizes,
    step: u64,
}

impl<M: Memory> Mixed<M> {
    /// Fills every place once.
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let places = (0..PLACE_COUNT).map(|_| {
            if rng.u8(..4) < YOUNG_OF_FOUR {
                rng.u16(..YOUNG_COUNT)
            } else {
                YOUNG_COUNT + rng.u16(..OLD_COUNT)
            }
        });
        let places = places.collect();
        let mut sizes = Sizes::draw(&mut rng);
        let memory = M::new();
        let blocks = (0..YOUNG_COUNT + OLD_COUNT).map(|place| {
            let size_bytes = sizes.next();
            Tagged::new(memory.block(size_bytes), size_bytes, u64::from(place))
        });
        Self {
            blocks: blocks.collect(),
            memory,
            places,
            sizes,
            step: 0,
        }
    }

    /// The checksum is of the blocks that were replaced.
    #[inline(never)]
    pub(super) fn iterate(&mut self, iterations: u64) -> u64 {
        let mut checksum = 0_u64;
        for _ in 0..iterations * ALLOCATIONS_PER_ITERATION {
            let place = usize::from(self.places[self.step as usize % PLACE_COUNT]);
            let size_bytes = self.sizes.next();
            self.step += 1;
            let fresh = Tagged::new(self.memory.block(size_bytes), size_bytes, self.step);
            let mut old = std::mem::replace(&mut self.blocks[place], fresh);
            checksum = checksum.wrapping_add(old.tag());
        }
        checksum
    }
}

pub(super) const fn operations(iterations: u64) -> u64 {
    2 * ALLOCATIONS_PER_ITERATION * iterations
}

pub(super) fn run<M: Memory>(plan: &Plan) -> Outcome {
    let mut mixed = Mixed::<M>::new(plan.seed);
    mixed.iterate(WARM_UP_ITERATIONS);
    let mut checksum = 0;
    let timed = Timed::of(|| checksum = mixed.iterate(plan.iterations));
    Outcome::new(operations(plan.iterations), timed, checksum)
}

//! Memory that is taken by one thread and given back by another.
//!
//! The consumer sends home what it freed only when it finds nothing to do, as a shard does before it
//! sleeps; the producer takes home what came back once for each batch, as a shard does in each tick.

use super::{ALLOCATIONS_PER_ITERATION, Outcome, Plan, WARM_UP_ITERATIONS};
use crate::cpus::Cpus;
use crate::handover::Handover;
use crate::memory::{Memory, Objects};
use crate::sizes::Sizes;
use crate::stopwatch::Timed;
use crate::tagged::Tagged;
use fastrand::Rng;
use std::sync::Barrier;
use std::thread;

/// Handed over at once: half an iteration.
const BATCH_COUNT: u64 = ALLOCATIONS_PER_ITERATION / 2;
const WORD_COUNT: usize = 16;

/// 128 bytes, all of them written by the producer and read by the consumer.
struct Message([u64; WORD_COUNT]);

impl Message {
    #[inline]
    const fn new(number: u64) -> Self {
        Self([number; WORD_COUNT])
    }

    #[inline]
    fn number(&self) -> u64 {
        let number = self.0[0];
        assert!(
            self.0.iter().all(|&word| word == number),
            "a message arrived damaged"
        );
        number
    }
}

/// Objects of one type.
pub(super) fn run<M: Memory>(plan: &Plan) -> Outcome {
    let mut messages = M::new().objects::<Message>();
    let mut number = 0;
    let fill = |batch: &mut Vec<M::Object<Message>>| {
        messages.drain();
        for _ in 0..BATCH_COUNT {
            number += 1;
            batch.push(messages.insert(Message::new(number)));
        }
    };
    run_with::<M, _>(plan, fill, |message| message.number())
}

/// Blocks of recorded sizes.
pub(super) fn run_mixed<M: Memory>(plan: &Plan) -> Outcome {
    let memory = M::new();
    let mut sizes = Sizes::draw(&mut Rng::with_seed(plan.seed));
    let mut number = 0;
    let fill = |batch: &mut Vec<Tagged<M::Block>>| {
        memory.drain();
        for _ in 0..BATCH_COUNT {
            number += 1;
            let size_bytes = sizes.next();
            batch.push(Tagged::new(memory.block(size_bytes), size_bytes, number));
        }
    };
    run_with::<M, _>(plan, fill, Tagged::tag)
}

/// Produces here, consumes in another thread. `fill` appends a batch; `number_of` reads what is about
/// to be freed.
fn run_with<M: Memory, T: Send>(
    plan: &Plan,
    mut fill: impl FnMut(&mut Vec<T>),
    number_of: impl Fn(&mut T) -> u64 + Sync,
) -> Outcome {
    let cpus = Cpus::allowed();
    let ring = Handover::new(BATCH_COUNT as usize);
    let start = Barrier::new(2);
    let (warm_up, batches) = (2 * WARM_UP_ITERATIONS, 2 * plan.iterations);
    let mut produce = |batch: &mut Vec<T>, count: u64| {
        for _ in 0..count {
            fill(batch);
            ring.give(batch);
        }
    };
    let consume = |batch: &mut Vec<T>, count: u64| {
        let mut checksum = 0_u64;
        for _ in 0..count {
            ring.take(batch, M::flush);
            for mut item in batch.drain(..) {
                checksum = checksum.wrapping_add(number_of(&mut item));
            }
        }
        checksum
    };
    let (produced, consumed) = thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            cpus.pin(1);
            let mut batch = Vec::with_capacity(BATCH_COUNT as usize);
            consume(&mut batch, warm_up);
            start.wait();
            let mut checksum = 0;
            let timed = Timed::of(|| checksum = consume(&mut batch, batches));
            (timed, checksum)
        });
        cpus.pin(0);
        let mut batch = Vec::with_capacity(BATCH_COUNT as usize);
        produce(&mut batch, warm_up);
        start.wait();
        let produced = Timed::of(|| produce(&mut batch, batches));
        (produced, consumer.join())
    });
    let (consumed, checksum) = consumed.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let operations = 2 * BATCH_COUNT * batches;
    Outcome::new(operations, produced.beside(consumed), checksum)
}

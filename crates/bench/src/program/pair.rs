//! One size, again and again: what the fast path alone costs.
//!
//! Only one number is written, and checked before the end, so the rest of the object stays
//! untouched: allocate and free are all there is to time. Without allocation the same loop runs
//! over an array, which shows the cost of the loop itself.

use super::{ALLOCATIONS_PER_ITERATION, Outcome, Plan, WARM_UP_ITERATIONS};
use crate::counters::Timed;
use crate::memory::{Memory, Objects, OnePlace, Placed};
use crate::tagged::Tagged;
use std::hint::black_box;
use std::mem::MaybeUninit;

/// Objects of a batch; two batches are an iteration.
const BATCH_COUNT: u64 = ALLOCATIONS_PER_ITERATION / 2;
const BLOCK_BYTES: usize = 64;

/// 64 bytes with something in the first eight.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Node {
    number: u64,
    rest: MaybeUninit<[u64; 7]>,
}

const _: () = assert!(size_of::<Node>() == 64);

impl Node {
    #[inline]
    const fn new(number: u64) -> Self {
        Self {
            number,
            rest: MaybeUninit::uninit(),
        }
    }
}

/// A place for the one object that there is at a time.
pub(super) fn one_place() -> OnePlace<Node> {
    OnePlace(Node::new(0))
}

/// An array instead of allocations.
pub(super) fn placed() -> Placed<Node> {
    Placed::new(BATCH_COUNT as usize, Node::new(0))
}

pub(super) fn run<O: Objects<Node>>(objects: &mut O, plan: &Plan) -> Outcome {
    timed(plan, |iterations| one_at_a_time(objects, iterations))
}

pub(super) fn run_batch<O: Objects<Node>>(objects: &mut O, plan: &Plan) -> Outcome {
    let mut handles = Vec::with_capacity(BATCH_COUNT as usize);
    timed(plan, |iterations| {
        in_batches(objects, &mut handles, iterations)
    })
}

pub(super) fn run_block<M: Memory>(plan: &Plan) -> Outcome {
    let memory = M::new();
    timed(plan, |iterations| blocks(&memory, iterations))
}

fn timed(plan: &Plan, mut iterate: impl FnMut(u64) -> u64) -> Outcome {
    let mut checksum = iterate(WARM_UP_ITERATIONS);
    let timed = Timed::of(|| checksum = iterate(plan.iterations));
    let operations = 2 * ALLOCATIONS_PER_ITERATION * plan.iterations;
    Outcome::new(operations, timed, checksum)
}

#[inline(never)]
fn one_at_a_time<O: Objects<Node>>(objects: &mut O, iterations: u64) -> u64 {
    let mut checksum = 0_u64;
    for number in 0..iterations * ALLOCATIONS_PER_ITERATION {
        let handle = objects.insert(Node::new(number));
        let node = black_box(objects.get(&handle));
        checksum = checksum.wrapping_add(node.number);
        objects.remove(handle);
    }
    checksum
}

#[inline(never)]
fn in_batches<O: Objects<Node>>(
    objects: &mut O,
    handles: &mut Vec<O::Handle>,
    iterations: u64,
) -> u64 {
    let mut checksum = 0_u64;
    for batch in 0..iterations * 2 {
        for number in 0..BATCH_COUNT {
            let handle = objects.insert(Node::new(batch ^ number));
            black_box(objects.get(&handle));
            handles.push(handle);
        }
        while let Some(handle) = handles.pop() {
            checksum = checksum.wrapping_add(objects.get(&handle).number);
            objects.remove(handle);
        }
    }
    checksum
}

#[inline(never)]
fn blocks<M: Memory>(memory: &M, iterations: u64) -> u64 {
    let mut checksum = 0_u64;
    for number in 0..iterations * ALLOCATIONS_PER_ITERATION {
        let size_bytes = black_box(BLOCK_BYTES);
        let mut block = Tagged::new(memory.block(size_bytes), size_bytes, number);
        checksum = checksum.wrapping_add(block.tag());
    }
    checksum
}

#[cfg(test)]
#[path = "tests/pair.rs"]
mod tests;

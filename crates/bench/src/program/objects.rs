//! The earlier program, rebuilt from its facts.
//!
//! One iteration is two passes; a pass makes a fresh vector and 70 objects of 56 bytes with a short
//! string inside, then destroys them in the order in which they were made. The vector grows as
//! `std::vector` does: a new one of twice the size, copied, the old one freed. In `objects` it is
//! malloc's with every kind of memory, as it was there, and so are its 16 growths per iteration; in
//! `objects-vector` it comes from the same memory as the objects.
//! Without allocation the objects are placed into an array. In `objects` the vector stays then, since
//! it is part of what surrounds the objects; in `objects-vector` one with room for all is kept.

use super::{Outcome, Plan, WARM_UP_ITERATIONS};
use crate::memory::{Objects, Placed};
use crate::stopwatch::Timed;
use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec;
use std::hint::black_box;

/// Over the 64 that a chunk of the earlier pool held, so that it needed two.
const OBJECT_COUNT: u32 = 70;
const PASS_COUNT: u64 = 2;

/// A string as `std::string` keeps a short one: 32 bytes, nothing on the heap.
#[derive(Clone, Copy)]
#[repr(C)]
struct Name {
    len: u64,
    bytes: [u8; 24],
}

impl Name {
    /// `Child` and a number below 100. Put together in a register and written at once: bytes written
    /// one by one and then copied as a whole stall the processor, which is not what is to be timed.
    #[inline]
    fn of_child(number: u32) -> Self {
        let (tens, ones) = (u64::from(number / 10), u64::from(number % 10));
        let child = u64::from_le_bytes(*b"Child\0\0\0");
        let (digits, digit_count) = if tens > 0 {
            ((u64::from(b'0') + tens) | (u64::from(b'0') + ones) << 8, 2)
        } else {
            (u64::from(b'0') + ones, 1)
        };
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&(child | digits << 40).to_le_bytes());
        Self {
            len: 5 + digit_count,
            bytes,
        }
    }

    #[inline]
    fn last(&self) -> u8 {
        self.bytes[(self.len as usize - 1) % 24]
    }
}

/// Fields in the order and of the sizes of the earlier object.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Child {
    name: Name,
    number: u32,
    /// Address of the parent; none has one.
    parent: usize,
    has_parent: bool,
}

const _: () = assert!(size_of::<Child>() == 56);

impl Child {
    #[inline]
    fn new(number: u32) -> Self {
        Self {
            name: Name::of_child(number),
            number,
            parent: 0,
            has_parent: false,
        }
    }

    /// Of all that is in it.
    #[inline]
    fn checksum(&self) -> u64 {
        let flags = u64::from(self.has_parent) + self.parent as u64;
        u64::from(self.number) + self.name.len + u64::from(self.name.last()) + flags
    }
}

/// An array in place of allocations.
pub(super) fn placed() -> Placed<Child> {
    Placed::new(OBJECT_COUNT as usize, Child::new(0))
}

/// With fresh vectors out of `vectors`.
pub(super) fn run<O: Objects<Child>, A: Allocator>(
    objects: &mut O,
    vectors: &A,
    plan: &Plan,
) -> Outcome {
    run_with(objects, plan, |_| Vec::new_in(vectors))
}

/// With one vector that has room for all: nothing is allocated.
pub(super) fn run_without_growth<O: Objects<Child>>(objects: &mut O, plan: &Plan) -> Outcome {
    run_with(objects, plan, |used: Option<Vec<O::Handle>>| {
        used.unwrap_or_else(|| Vec::with_capacity(OBJECT_COUNT as usize))
    })
}

fn run_with<O: Objects<Child>, A: Allocator + Copy>(
    objects: &mut O,
    plan: &Plan,
    mut next: impl FnMut(Option<Vec<O::Handle, A>>) -> Vec<O::Handle, A>,
) -> Outcome {
    let mut checksum = iterate(objects, WARM_UP_ITERATIONS, &mut next);
    let timed = Timed::of(|| checksum = iterate(objects, plan.iterations, &mut next));
    let operations = 2 * PASS_COUNT * u64::from(OBJECT_COUNT) * plan.iterations;
    Outcome::new(operations, timed, checksum)
}

/// `next` makes the vector of a pass, given the empty one of the pass before.
#[inline(never)]
fn iterate<O: Objects<Child>, A: Allocator + Copy>(
    objects: &mut O,
    iterations: u64,
    next: &mut impl FnMut(Option<Vec<O::Handle, A>>) -> Vec<O::Handle, A>,
) -> u64 {
    let (mut checksum, mut used) = (0_u64, None);
    for _ in 0..iterations * PASS_COUNT {
        let mut handles = next(used.take());
        checksum = checksum.wrapping_add(pass(objects, &mut handles));
        used = Some(handles);
    }
    checksum
}

#[inline(always)]
fn pass<O: Objects<Child>, A: Allocator + Copy>(
    objects: &mut O,
    handles: &mut Vec<O::Handle, A>,
) -> u64 {
    for number in 0..OBJECT_COUNT {
        let child = Child::new(black_box(number));
        let handle = objects.insert(child);
        black_box(objects.get(&handle));
        push(handles, handle);
    }
    let mut checksum = 0_u64;
    for handle in handles.drain(..) {
        checksum = checksum.wrapping_add(objects.get(&handle).checksum());
        objects.remove(handle);
    }
    checksum
}

/// `push_back`: room for one, then for twice as many.
#[inline(always)]
fn push<T, A: Allocator + Copy>(values: &mut Vec<T, A>, value: T) {
    if values.len() == values.capacity() {
        grow(values);
    }
    values.push(value);
}

#[inline(never)]
fn grow<T, A: Allocator + Copy>(values: &mut Vec<T, A>) {
    // `reserve_exact` would ask for a larger block in place, by realloc, which a C++ vector cannot.
    let capacity = (2 * values.len()).max(1);
    let mut larger = Vec::with_capacity_in(capacity, *values.allocator());
    larger.append(values);
    *values = larger;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Malloc;

    /// Goal: names are as they were, and the vector grows as often as it did.
    #[test]
    fn it_is_the_earlier_program() {
        for (number, text) in [
            (0, "Child0"),
            (9, "Child9"),
            (10, "Child10"),
            (69, "Child69"),
        ] {
            let name = Name::of_child(number);
            assert_eq!(&name.bytes[..name.len as usize], text.as_bytes());
        }
        let (mut values, mut growths) = (Vec::new(), 0);
        for number in 0..OBJECT_COUNT {
            let capacity = values.capacity();
            push(&mut values, number);
            growths += u32::from(values.capacity() > capacity);
        }
        assert_eq!((growths, values.capacity()), (8, 128));
        assert!(values.into_iter().eq(0..OBJECT_COUNT));
    }

    /// Goal: the objects are the same wherever they lie, and the sum is that of their parts.
    #[test]
    fn the_sum_does_not_depend_on_the_memory() {
        let of_one = |number: u32| {
            let name = format!("Child{number}");
            let last = name.as_bytes().last().copied().unwrap_or_default();
            u64::from(number) + name.len() as u64 + u64::from(last)
        };
        let expected: u64 = (0..OBJECT_COUNT).map(of_one).sum();
        assert_eq!(pass(&mut Malloc, &mut Vec::new()), expected);
        assert_eq!(pass(&mut placed(), &mut Vec::new()), expected);
    }
}

//! Each fault planted on purpose, and programs without fault.

mod ends;

use super::*;
use crate::violation::panic_with;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

const PLAIN: Checks = Checks {
    guard_pages: false,
    fail_at: None,
};
const GUARD: Checks = Checks {
    guard_pages: true,
    fail_at: None,
};
/// A slot's, the largest slots', and such that need pages of their own.
const SIZES: [usize; 9] = [0, 1, 16, 24, 100, 4096, 32_736, 32_800, 200_001];

fn memory(name: &'static str, checks: Checks) -> CheckedMemory {
    CheckedMemory::new(name, checks, panic_with)
}

/// The report of the memory when `fault` was done.
fn caught(fault: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(fault)).expect_err("the fault goes unseen");
    *panic.downcast::<String>().unwrap()
}

fn assert_says(sentence: &str, parts: &[&str]) {
    for part in parts {
        assert!(sentence.contains(part), "{part:?} is missing: {sentence}");
    }
}

fn hex(start: NonNull<u8>) -> String {
    format!("at {:#x}", start.addr())
}

/// reserved = live + cached + waste.
fn assert_balanced(memory: &CheckedMemory) {
    let figures = memory.figures();
    assert_eq!(
        figures.reserved_bytes,
        figures.live_bytes + figures.cached_bytes + figures.waste_bytes,
        "{figures:?}"
    );
}

/// Goal: a correct program sees no violation, gets aligned fresh memory of its own, and the
/// figures add up at every step, whatever sizes, alignments and mode.
#[test]
fn correct_use_is_silent() {
    for checks in [PLAIN, GUARD] {
        let memory = memory("correct", checks);
        let mut lent: Vec<(NonNull<u8>, usize, u8)> = Vec::new();
        for (mark, round) in (1..=u8::MAX).zip(0_usize..if cfg!(miri) { 24 } else { 400 }) {
            let size_bytes = SIZES[round % SIZES.len()] + round % 5;
            let align_bytes = 1 << (round % 18);
            let start = memory.allocate(size_bytes, align_bytes).unwrap();
            assert!(start.addr().get().is_multiple_of(align_bytes.max(16)));
            assert_eq!(memory.size_of(start), Some(size_bytes));
            // SAFETY: the block is this test's, and initialised with the pattern of fresh memory.
            unsafe {
                for offset in [0, size_bytes / 2, size_bytes.saturating_sub(1)] {
                    assert!(size_bytes == 0 || start.add(offset).read() == page_run::FRESH);
                }
                start.write_bytes(mark, size_bytes);
            }
            lent.push((start, size_bytes, mark));
            if round % 3 == 2 {
                let (start, size_bytes, mark) = lent.swap_remove(round % lent.len());
                let told_bytes = (round % 2 == 0).then_some(size_bytes);
                // SAFETY: the block was lent above and is not used any more.
                unsafe {
                    assert!(page_run::first_change(start, size_bytes, mark).is_none());
                    memory.free(start, told_bytes);
                }
                assert_eq!(memory.size_of(start), None);
            }
            if round % 50 == 0 {
                memory.trim();
            }
            assert_balanced(&memory);
        }
        let live_bytes: usize = lent.iter().map(|(_, size_bytes, _)| size_bytes).sum();
        assert_eq!(memory.figures().live_bytes, live_bytes as u64);
        assert_eq!(memory.figures().live_objects, lent.len() as u64);
        for (start, size_bytes, _) in lent {
            // SAFETY: as above.
            unsafe { memory.free(start, Some(size_bytes)) };
        }
        memory.verify();
        assert_eq!(memory.figures().live_bytes, 0);
        assert_balanced(&memory);
    }
}

/// Goal: one byte beside a block is seen at its free and by `verify`, with the side, the distance, the size, the
/// address and the allocation; once, and the block is still freed.
#[test]
fn overrun_and_underrun_are_named() {
    for size_bytes in SIZES {
        let memory = memory("bodies", PLAIN);
        for (offset_bytes, expected) in [
            (size_bytes as isize, "overrun in pool bodies: byte 1 behind"),
            (size_bytes as isize + 9, "byte 10 behind the block"),
            (-1, "underrun in pool bodies: byte 1 before"),
            (-16, "byte 16 before the block"),
        ] {
            for is_verified in [false, true] {
                let start = memory.allocate(size_bytes, 16).unwrap();
                // SAFETY: the fault to be found; the canaries are mapped, unused memory.
                unsafe { start.offset(offset_bytes).write(0) };
                let sentence = caught(|| match is_verified {
                    true => memory.verify(),
                    // SAFETY: the block was lent above and is not used any more.
                    false => unsafe { memory.free(start, None) },
                });
                let size = format!("the block of {size_bytes} bytes");
                let number = format!("allocation {}", memory.figures().misses);
                assert_says(&sentence, &[expected, &size, &hex(start), &number]);
                if is_verified {
                    memory.verify();
                    // SAFETY: as above.
                    unsafe { memory.free(start, None) };
                }
                assert_eq!(memory.figures().live_objects, 0);
                assert_balanced(&memory);
            }
        }
    }
}

/// Goal: with guard pages the bytes between a block and its guard page are watched too.
#[test]
fn bytes_before_the_guard_page_are_watched() {
    let memory = memory("guarded", GUARD);
    let start = memory.allocate(100, 16).unwrap();
    // SAFETY: the fault to be found: 100 is no multiple of 16.
    unsafe { start.add(103).write(1) };
    // SAFETY: the block was lent above and is not used any more.
    let sentence = caught(|| unsafe { memory.free(start, None) });
    assert_says(&sentence, &["overrun", "byte 4 behind", "100 bytes"]);
}

/// Goal: a write to a freed block is seen, naming the byte, by `verify`, when the block leaves the
/// quarantine, when its memory is lent again, and when the pool ends.
#[test]
fn write_after_free_is_seen_wherever_it_ends() {
    for size_bytes in [16, 100, 4096, 50_000] {
        let plant = |memory: &CheckedMemory| {
            let start = memory.allocate(size_bytes, 16).unwrap();
            // SAFETY: lent here; the write after the free is the fault, to memory that is mapped.
            unsafe {
                memory.free(start, None);
                start.add(5).write(1);
            }
            start
        };
        let check = |sentence: &str, start| {
            let size = format!("byte 5 of the block of {size_bytes} bytes");
            let parts = [
                "use after free in pool late",
                &size,
                &hex(start),
                "written after",
            ];
            assert_says(sentence, &parts);
        };
        let churn = |memory: &CheckedMemory| {
            for _ in 0..2 * books::QUARANTINE_BLOCKS_MAX {
                let start = memory.allocate(size_bytes, 16).unwrap();
                // SAFETY: lent here and not used any more.
                unsafe { memory.free(start, None) };
            }
        };
        let first = memory("late", PLAIN);
        let start = plant(&first);
        check(&caught(|| first.verify()), start);
        first.verify();
        let start = plant(&first);
        check(&caught(|| churn(&first)), start);
        let start = plant(&first);
        check(&caught(|| drop(first)), start);
    }
}

/// Goal: a write to memory that left the quarantine long ago is seen when it is to be lent again,
/// and that memory is usable afterwards.
#[test]
fn write_to_forgotten_memory_is_seen() {
    let memory = memory("forgotten", PLAIN);
    let start = memory.allocate(100, 16).unwrap();
    // SAFETY: lent above; and so on for each block of the loop.
    unsafe { memory.free(start, None) };
    for _ in 0..books::QUARANTINE_BLOCKS_MAX {
        let other = memory.allocate(5000, 16).unwrap();
        // SAFETY: as above.
        unsafe { memory.free(other, None) };
    }
    // SAFETY: the fault to be found: the chunk is mapped, since nothing trimmed.
    unsafe { start.add(7).write(1) };
    let sentence = caught(|| {
        memory.allocate(100, 16).unwrap();
    });
    assert_says(
        &sentence,
        &["byte 7", &hex(start), "allocation is forgotten"],
    );
    // SAFETY: the fault to be found: the address was freed, and forgotten.
    let sentence = caught(|| unsafe { memory.free(start, None) });
    assert_says(
        &sentence,
        &["foreign pointer", "no lent block", "freed long ago"],
    );
    assert!(memory.allocate(100, 16).is_ok());
    assert_balanced(&memory);
}

/// Goal: a second free is distinguished from a foreign pointer, and has no effect.
#[test]
fn double_free_is_named() {
    for checks in [PLAIN, GUARD] {
        let memory = memory("twice", checks);
        for size_bytes in SIZES {
            let start = memory.allocate(size_bytes, 16).unwrap();
            // SAFETY: lent above.
            unsafe { memory.free(start, Some(size_bytes)) };
            let before = memory.figures();
            // SAFETY: the fault to be found.
            let sentence = caught(|| unsafe { memory.free(start, None) });
            let size = format!("the block of {size_bytes} bytes");
            assert_says(
                &sentence,
                &["double free in pool twice", &size, &hex(start)],
            );
            assert_eq!(memory.figures(), before);
        }
    }
}

/// Goal: all blocks can be taken back at once, more than the quarantine holds; a fault in one is
/// named, and every one of them is freed.
#[test]
fn all_blocks_are_freed_at_once() {
    for checks in [PLAIN, GUARD] {
        let memory = memory("whole", checks);
        // SAFETY: nothing is lent.
        assert!(unsafe { memory.free_all_quietly() }.is_none());
        for round in 0..3 {
            let blocks: Vec<NonNull<u8>> = (0..2 * books::QUARANTINE_BLOCKS_MAX)
                .map(|number| memory.allocate(90 + number % 7, 16).unwrap())
                .collect();
            if round == 1 {
                // SAFETY: the fault to be found; 95 bytes of padding would be 96.
                unsafe { blocks[5].add(95).write(0) };
            }
            // SAFETY: lent above and not used any more.
            let found = unsafe { memory.free_all_quietly() };
            assert_eq!(found.is_some(), round == 1);
            if let Some(violation) = found {
                assert_says(
                    &violation.to_string(),
                    &["overrun in pool whole: byte 1 behind"],
                );
            }
            assert_eq!(memory.figures().live_objects, 0);
            assert_balanced(&memory);
            memory.verify();
        }
    }
}

/// Goal: the size given at a free must be the requested one; the block is still freed.
#[test]
fn wrong_size_is_named() {
    for checks in [PLAIN, GUARD] {
        let memory = memory("sizes", checks);
        let start = memory.allocate(100, 16).unwrap();
        // SAFETY: lent above; the size is the fault to be found.
        let sentence = caught(|| unsafe { memory.free(start, Some(101)) });
        let parts = [
            "wrong size in pool sizes",
            "100 bytes",
            "as one of 101 bytes",
        ];
        assert_says(&sentence, &parts);
        assert_eq!(memory.figures().live_objects, 0);
        memory.verify();
    }
}

/// Goal: whatever is freed that is no block's first byte is named with what is known of it.
#[test]
fn foreign_pointers_are_named() {
    for checks in [PLAIN, GUARD] {
        let unused = memory("unused", checks);
        let (mine, theirs) = (memory("mine", checks), memory("theirs", checks));
        let start = mine.allocate(100, 16).unwrap();
        let other = theirs.allocate(100, 16).unwrap();
        let mut local = 0_u64;
        let nowhere = NonNull::from(&mut local).cast();
        let free = |memory: &CheckedMemory, start: NonNull<u8>| {
            // SAFETY: the faults to be found: none of these is a block of that memory.
            caught(|| unsafe { memory.free(start, None) })
        };
        let inside = free(
            &mine,
            NonNull::new(start.as_ptr().wrapping_add(16)).unwrap(),
        );
        let parts = [
            "foreign pointer in pool mine",
            "inside the block of 100",
            &hex(start),
        ];
        assert_says(&inside, &parts);
        assert_says(&free(&mine, nowhere), &["no checked pool has lent"]);
        assert_says(&free(&mine, other), &["pool mine", "pool theirs has lent"]);
        assert_says(
            &free(&unused, start),
            &["pool unused", "pool mine has lent"],
        );
        for (memory, start) in [(&mine, start), (&theirs, other)] {
            // SAFETY: lent above.
            unsafe { memory.free(start, Some(100)) };
        }
        drop(theirs);
        // Other tests' memory may lie there by now.
        assert!(!free(&mine, other).contains("theirs"));
    }
}

/// Goal: for every n, exactly the n-th allocation is refused; allocations around it succeed, and no byte is lost.
#[test]
fn each_planned_failure_is_one_refusal() {
    for guard_pages in [false, true] {
        for number in 1..=20 {
            let fail_at = NonZeroU64::new(number);
            let memory = memory(
                "planned",
                Checks {
                    guard_pages,
                    fail_at,
                },
            );
            for allocation in 1..=20 {
                let size_bytes = SIZES[allocation as usize % SIZES.len()];
                let before = memory.figures();
                match memory.allocate(size_bytes, 16) {
                    // SAFETY: just lent.
                    Ok(start) => unsafe { memory.free(start, Some(size_bytes)) },
                    Err(error) => {
                        let requested_bytes = size_bytes;
                        assert_eq!(error, PoolError::OutOfMemory { requested_bytes });
                        assert_eq!((allocation, memory.figures()), (number, before));
                    }
                }
            }
            assert_eq!(
                (memory.figures().misses, memory.figures().live_bytes),
                (19, 0)
            );
            assert_balanced(&memory);
            memory.verify();
        }
    }
}

/// Goal: impossible sizes are refused, not panicked about, and leave no trace.
#[test]
fn impossible_sizes_are_refused() {
    for checks in [PLAIN, GUARD] {
        let memory = memory("huge", checks);
        for size_bytes in [usize::MAX, usize::MAX - 100, 1 << 62] {
            assert!(memory.allocate(size_bytes, 16).is_err());
        }
        assert!(memory.allocate(100, 1 << 62).is_err());
        assert_eq!(memory.figures(), CheckedFigures::NONE);
    }
}

/// Goal: the quarantine is bounded in bytes and in blocks, idle memory goes back, and the kernel's
/// limit on mappings is not approached by freed blocks.
#[test]
fn quarantine_is_bounded() {
    let plain = memory("bounded", PLAIN);
    for _ in 0..8 * books::QUARANTINE_BYTES_MAX / 100_000 {
        let start = plain.allocate(100_000, 16).unwrap();
        // SAFETY: lent here and not used any more.
        unsafe { plain.free(start, None) };
    }
    let cached_bytes = plain.figures().cached_bytes as usize;
    assert!(
        (books::QUARANTINE_BYTES_MAX - 110_000..=books::QUARANTINE_BYTES_MAX)
            .contains(&cached_bytes)
    );
    let guarded = memory("bounded", GUARD);
    for _ in 0..3 * books::QUARANTINE_BLOCKS_MAX {
        let start = guarded.allocate(100, 16).unwrap();
        // SAFETY: as above.
        unsafe { guarded.free(start, None) };
    }
    let pages = guarded.figures().cached_bytes as usize / (3 * rustix::param::page_size());
    assert_eq!(pages, books::QUARANTINE_BLOCKS_MAX);
    let small = memory("idle", PLAIN);
    let blocks: Vec<_> = (0..5 * books::QUARANTINE_BYTES_MAX / 8000)
        .map(|_| small.allocate(8000, 16).unwrap())
        .collect();
    for start in blocks {
        // SAFETY: as above.
        unsafe { small.free(start, None) };
    }
    let before_bytes = small.figures().reserved_bytes;
    small.trim();
    let figures = small.figures();
    assert!(figures.reserved_bytes < before_bytes / 4, "{figures:?}");
    assert_balanced(&small);
}

/// A block on its way to another thread.
struct AddressedBatch(NonNull<u8>);

// SAFETY: the holder has exclusive access to the block.
unsafe impl Send for AddressedBatch {}

/// Goal: blocks may be allocated on one thread and freed on another, all at once.
#[test]
fn threads_share_it() {
    const COUNT: usize = if cfg!(miri) { 25 } else { 200 };
    for checks in [PLAIN, GUARD] {
        let memory = memory("shared", checks);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let blocks: Vec<AddressedBatch> = (0..COUNT)
                        .map(|size_bytes| AddressedBatch(memory.allocate(size_bytes, 16).unwrap()))
                        .collect();
                    scope.spawn(|| {
                        for AddressedBatch(start) in blocks {
                            // SAFETY: lent to the thread above, which passed it on.
                            unsafe { memory.free(start, None) };
                        }
                    });
                });
            }
        });
        assert_eq!(
            (memory.figures().live_objects, memory.figures().misses),
            (0, 4 * COUNT as u64)
        );
        memory.verify();
    }
}

/// Goal: blocks that outlive their memory stay usable, as their holders expect.
#[test]
fn lent_blocks_outlive_the_memory() {
    for checks in [PLAIN, GUARD] {
        let memory = memory("left", checks);
        let blocks: Vec<_> = SIZES[1..]
            .iter()
            .map(|&size_bytes| (memory.allocate(size_bytes, 16).unwrap(), size_bytes))
            .collect();
        drop(memory);
        for (start, size_bytes) in blocks {
            // SAFETY: lent above and never freed.
            unsafe { start.write_bytes(1, size_bytes) };
        }
    }
}

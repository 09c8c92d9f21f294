//! Properties of an arena: decay, alignment, types, budget; and a model of it.
#![allow(
    clippy::unwrap_used,
    reason = "the helpers of these tests are tests too"
)]
mod modes;

use millpond_mempool::{Arena, PoolError, PoolMode};
use modes::{MODES, budgeted_bytes, is_checked, is_filled};
use proptest::prelude::*;

const CHUNK_BYTES: u64 = 4096;

/// A request of so many slices, four to a chunk.
fn request(arena: &mut Arena, slice_count: usize) -> u64 {
    for _ in 0..slice_count {
        arena.alloc_slice(1000).unwrap();
    }
    arena.reset();
    arena.stats().reserved_bytes / CHUNK_BYTES
}

/// Goal: like requests never make an arena grow after the first, whatever comes in between; a burst
/// is forgotten by halves once sweeps find it unused, down to what is used, and never the first
/// chunk.
#[test]
fn arena_keeps_what_requests_use() {
    for mode in [PoolMode::On, PoolMode::ArenaOnly] {
        let mut arena = Arena::new("requests", mode);
        assert_eq!(request(&mut arena, 12), 3);
        let misses = arena.stats().misses;
        assert_eq!((request(&mut arena, 1), request(&mut arena, 12)), (3, 3));
        assert_eq!(arena.stats().misses, misses);
        assert_eq!(request(&mut arena, 400), 100);
        assert_eq!(arena.trim(), 0, "all of it was in use since the last sweep");
        // Of 100 chunks 3 are used in each interval.
        let counts: Vec<u64> = (0..7)
            .map(|_| {
                request(&mut arena, 12);
                arena.trim();
                arena.stats().reserved_bytes / CHUNK_BYTES
            })
            .collect();
        assert_eq!(counts, [51, 27, 15, 9, 6, 4, 3]);
        arena.trim();
        while arena.trim() > 0 {}
        assert_eq!(arena.stats().reserved_bytes, CHUNK_BYTES);
        assert_eq!(arena.stats().live_objects, 0);
    }
}

/// Goal: long slices go straight to malloc, and back to it with the reset.
#[test]
fn long_slices_leave_with_the_reset() {
    let mut arena = Arena::new("long", PoolMode::On);
    arena.alloc_slice(10).unwrap();
    arena.alloc_slice(1025).unwrap().fill(9);
    assert_eq!(arena.stats().reserved_bytes, CHUNK_BYTES + 1025 + 16);
    arena.reset();
    assert_eq!(arena.stats().reserved_bytes, CHUNK_BYTES);
}

/// Goal: anything without a destructor can be kept at its alignment, next to plain bytes, in every
/// mode, short or long.
#[test]
fn values_lie_where_their_type_demands() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(align(64))]
    struct Line([u64; 3]);
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(align(4096))]
    struct Page(u8);
    fn is_aligned<T>(place: &T) -> bool {
        (&raw const *place).addr().is_multiple_of(align_of::<T>())
    }
    for mode in MODES {
        let mut arena = Arena::new("types", mode);
        for round in 0..3 {
            for number in 0..if cfg!(miri) { 10 } else { 100_u64 } {
                arena.copy_in(&b"four"[..number as usize % 5]).unwrap();
                let line = arena.alloc(Line([number; 3])).unwrap();
                assert!(is_aligned(line) && *line == Line([number; 3]));
                let words = arena.copy_slice(&[number as u32, round]).unwrap();
                assert!(is_aligned(&words[0]) && *words == [number as u32, round]);
            }
            let page = arena.alloc(Page(9)).unwrap();
            assert!(is_aligned(page) && page.0 == 9);
            let many = arena.copy_slice(&[Line([4; 3]); 50]).unwrap();
            assert!(is_aligned(&many[0]) && many == [Line([4; 3]); 50]);
            let units = arena.copy_slice(&[(); 1000]).unwrap();
            assert_eq!(units.len(), 1000);
            assert!(is_aligned(arena.alloc([0_u64; 0]).unwrap()));
            for align_bytes in (0..17).map(|shift| 1_usize << shift) {
                let slice = arena.alloc_slice_aligned(100, align_bytes).unwrap();
                assert!(slice.as_ptr().addr().is_multiple_of(align_bytes));
                assert!(is_filled(slice, 0));
                slice.fill(0xEE);
            }
            assert!(arena.stats().identity_holds());
            arena.reset();
        }
    }
}

/// Goal: an invalid alignment is an error of the program, and reported as one.
#[test]
#[should_panic(expected = "an alignment is a power of two")]
fn alignments_are_powers_of_two() {
    let _ = Arena::new("odd", PoolMode::On).alloc_slice_aligned(10, 24);
}

/// Goal: sizes no machine has are errors, aligned ones too.
#[test]
fn impossible_sizes_are_errors() {
    for mode in MODES {
        let arena = Arena::new("huge", mode);
        assert!(arena.alloc_slice_aligned(1 << 62, 1 << 62).is_err());
        assert!(arena.alloc_slice_aligned(usize::MAX - 100, 64).is_err());
        assert!(arena.alloc_slice_aligned(1, 1 << 63).is_err());
        assert_eq!(arena.stats().reserved_bytes, 0);
    }
}

/// Goal: a budget is never passed; spare chunks leave before it refuses; the refusal names it,
/// harms nothing, and ends with the reset.
#[test]
fn budget_refuses_harmlessly() {
    const LIMIT_BYTES: usize = 4 * CHUNK_BYTES as usize;
    for mode in MODES {
        let mut arena = Arena::with_budget("budget", mode, LIMIT_BYTES);
        let mut slices = Vec::new();
        let refusal = loop {
            match arena.alloc_slice(1000) {
                Ok(slice) => slices.push(slice),
                Err(refusal) => break refusal,
            }
        };
        let is_expected = matches!(refusal, PoolError::BudgetExhausted { limit_bytes, .. }
            if limit_bytes == LIMIT_BYTES);
        assert!(is_expected && slices.len() == 16, "{refusal:?}");
        let before = arena.stats();
        assert!(arena.alloc_slice(2000).is_err());
        assert_eq!(arena.stats(), before);
        arena.reset();
        // Beside the first chunk there is room for this only when the spare ones leave.
        assert!(arena.alloc_slice(10_000).is_ok());
        assert!(budgeted_bytes(&arena.stats()) <= LIMIT_BYTES as u64);
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Zeroed(usize),
    Aligned(usize, u32),
    Copy(usize),
    Value(u64),
    /// Both end the request, since a sweep borrows the arena mutably.
    Reset,
    Trim,
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::{Aligned, Copy, Reset, Trim, Value, Zeroed};
    prop_oneof![
        5 => (0..2000_usize).prop_map(Zeroed),
        3 => (0..1500_usize, 0..13_u32).prop_map(|(len, shift)| Aligned(len, shift)),
        5 => (0..2000_usize).prop_map(Copy),
        3 => any::<u64>().prop_map(Value),
        2 => Just(Reset),
        1 => Just(Trim),
    ]
}

/// A slice of the request, filled with its mark.
struct Lent<'a> {
    mark: u8,
    bytes: &'a mut [u8],
}

fn lend<'a>(
    arena: &'a Arena,
    operation: &Operation,
    mark: u8,
) -> Result<Option<Lent<'a>>, PoolError> {
    let bytes = match operation {
        Operation::Zeroed(len) => arena.alloc_slice(*len)?,
        Operation::Aligned(len, shift) => {
            let slice = arena.alloc_slice_aligned(*len, 1 << shift)?;
            assert!(slice.as_ptr().addr().is_multiple_of(1 << shift));
            slice
        }
        Operation::Copy(len) => {
            let source = vec![mark; *len];
            let copy = arena.copy_in(&source)?;
            assert_eq!(copy, source);
            copy.fill(0);
            copy
        }
        Operation::Value(value) => {
            let place = arena.alloc(*value)?;
            assert_eq!(place, value);
            return Ok(None);
        }
        Operation::Reset | Operation::Trim => return Ok(None),
    };
    assert!(is_filled(bytes, 0));
    bytes.fill(mark);
    Ok(Some(Lent { mark, bytes }))
}

fn asked_bytes(operation: &Operation) -> u64 {
    match operation {
        Operation::Zeroed(len) | Operation::Aligned(len, _) | Operation::Copy(len) => *len as u64,
        Operation::Value(_) => 8,
        Operation::Reset | Operation::Trim => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    /// Goal: slices of one request never overlap, zeroed ones are zero, aligned ones aligned, and
    /// figures match, with resets and sweeps in between.
    #[test]
    fn arena_matches_its_model(
        mode in prop::sample::select(MODES.to_vec()),
        limit_bytes in prop_oneof![3 => Just(usize::MAX), 1 => 2000..40_000_usize],
        operations in prop::collection::vec(operation(), 1..if cfg!(miri) { 50 } else { 150 }),
    ) {
        let mut arena = Arena::with_budget("model", mode, limit_bytes);
        let ends_request = |operation: &Operation| asked_bytes(operation) == 0
            && matches!(operation, Operation::Reset | Operation::Trim);
        for request in operations.split_inclusive(ends_request) {
            // A sweep without a reset leaves what is lent as it is.
            let (mut live_objects, mut live_bytes) =
                (arena.stats().live_objects, arena.stats().live_bytes);
            let mut slices = Vec::new();
            for (mark, operation) in (1_u8..).zip(request) {
                match lend(&arena, operation, mark) {
                    Ok(lent) => {
                        slices.extend(lent);
                        live_bytes += asked_bytes(operation);
                        live_objects += u64::from(asked_bytes(operation) > 0);
                    }
                    Err(refusal) => {
                        let is_expected = matches!(refusal, PoolError::BudgetExhausted { .. });
                        prop_assert!(is_expected && limit_bytes < usize::MAX, "{:?}", refusal);
                    }
                }
                let stats = arena.stats();
                prop_assert!(stats.identity_holds(), "{:?}", stats);
                prop_assert_eq!((stats.live_objects, stats.live_bytes), (live_objects, live_bytes));
                prop_assert!(budgeted_bytes(&stats) <= limit_bytes as u64);
            }
            for lent in slices {
                prop_assert!(is_filled(lent.bytes, lent.mark));
            }
            let before_bytes = arena.stats().reserved_bytes;
            if matches!(request.last(), Some(Operation::Trim)) {
                let bytes = arena.trim() as u64;
                prop_assert_eq!(before_bytes - arena.stats().reserved_bytes, bytes);
            } else {
                arena.reset();
                prop_assert_eq!(arena.stats().live_bytes, 0);
            }
            let stats = arena.stats();
            prop_assert!(stats.identity_holds(), "{:?}", stats);
            let is_empty = stats.live_objects == 0 && mode == PoolMode::Off;
            prop_assert!(!is_empty || stats.reserved_bytes == 0);
        }
        arena.reset();
        arena.trim();
        while arena.trim() > 0 {}
        prop_assert!(is_checked(mode) || arena.stats().reserved_bytes <= CHUNK_BYTES);
    }
}

//! Random operations on every pool against a naive model, with the identity checked after each.
#![allow(
    clippy::unwrap_used,
    reason = "the helpers of these tests are tests too"
)]
mod modes;

use millpond_mempool::{BlockPool, Buffer, PoolError, PoolMode};
use modes::{CHECKED, GUARDED, budgeted_bytes, is_checked, is_filled};
use proptest::prelude::*;
use std::convert::Infallible;
use std::thread;

fn mode() -> impl Strategy<Value = PoolMode> {
    prop_oneof![
        3 => Just(PoolMode::On),
        1 => Just(PoolMode::ArenaOnly),
        2 => Just(PoolMode::Off),
        1 => Just(CHECKED),
        1 => Just(GUARDED),
    ]
}

/// Small, of a class, around the border to malloc, and large.
fn size_bytes() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..300_usize, 4 => 0..9000_usize, 1 => 32_000..33_500_usize, 1 => 0..90_000_usize]
}

#[derive(Clone, Debug)]
enum BlockOperation {
    Allocate(usize),
    Free(prop::sample::Index),
    FreeElsewhere(prop::sample::Index),
    Drain,
    Trim,
    BeginTrim,
    GoOnTrimming,
}

fn block_operation() -> impl Strategy<Value = BlockOperation> {
    use BlockOperation::{Allocate, BeginTrim, Drain, Free, FreeElsewhere, GoOnTrimming, Trim};
    prop_oneof![
        8 => size_bytes().prop_map(Allocate),
        5 => any::<prop::sample::Index>().prop_map(Free),
        1 => any::<prop::sample::Index>().prop_map(FreeElsewhere),
        1 => Just(Drain),
        1 => Just(Trim),
        1 => Just(BeginTrim),
        1 => Just(GoOnTrimming),
    ]
}

/// A full block, and the model's record of it.
struct Lent {
    buffer: Buffer,
    asked_bytes: u64,
    mark: u8,
}

fn lend(pool: &BlockPool, asked_bytes: usize, mark: u8) -> Result<Lent, PoolError> {
    let mut buffer = Buffer::with_capacity(pool, asked_bytes)?;
    assert!(buffer.capacity() >= asked_bytes);
    buffer.append_within_capacity(&vec![mark; buffer.capacity()]);
    Ok(Lent {
        buffer,
        asked_bytes: asked_bytes.max(16) as u64,
        mark,
    })
}

fn check_lent(lent: &Lent) {
    assert!(
        is_filled(&lent.buffer, lent.mark),
        "another holder wrote here"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    /// Goal: blocks never overlap, figures match the model's, and the budget holds.
    #[test]
    fn block_pool(
        mode in mode(),
        limit_bytes in prop_oneof![Just(usize::MAX), 200_000..800_000_usize],
        operations in prop::collection::vec(block_operation(), 1..if cfg!(miri) { 40 } else { 200 }),
    ) {
        let pool = BlockPool::with_budget("model", mode, limit_bytes);
        let mut lent: Vec<Lent> = Vec::new();
        // Freed elsewhere and perhaps not drained yet: how many, and how many bytes.
        let mut away = (0, 0);
        for (operation, mark) in operations.into_iter().zip((0..=u8::MAX).cycle()) {
            match operation {
                BlockOperation::Allocate(asked_bytes) => match lend(&pool, asked_bytes, mark) {
                    Ok(fresh) => lent.push(fresh),
                    Err(error) => {
                        let is_expected = matches!(error, PoolError::BudgetExhausted { .. });
                        prop_assert!(is_expected && limit_bytes < usize::MAX, "{:?}", error);
                    }
                },
                BlockOperation::Free(index) if !lent.is_empty() => {
                    let gone = lent.swap_remove(index.index(lent.len()));
                    check_lent(&gone);
                }
                BlockOperation::FreeElsewhere(index) if !lent.is_empty() => {
                    let gone = lent.swap_remove(index.index(lent.len()));
                    away = (away.0 + 1, away.1 + gone.asked_bytes);
                    thread::spawn(move || check_lent(&gone)).join().unwrap();
                }
                BlockOperation::Drain => {
                    pool.drain_remote();
                    away = (0, 0);
                }
                BlockOperation::Trim => {
                    pool.trim();
                    away = (0, 0);
                }
                BlockOperation::BeginTrim => {
                    pool.begin_trim();
                    away = (0, 0);
                }
                BlockOperation::GoOnTrimming => _ = pool.go_on_trimming(),
                BlockOperation::Free(_) | BlockOperation::FreeElsewhere(_) => {}
            }
            let stats = pool.stats();
            let live_bytes: u64 = lent.iter().map(|lent| lent.asked_bytes).sum();
            let live_objects = lent.len() as u64;
            prop_assert!(stats.identity_holds(), "{:?}", stats);
            prop_assert!((live_objects..=live_objects + away.0).contains(&stats.live_objects));
            prop_assert!((live_bytes..=live_bytes + away.1).contains(&stats.live_bytes));
            prop_assert!(budgeted_bytes(&stats) <= limit_bytes as u64);
        }
        lent.iter().for_each(check_lent);
        drop(lent);
        pool.drain_remote();
        prop_assert_eq!((pool.stats().live_objects, pool.stats().live_bytes), (0, 0));
        // Memory used until now has to be idle for the time between two sweeps.
        pool.trim();
        while !is_checked(mode) && pool.stats().reserved_bytes > 0 {
            let before = pool.stats().reserved_bytes;
            pool.trim();
            prop_assert!(pool.stats().reserved_bytes < before, "idle memory is given back");
        }
    }
}

#[derive(Clone, Debug)]
enum BufferOperation {
    Extend(Vec<u8>),
    ExtendPieces(Vec<u8>, Vec<u8>),
    Push(u8),
    Fill(usize),
    Consume(usize),
    Truncate(usize),
    Reserve(usize),
    Uppercase,
    Clear,
    Release,
}

fn buffer_operation() -> impl Strategy<Value = BufferOperation> {
    use BufferOperation::{
        Clear, Consume, Extend, ExtendPieces, Fill, Push, Release, Reserve, Truncate, Uppercase,
    };
    let bytes = |most| prop::collection::vec(any::<u8>(), 0..most);
    prop_oneof![
        6 => bytes(700).prop_map(Extend),
        3 => (bytes(300), bytes(300)).prop_map(|(first, second)| ExtendPieces(first, second)),
        2 => any::<u8>().prop_map(Push),
        2 => (0..500_usize).prop_map(Fill),
        5 => (0..900_usize).prop_map(Consume),
        1 => (0..900_usize).prop_map(Truncate),
        1 => size_bytes().prop_map(Reserve),
        1 => Just(Uppercase),
        1 => Just(Clear),
        1 => Just(Release),
    ]
}

fn apply(buffer: &mut Buffer, model: &mut Vec<u8>, pool: &BlockPool, operation: BufferOperation) {
    match operation {
        BufferOperation::Extend(bytes) => {
            buffer.extend_from_slice(pool, &bytes).unwrap();
            model.extend_from_slice(&bytes);
        }
        BufferOperation::ExtendPieces(first, second) => {
            let pieces: [&[u8]; 4] = [&first, &second, &[], &first];
            buffer.extend_from_slices(pool, pieces).unwrap();
            model.extend(pieces.concat());
        }
        BufferOperation::Push(byte) => {
            buffer.push(pool, byte).unwrap();
            model.push(byte);
        }
        BufferOperation::Fill(count) => {
            let bytes = vec![count as u8; count.min(buffer.spare_bytes())];
            let added = buffer.fill_from(|room| {
                let (room, _) = room.split_at_mut(bytes.len());
                Ok::<_, Infallible>(room.write_copy_of_slice(&bytes))
            });
            assert_eq!(added, Ok(bytes.len()));
            model.extend_from_slice(&bytes);
        }
        BufferOperation::Consume(count) => {
            let count = count.min(model.len());
            buffer.consume_front(count);
            model.drain(..count);
        }
        BufferOperation::Truncate(len) => {
            buffer.truncate(len);
            model.truncate(len);
        }
        BufferOperation::Reserve(additional_bytes) => {
            buffer.reserve(pool, additional_bytes).unwrap();
            assert!(buffer.spare_bytes() >= additional_bytes);
        }
        BufferOperation::Uppercase => {
            buffer.make_ascii_uppercase();
            model.make_ascii_uppercase();
        }
        BufferOperation::Clear => {
            buffer.clear();
            model.clear();
        }
        BufferOperation::Release => {
            buffer.release();
            model.clear();
            assert_eq!(buffer.capacity(), 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 300 }))]

    /// Goal: a buffer is a `Vec<u8>` with a cheap front, whatever is done to it.
    #[test]
    fn buffer(
        mode in mode(),
        operations in prop::collection::vec(buffer_operation(), 1..if cfg!(miri) { 40 } else { 150 }),
    ) {
        let pool = BlockPool::new("model", mode);
        let (mut buffer, mut model) = (Buffer::new(), Vec::new());
        for operation in operations {
            apply(&mut buffer, &mut model, &pool, operation);
            prop_assert_eq!(&*buffer, &*model);
            prop_assert_eq!((buffer.len(), buffer.is_empty()), (model.len(), model.is_empty()));
            prop_assert!(buffer.spare_bytes() + buffer.len() <= buffer.capacity());
            prop_assert!(pool.stats().identity_holds());
            prop_assert!(pool.stats().live_objects <= 1);
        }
    }
}

//! Guarantees to callers, one per test, each in every mode.
#![allow(
    clippy::unwrap_used,
    reason = "the helpers of these tests are tests too"
)]
mod modes;

use millpond_mempool::{
    Arena, BLOCK_BYTES_MAX, Block, BlockPool, Buffer, BufferPool, Handle, PoolError, PoolMode, Slab,
};
use modes::{MODES, budgeted_bytes, is_filled};
use std::cell::Cell;
use std::collections::HashSet;
use std::convert::Infallible;
use std::rc::Rc;

const CHUNK_BYTES: u64 = 64 * 1024;

fn address(block: &mut Block) -> usize {
    block.as_uninit_mut().as_ptr().addr()
}

/// Goal: types that may cross threads are `Send`, and handles stay as small as io and http rely on.
#[test]
fn sizes_and_thread_bounds() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Block>();
    is_send_and_sync::<Buffer>();
    is_send_and_sync::<Slab<u64>>();
    is_send_and_sync::<Handle<Rc<u8>>>();
    assert_eq!(
        (
            size_of::<Handle<String>>(),
            size_of::<Block>(),
            size_of::<Buffer>()
        ),
        (8, 24, 32)
    );
}

/// Goal: a block holds what was asked for, at most 25 % more, aligned as malloc aligns.
#[test]
fn blocks_hold_their_size_and_are_aligned() {
    for mode in MODES {
        let pool = BlockPool::new("sizes", mode);
        let step = if cfg!(miri) { 31 } else { 1 };
        for size_bytes in (0..2100).chain((2100..70_000).step_by(119)).step_by(step) {
            let mut block = pool.allocate(size_bytes).unwrap();
            assert!(block.capacity() >= size_bytes);
            assert!(address(&mut block).is_multiple_of(16), "{size_bytes} bytes");
            if size_bytes >= 48 {
                assert!((block.capacity() - size_bytes) * 4 <= block.capacity());
            }
            let is_exact = mode != PoolMode::On || size_bytes > 32 * 1024;
            assert!(!is_exact || block.capacity() == size_bytes.max(16));
            // The sizes of cache-line arithmetic begin at cache lines while pools are on.
            let is_lines = block.capacity().is_multiple_of(64) && mode == PoolMode::On;
            let is_pooled = block.capacity() <= 32 * 1024;
            assert!(!(is_lines && is_pooled) || address(&mut block).is_multiple_of(64));
        }
        assert_eq!(pool.stats().live_objects, 0);
    }
}

/// Goal: a request of no bytes is a block like any other, in every mode.
#[test]
fn zero_bytes_are_a_block_too() {
    for mode in MODES {
        let pool = BlockPool::new("zero", mode);
        let (mut one, mut other) = (pool.allocate(0).unwrap(), pool.allocate(0).unwrap());
        assert_ne!(address(&mut one), address(&mut other));
        assert_eq!(pool.stats().live_objects, 2);
        let arena = Arena::new("zero", mode);
        assert!(arena.alloc_slice(0).unwrap().is_empty());
        assert!(arena.copy_in(b"").unwrap().is_empty());
        assert_eq!(arena.stats().reserved_bytes, 0);
    }
}

/// Goal: the block freed last is lent first.
#[test]
fn newest_block_is_reused_first() {
    let pool = BlockPool::new("lifo", PoolMode::On);
    let mut blocks: Vec<Block> = (0..8).map(|_| pool.allocate(500).unwrap()).collect();
    let mut freed: Vec<usize> = blocks.iter_mut().map(address).collect();
    drop(blocks);
    let mut blocks: Vec<Block> = (0..8).map(|_| pool.allocate(500).unwrap()).collect();
    let again: Vec<usize> = blocks.iter_mut().map(address).collect();
    freed.reverse();
    assert_eq!(again, freed);
    let leases = BufferPool::new("lifo", PoolMode::On, 4096, 4);
    let (first, second) = (leases.lease().unwrap(), leases.lease().unwrap());
    let first_id = first.id();
    drop(second);
    drop(first);
    assert_eq!(leases.lease().unwrap().id(), first_id);
}

/// Goal: a budget is never passed; the refusal has the kind and the bytes, changes nothing, and ends when memory is
/// freed, on whatever thread, and in whatever class it was.
#[test]
fn budget_refuses_harmlessly() {
    const LIMIT_BYTES: usize = 4 * CHUNK_BYTES as usize;
    for mode in MODES {
        let pool = BlockPool::with_budget("budget", mode, LIMIT_BYTES);
        let mut buffers = Vec::new();
        let refusal = loop {
            match Buffer::with_capacity(&pool, 4000) {
                Ok(mut buffer) => {
                    buffer.append_within_capacity(&[buffers.len() as u8; 4000]);
                    buffers.push(buffer);
                }
                Err(refusal) => break refusal,
            }
        };
        let is_expected = matches!(refusal, PoolError::BudgetExhausted { requested_bytes, limit_bytes }
            if requested_bytes >= 4000 && limit_bytes == LIMIT_BYTES);
        assert!(is_expected, "{refusal:?}");
        assert_eq!(buffers.len(), if mode == PoolMode::On { 64 } else { 65 });
        let before = pool.stats();
        assert!(pool.allocate(5000).is_err() && pool.allocate(100_000).is_err());
        assert_eq!(pool.stats(), before);
        let counted_bytes = budgeted_bytes(&before);
        assert!(counted_bytes <= LIMIT_BYTES as u64 && before.identity_holds());
        for (index, buffer) in buffers.iter().enumerate() {
            assert!(is_filled(buffer, index as u8));
        }
        std::thread::spawn(move || drop(buffers)).join().unwrap();
        let large = pool.allocate(200_000).unwrap();
        assert_eq!(pool.stats().live_objects, 1);
        drop(large);
        assert!(pool.allocate(4000).is_ok());
    }
}

/// Goal: sizes no machine has are errors in every pool that can be asked for them.
#[test]
#[cfg_attr(miri, ignore = "Miri ends where its own memory would")]
fn impossible_sizes_are_errors() {
    for mode in MODES {
        let pool = BlockPool::new("huge", mode);
        let requested_bytes = BLOCK_BYTES_MAX + 1;
        let expected = PoolError::TooLarge {
            requested_bytes,
            limit_bytes: BLOCK_BYTES_MAX,
        };
        assert_eq!(pool.allocate(requested_bytes).unwrap_err(), expected);
        let mut buffer = Buffer::new();
        buffer.extend_from_slice(&pool, b"kept").unwrap();
        assert!(buffer.reserve(&pool, usize::MAX).is_err());
        assert_eq!(&*buffer, b"kept");
        let arena = Arena::new("huge", mode);
        assert!(arena.alloc_slice(usize::MAX).is_err() && arena.alloc_slice(1 << 62).is_err());
        assert_eq!(arena.stats().reserved_bytes, 0);
        let buffers = BufferPool::new("huge", mode, 1 << 62, 2);
        assert!(buffers.lease().is_err());
        assert!(
            BufferPool::new("huge", mode, usize::MAX, 2)
                .lease()
                .is_err()
        );
        assert_eq!((buffers.addressed_bytes(), buffers.stats().misses), (0, 0));
    }
}

/// Goal: the errors a user gets have a remedy.
#[test]
fn errors_are_sentences_with_advice() {
    let pool = BlockPool::with_budget("budget", PoolMode::On, 1000);
    assert_eq!(
        pool.allocate(10).unwrap_err().to_string(),
        "65536 more bytes would pass the pool's budget of 1000 bytes: wait until memory is freed, \
         answer 503, or raise the budget"
    );
}

/// Goal: sweeping gives back half of what was idle since the last sweep, and leaves live blocks
/// alone.
#[test]
fn trim_halves_idle_memory() {
    let pool = BlockPool::new("trim", PoolMode::On);
    let mut keeper = Buffer::with_capacity(&pool, 1000).unwrap();
    keeper.append_within_capacity(&[7; 1000]);
    let blocks: Vec<Block> = (0..64 * 8).map(|_| pool.allocate(1000).unwrap()).collect();
    assert_eq!(pool.stats().reserved_bytes, 9 * CHUNK_BYTES);
    drop(blocks);
    for chunks_left in [9, 5, 3, 2, 1, 1] {
        pool.trim();
        assert_eq!(pool.stats().reserved_bytes, chunks_left * CHUNK_BYTES);
    }
    assert!(is_filled(&keeper, 7));
    drop(keeper);
    pool.trim();
    assert_eq!(pool.stats().reserved_bytes, CHUNK_BYTES);
    pool.trim();
    assert_eq!(pool.stats().reserved_bytes, 0);
    assert_eq!(pool.allocate(1000).unwrap().capacity(), 1024);
}

/// Goal: all memory without a live block goes back at once, also pages between live blocks, and live blocks stay.
#[test]
fn unused_memory_is_released_at_once() {
    let pool = BlockPool::new("release", PoolMode::On);
    let filled = |n: usize| {
        let mut buffer = Buffer::with_capacity(&pool, 8000).unwrap();
        buffer.append_within_capacity(&[n as u8; 8000]);
        buffer
    };
    // Eight to a chunk.
    let mut buffers: Vec<Buffer> = (0..64).map(filled).collect();
    let idle = buffers.split_off(32);
    drop(idle);
    let mut number = 0;
    buffers.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    let released_bytes = pool.release_unused() as u64;
    let stats = pool.stats();
    assert_eq!(stats.reserved_bytes, 4 * CHUNK_BYTES);
    assert_eq!(released_bytes, 4 * CHUNK_BYTES + 16 * 8192);
    assert_eq!(pool.release_unused(), 0, "once");
    for (n, buffer) in (1..).step_by(2).zip(&buffers) {
        assert!(is_filled(buffer, n));
    }
    buffers.extend((0..64).map(filled));
    assert_eq!(pool.stats().live_objects, 16 + 64);
}

/// Goal: a trim in parts gives back as much in the end as a whole one, never much at a time, and bytes after its first
/// part are returned by the next call; a pool without idle memory is done at once.
#[test]
fn a_trim_in_parts_is_the_same_trim() {
    const PART_BYTES_MAX: u64 = 4 * CHUNK_BYTES;
    let [whole, in_parts] = [0, 1].map(|_| {
        let pool = BlockPool::new("trim", PoolMode::On);
        assert!(!pool.go_on_trimming());
        let crowd: Vec<Block> = (0..2 * 300)
            .map(|_| pool.allocate(32_768).unwrap())
            .collect();
        drop(crowd);
        assert_eq!(pool.trim(), 0, "it was in use just now");
        pool
    });
    let mut told_bytes = 0;
    let mut given_back_bytes = 0;
    for _ in 0..12 {
        given_back_bytes += whole.trim();
        let mut before = in_parts.stats().reserved_bytes;
        told_bytes += in_parts.begin_trim();
        loop {
            let is_under_way = in_parts.go_on_trimming();
            let after = in_parts.stats().reserved_bytes;
            assert!(before - after <= 2 * PART_BYTES_MAX, "{before} to {after}");
            before = after;
            if !is_under_way {
                break;
            }
        }
        assert_eq!(before, whole.stats().reserved_bytes);
    }
    assert_eq!(in_parts.stats().reserved_bytes, 0);
    assert_eq!(told_bytes + in_parts.begin_trim(), given_back_bytes);
    let off = BlockPool::new("off", PoolMode::Off);
    drop(off.allocate(1000).unwrap());
    assert_eq!((off.begin_trim(), off.go_on_trimming()), (0, false));
}

/// Goal: class figures add up to the pool's, and name only classes that were used.
#[test]
fn class_figures_add_up() {
    let pool = BlockPool::new("classes", PoolMode::On);
    let blocks: Vec<Block> = [60, 64, 1000, 1000, 30_000]
        .map(|size| pool.allocate(size).unwrap())
        .into();
    let classes: Vec<_> = pool.class_stats().collect();
    let used = |class: &millpond_mempool::ClassStats| (class.block_bytes, class.live_objects);
    assert_eq!(
        classes.iter().map(used).collect::<Vec<_>>(),
        [(64, 2), (1024, 2), (30720, 1)]
    );
    let cached_bytes: u64 = classes
        .iter()
        .map(|class| class.cached_objects * class.block_bytes as u64)
        .sum();
    assert_eq!(cached_bytes, pool.stats().cached_bytes);
    assert_eq!(
        classes.iter().map(|class| class.hits).sum::<u64>(),
        pool.stats().hits
    );
    assert_eq!(classes.iter().map(|class| class.misses).sum::<u64>(), 3);
    drop(blocks);
    let off = BlockPool::new("classes", PoolMode::Off);
    let _block = off.allocate(60).unwrap();
    assert_eq!(off.class_stats().count(), 0);
}

/// Goal: a stale handle never finds anything, a forged one nothing or a live object, and the slot is reused.
#[test]
fn stale_handles_find_nothing() {
    for mode in MODES {
        let mut slab = Slab::new("stale", mode);
        let mut stale = Vec::new();
        for life in 0..if cfg!(miri) { 20 } else { 100_u32 } {
            let handle = slab.insert(life).unwrap();
            assert_eq!(handle.index(), 0);
            assert_eq!(Handle::from_bits(handle.to_bits()), handle);
            for old in &stale {
                assert!(slab.get(*old).is_none() && slab.get_mut(*old).is_none());
                assert_eq!(slab.remove(*old), None);
            }
            assert_eq!(slab.get(handle), Some(&life));
            assert_eq!(slab.remove(handle), Some(life));
            stale.push(handle);
        }
        for bits in [0, 1 << 32, u64::MAX, 5, 100 << 32, 1] {
            assert_eq!(slab.get(Handle::from_bits(bits)), None);
        }
        assert!(slab.is_empty() && slab.stats().identity_holds());
    }
}

/// Goal: over-aligned objects lie where their type demands, and empty ones work.
#[test]
fn slab_respects_alignment_and_size_zero() {
    #[repr(align(64))]
    struct Line([u8; 65]);
    for mode in MODES {
        let mut lines = Slab::new("lines", mode);
        let handles: Vec<_> = (0..if cfg!(miri) { 200 } else { 2000 })
            .map(|index: usize| lines.insert(Line([index as u8; 65])).unwrap())
            .collect();
        for (index, handle) in handles.iter().enumerate() {
            let line = lines.get(*handle).unwrap();
            assert!((&raw const *line).addr().is_multiple_of(64));
            assert_eq!(line.0, [index as u8; 65]);
        }
        let mut units = Slab::new("units", mode);
        let unit = units.insert(()).unwrap();
        assert_eq!(
            (units.len(), units.remove(unit), units.len()),
            (1, Some(()), 0)
        );
    }
}

/// Goal: objects left in a slab are dropped with it, once; removed ones are not.
#[test]
fn slab_drops_its_objects_once() {
    struct Counted(Rc<Cell<u32>>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    for mode in MODES {
        let drops = Rc::new(Cell::new(0));
        let mut slab = Slab::new("drops", mode);
        let handles: Vec<_> = (0..10)
            .map(|_| slab.insert(Counted(Rc::clone(&drops))).unwrap())
            .collect();
        drop(slab.remove(handles[3]));
        assert_eq!(drops.get(), 1);
        assert_eq!(slab.handles().count(), 9);
        drop(slab);
        assert_eq!(drops.get(), 10);
    }
}

/// Goal: the pool lends each buffer once, refuses beyond its count, and outlives its handle.
#[test]
fn buffers_are_lent_once_and_counted() {
    for mode in MODES {
        let pool = BufferPool::new("io", mode, 1000, 3);
        let leases = [(); 3].map(|()| pool.lease().unwrap());
        let ids: HashSet<u16> = leases.iter().map(millpond_mempool::Lease::id).collect();
        assert_eq!(ids, HashSet::from([0, 1, 2]));
        assert_eq!(
            pool.lease().unwrap_err(),
            PoolError::Exhausted { count_max: 3 }
        );
        assert_eq!(
            (pool.stats().live_objects, pool.stats().live_bytes),
            (3, 3000)
        );
        let mut leases = leases.into_iter();
        let mut kept = leases.next().unwrap();
        drop(leases);
        assert_eq!(pool.stats().live_objects, 1);
        drop(pool);
        let filled = kept
            .fill_from(|room| Ok::<_, Infallible>(room.write_filled_with(3)))
            .unwrap();
        assert_eq!(filled, [3; 1000]);
    }
}

/// `MaybeUninit::write_filled` is not stable yet.
trait WriteFilled {
    fn write_filled_with(&mut self, byte: u8) -> &mut [u8];
}

impl WriteFilled for [std::mem::MaybeUninit<u8>] {
    fn write_filled_with(&mut self, byte: u8) -> &mut [u8] {
        let source = vec![byte; self.len()];
        self.write_copy_of_slice(&source)
    }
}

/// Goal: a lease never shows what an earlier holder left, and a failed fill leaves it empty.
#[test]
fn lease_reads_as_what_was_filled_in() {
    for mode in MODES {
        let pool = BufferPool::new("io", mode, 64, 1);
        let mut lease = pool.lease().unwrap();
        assert!(lease.is_empty());
        lease
            .fill_from(|room| Ok::<_, Infallible>(room[..6].write_filled_with(b's')))
            .unwrap();
        assert_eq!(&*lease, b"ssssss");
        drop(lease);
        let mut lease = pool.lease().unwrap();
        assert!(lease.is_empty());
        lease
            .fill_from(|room| Ok::<_, Infallible>(room[..2].write_filled_with(b'o')))
            .unwrap();
        lease.make_ascii_uppercase();
        assert_eq!(&*lease, b"OO");
        assert_eq!(
            lease.fill_from(|_| Err("reset by peer")),
            Err("reset by peer")
        );
        assert!(lease.is_empty());
    }
}

/// Goal: a `fill` that returns memory of another place is caught, not believed.
#[test]
#[should_panic(expected = "must return the beginning of its room")]
fn fill_cannot_lie_about_the_place() {
    let pool = BlockPool::new("lie", PoolMode::On);
    let mut buffer = Buffer::with_capacity(&pool, 64).unwrap();
    let _ = buffer.fill_from(|room| Ok::<_, Infallible>(room[1..3].write_filled_with(1)));
}

/// Goal: consumed room is used again, and a sliding window stays bounded.
#[test]
fn buffer_slides_without_growing() {
    for mode in MODES {
        let pool = BlockPool::new("slide", mode);
        let mut buffer = Buffer::with_capacity(&pool, 128).unwrap();
        for step in 0..if cfg!(miri) { 400 } else { 10_000_u32 } {
            buffer
                .extend_from_slice(&pool, &step.to_le_bytes())
                .unwrap();
            if buffer.len() > 100 {
                let oldest = u32::from_le_bytes(buffer[..4].try_into().unwrap());
                assert_eq!(oldest, step - 25);
                buffer.consume_front(4);
            }
        }
        assert!(buffer.capacity() <= 512, "{} bytes", buffer.capacity());
        buffer.release();
        assert_eq!((buffer.capacity(), pool.stats().live_objects), (0, 0));
    }
}

/// Goal: growth under a budget that refuses doubling still gets exactly what is needed.
#[test]
fn buffer_grows_exactly_when_doubling_is_refused() {
    let pool = BlockPool::with_budget("tight", PoolMode::Off, 2500);
    let mut buffer = Buffer::with_capacity(&pool, 1000).unwrap();
    buffer.append_within_capacity(&[1; 1000]);
    buffer.extend_from_slice(&pool, &[2; 100]).unwrap();
    assert_eq!((buffer.len(), buffer.capacity()), (1100, 1100));
    assert!(buffer.extend_from_slice(&pool, &[3; 1000]).is_err());
    assert_eq!((buffer[999], buffer[1099], buffer.len()), (1, 2, 1100));
}

//! Blocks that are dropped away from home, and pools that die before their blocks.
#![allow(
    clippy::unwrap_used,
    reason = "the helpers of these tests are tests too"
)]
mod modes;

use millpond_mempool::{Block, BlockPool, Buffer, PoolMode, flush_remote_frees};
use modes::{MODES, is_filled};
use std::sync::mpsc;
use std::thread;

/// Both kinds of block: of a class, and straight from malloc.
const SIZES: [usize; 4] = [64, 1000, 32 * 1024, 100_000];

/// A multiple of the sizes: little under Miri.
const BLOCKS: u64 = if cfg!(miri) { 20 } else { 400 };

fn blocks(pool: &BlockPool) -> Vec<Block> {
    (0..BLOCKS as usize)
        .map(|index| pool.allocate(SIZES[index % SIZES.len()]).unwrap())
        .collect()
}

fn filled(pool: &BlockPool, size_bytes: usize, byte: u8) -> Buffer {
    let mut buffer = Buffer::new();
    buffer
        .extend_from_slice(pool, &vec![byte; size_bytes])
        .unwrap();
    buffer
}

/// Goal: blocks freed elsewhere are counted as free by every report, drained or not, then serve again without new
/// memory.
#[test]
fn remote_frees_come_home() {
    for mode in MODES {
        let pool = BlockPool::new("remote", mode);
        let lent = blocks(&pool);
        thread::spawn(move || drop(lent)).join().unwrap();
        let drained = pool.stats();
        assert_eq!((drained.live_objects, drained.live_bytes), (0, 0));
        assert_eq!(
            (drained.remote_frees, drained.identity_holds()),
            (BLOCKS, true)
        );
        let again = blocks(&pool);
        let direct_count = if mode == PoolMode::On {
            BLOCKS / SIZES.len() as u64
        } else {
            BLOCKS
        };
        assert_eq!(pool.stats().misses, drained.misses + direct_count);
        drop(again);
    }
}

/// Goal: allocation finds remotely freed blocks by itself before it asks for memory.
#[test]
fn allocate_drains_before_it_grows() {
    let pool = BlockPool::new("remote", PoolMode::On);
    let lent: Vec<Block> = (0..64).map(|_| pool.allocate(1024).unwrap()).collect();
    thread::spawn(move || drop(lent)).join().unwrap();
    let _block = pool.allocate(1024).unwrap();
    assert_eq!((pool.stats().misses, pool.stats().live_objects), (1, 1));
}

/// Goal: blocks of an ended pool stay usable, wherever they are dropped, in whatever order.
#[test]
fn blocks_outlive_their_pool() {
    for mode in MODES {
        for size_bytes in SIZES {
            let pool = BlockPool::new("short-lived", mode);
            let other_handle = pool.clone();
            let here = filled(&pool, size_bytes, 1);
            let there = filled(&pool, size_bytes, 2);
            let sent_before = filled(&pool, size_bytes, 3);
            thread::spawn(move || drop(sent_before)).join().unwrap();
            drop(pool);
            drop(other_handle);
            assert!(is_filled(&here, 1));
            thread::spawn(move || assert!(is_filled(&there, 2)))
                .join()
                .unwrap();
            drop(here);
        }
    }
}

/// Goal: the same after the owner's whole thread has ended.
#[test]
fn blocks_outlive_their_owners_thread() {
    for mode in MODES {
        let owner = thread::spawn(move || {
            let pool = BlockPool::new("ended", mode);
            SIZES.map(|size_bytes| filled(&pool, size_bytes, 9))
        });
        let left = owner.join().unwrap();
        for (buffer, size_bytes) in left.iter().zip(SIZES) {
            assert_eq!(buffer.len(), size_bytes);
            assert!(is_filled(buffer, 9));
        }
        // A new thread must not be taken for the owner, whose address in memory it may have.
        thread::spawn(move || drop(left)).join().unwrap();
    }
}

/// Goal: blocks dropped while the thread-local values of a thread are dropped find their way.
#[test]
fn blocks_can_be_dropped_at_a_threads_very_end() {
    use std::cell::RefCell;
    thread_local!(static LAST: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) });
    for mode in MODES {
        let pool = BlockPool::new("home", mode);
        let visitor = filled(&pool, 100, 1);
        thread::spawn(move || {
            let own_pool = BlockPool::new("own", mode);
            LAST.set(vec![visitor, filled(&own_pool, 100, 2)]);
        })
        .join()
        .unwrap();
        pool.drain_remote();
        assert_eq!(pool.stats().live_objects, 0);
    }
}

/// Goal: no block is lost, served twice or overwritten while several threads pass blocks on, drop
/// them, end, and leave blocks behind; the books balance at every drain.
#[test]
fn ring_of_threads_passes_blocks() {
    const THREADS: usize = 4;
    for mode in MODES {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..THREADS).map(|_| mpsc::channel::<Buffer>()).unzip();
        let workers: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(index, receiver)| {
                let next = senders[(index + 1) % THREADS].clone();
                thread::spawn(move || ring_worker(index, mode, &next, &receiver))
            })
            .collect();
        drop(senders);
        for worker in workers {
            worker.join().unwrap();
        }
    }
}

/// Sends its own buffers and some of those it was sent, checks and drops the rest. Every buffer is
/// filled with its length's low byte. Each worker ends after another number of rounds.
fn ring_worker(
    index: usize,
    mode: PoolMode,
    next: &mpsc::Sender<Buffer>,
    receiver: &mpsc::Receiver<Buffer>,
) {
    let pool = BlockPool::new("ring", mode);
    let mut held = Vec::new();
    let round_count = if cfg!(miri) {
        6 + 3 * index
    } else {
        1500 + 700 * index
    };
    for round in 0..round_count {
        let size_bytes = 1 + round * 37 % 5000 + if round % 64 == 0 { 40_000 } else { 0 };
        let buffer = filled(&pool, size_bytes, size_bytes as u8);
        // An ended neighbour drops its receiver; blocks sent to it are dropped there or here.
        match round % 3 {
            0 => held.push(buffer),
            _ => drop(next.send(buffer)),
        }
        while let Ok(visitor) = receiver.try_recv() {
            assert!(is_filled(&visitor, visitor.len() as u8));
            if visitor.len() % 5 == 0 {
                drop(next.send(visitor));
            }
        }
        if round % 50 == 0 {
            held.truncate(10);
            pool.drain_remote();
            assert!(pool.stats().identity_holds());
        }
        if round % 400 == 0 {
            pool.trim();
        }
    }
    assert!(
        held.iter()
            .all(|buffer| is_filled(buffer, buffer.len() as u8))
    );
    drop(pool);
}

/// Goal: a thread that goes on living keeps less than a batch of each pool from its owner, 64 blocks
/// or 64 KiB, and nothing once it has flushed; also when it frees for more pools than it has batches.
#[test]
fn running_thread_keeps_less_than_a_batch() {
    for (pool_count, size_bytes, kept_max) in [(1, 64, 63), (1, 8192, 7), (7, 64, 63)] {
        let pools: Vec<BlockPool> = (0..pool_count)
            .map(|_| BlockPool::new("home", PoolMode::On))
            .collect();
        let lent: Vec<Block> = (0..if cfg!(miri) {
            70 + 70 * pool_count
        } else {
            1000
        })
            .map(|index| pools[index % pool_count].allocate(size_bytes).unwrap())
            .collect();
        let (to_freer, work) = mpsc::channel::<Vec<Block>>();
        let (told, tell) = mpsc::channel();
        let freer = thread::spawn(move || {
            for blocks in work {
                drop(blocks);
                told.send(()).unwrap();
                flush_remote_frees();
                told.send(()).unwrap();
            }
        });
        let live_objects = || {
            tell.recv().unwrap();
            pools.iter().for_each(BlockPool::drain_remote);
            pools.iter().map(|pool| pool.stats().live_objects).max()
        };
        to_freer.send(lent).unwrap();
        let kept = live_objects();
        assert!(kept.is_some_and(|kept| kept <= kept_max), "{kept:?}");
        assert_eq!(live_objects(), Some(0));
        drop(to_freer);
        freer.join().unwrap();
    }
}

//! Properties of a buffer pool: pages that come and go, budget, tables; and a model of it.
#![allow(
    clippy::unwrap_used,
    reason = "the helpers of these tests are tests too"
)]
mod modes;

use millpond_mempool::{BufferPool, Lease, PoolError, PoolMode};
use modes::{MODES, budgeted_bytes, is_checked, is_filled};
use proptest::prelude::*;
use std::convert::Infallible;

const BUFFER_BYTES: usize = 64 * 1024;

fn fill(lease: &mut Lease, mark: u8) {
    let bytes = vec![mark; lease.capacity()];
    lease
        .fill_from(|room| Ok::<_, Infallible>(room.write_copy_of_slice(&bytes)))
        .unwrap();
}

fn lease_many(pool: &BufferPool, count: usize) -> Vec<Lease> {
    (0..count)
        .map(|mark| {
            let mut lease = pool.lease().unwrap();
            fill(&mut lease, mark as u8);
            lease
        })
        .collect()
}

/// Buffers that can have pages.
fn reserved_count(pool: &BufferPool) -> usize {
    let stats = pool.stats();
    ((stats.reserved_bytes - stats.waste_bytes) / pool.buffer_bytes() as u64) as usize
}

/// Bytes of a range of addresses that have pages, as the kernel sees it.
fn resident_bytes(range: std::ops::Range<usize>) -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_inside = false;
    let mut resident_bytes = 0;
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap();
        if let Some((start, end)) = first.split_once('-') {
            let bound = |text| usize::from_str_radix(text, 16).unwrap();
            is_inside = bound(start) < range.end && bound(end) > range.start;
        } else if is_inside && first == "Rss:" {
            let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
            resident_bytes += kib * 1024;
        }
    }
    resident_bytes
}

/// Goal: only buffers that were needed count as reserved; a sweep gives back half of those unused since the last one,
/// rounded up; lent ones stay, with their content.
#[test]
fn idle_pages_decay_by_the_low_water_mark() {
    let pool = BufferPool::new("decay", PoolMode::On, BUFFER_BYTES, 64);
    assert_eq!(
        (pool.addressed_bytes(), pool.stats().reserved_bytes),
        (0, 0)
    );
    let mut leases = lease_many(&pool, 10);
    assert_eq!(pool.addressed_bytes(), 64 * BUFFER_BYTES);
    assert_eq!(reserved_count(&pool), 10);
    let kept = leases.remove(3);
    drop(leases);
    assert_eq!(pool.trim(), 0, "all of it was in use since the last sweep");
    let left: Vec<usize> = (0..5)
        .map(|_| {
            pool.trim();
            reserved_count(&pool)
        })
        .collect();
    assert_eq!(left, [5, 3, 2, 1, 1]);
    assert!(is_filled(&kept, 3));
    assert_eq!(pool.addressed_bytes(), 64 * BUFFER_BYTES);
    let misses = pool.stats().misses;
    let again = lease_many(&pool, 2);
    assert_eq!(
        (pool.stats().misses, reserved_count(&pool)),
        (misses + 2, 3)
    );
    // The lowest closed one is opened first.
    assert_eq!([again[0].id(), again[1].id()], [0, 1]);
}

/// Goal: the kernel agrees: buffers given back have no pages, and all others keep theirs.
#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn figures_are_the_kernels() {
    // Far larger than any other mapping here, so that the kernel does not merge it with one of
    // them unseen: the range is checked, not the mapping.
    let pool = BufferPool::new("resident", PoolMode::On, BUFFER_BYTES, 512);
    let mut first = pool.lease().unwrap();
    assert_eq!(first.id(), 0);
    let start = first.as_uninit_mut().as_ptr().addr();
    drop(first);
    let range = start..start + pool.addressed_bytes();
    let leases = lease_many(&pool, 100);
    let resident = resident_bytes(range.clone());
    assert!(resident >= 100 * BUFFER_BYTES, "{resident}");
    drop(leases);
    pool.trim();
    let mut given_back = 0;
    loop {
        match pool.trim() {
            0 => break,
            bytes => given_back += bytes,
        }
    }
    assert_eq!(given_back, 100 * BUFFER_BYTES);
    assert_eq!(resident - resident_bytes(range), given_back);
    let stats = pool.stats();
    assert_eq!((stats.cached_bytes, stats.live_bytes), (0, 0));
}

/// Goal: buffers that share a page leave together, when the last of them is idle, and rounding up
/// shows as waste.
#[test]
fn small_buffers_leave_by_the_page() {
    let pool = BufferPool::new("small", PoolMode::On, 1000, 10);
    let mut leases = lease_many(&pool, 9);
    let tables_bytes = 10 * 2 + 3 * 3;
    let stats = pool.stats();
    // Three pages, of which the last holds the two buffers that are left.
    assert_eq!(stats.reserved_bytes, 3 * 4096 + tables_bytes);
    assert_eq!((stats.live_bytes, stats.cached_bytes), (9000, 1000));
    assert_eq!(stats.misses, 3);
    let pinned: Vec<Lease> = vec![leases.remove(8), leases.remove(1)];
    drop(leases);
    pool.trim();
    assert_eq!(pool.trim(), 4096, "one page is idle as a whole");
    assert_eq!(pool.trim(), 0);
    drop(pinned);
    pool.trim();
    while pool.trim() > 0 {}
    assert_eq!(pool.stats().reserved_bytes, tables_bytes);
}

/// Goal: a load that comes and goes between sweeps keeps its buffers.
#[test]
fn what_each_interval_uses_stays() {
    const ROUNDS: u64 = if cfg!(miri) { 3 } else { 20 };
    for mode in MODES {
        let pool = BufferPool::new("waves", mode, BUFFER_BYTES, 16);
        for _ in 0..ROUNDS {
            drop(lease_many(&pool, 7));
            assert_eq!(pool.trim(), 0);
        }
        let expected_misses = if mode == PoolMode::On { 7 } else { 7 * ROUNDS };
        assert_eq!(pool.stats().misses, expected_misses);
        assert_eq!(pool.stats().high_water_bytes, 7 * BUFFER_BYTES as u64);
    }
}

/// Goal: a budget is never passed; the refusal names it, harms nothing, and ends when a buffer is
/// returned.
#[test]
fn budget_refuses_harmlessly() {
    const LIMIT_BYTES: usize = 3 * BUFFER_BYTES + 1000;
    for mode in MODES {
        let pool = BufferPool::with_budget("budget", mode, BUFFER_BYTES, 64, LIMIT_BYTES);
        let mut leases = lease_many(&pool, 3);
        let before = pool.stats();
        let requested_bytes = BUFFER_BYTES;
        let limit_bytes = LIMIT_BYTES;
        let refusal = PoolError::BudgetExhausted {
            requested_bytes,
            limit_bytes,
        };
        assert_eq!(pool.lease().unwrap_err(), refusal);
        assert_eq!(pool.stats(), before);
        leases.pop();
        assert!(pool.lease().is_ok());
        let tight = BufferPool::with_budget("tight", mode, 100, 64, 100);
        assert!(matches!(
            tight.lease(),
            Err(PoolError::BudgetExhausted { .. })
        ));
        assert_eq!(tight.stats().reserved_bytes, 0);
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Lease,
    Return(prop::sample::Index),
    ReturnAll,
    Trim,
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::{Lease, Return, ReturnAll, Trim};
    prop_oneof![
        8 => Just(Lease),
        5 => any::<prop::sample::Index>().prop_map(Return),
        1 => Just(ReturnAll),
        3 => Just(Trim),
    ]
}

fn check(pool: &BufferPool, leases: &[(u8, Lease)], limit_bytes: usize) {
    for (mark, lease) in leases {
        assert!(is_filled(lease, *mark), "written by another");
        assert!(usize::from(lease.id()) < pool.count_max());
    }
    let stats = pool.stats();
    assert!(stats.identity_holds(), "{stats:?}");
    assert_eq!(stats.live_objects, leases.len() as u64);
    assert!(budgeted_bytes(&stats) <= limit_bytes as u64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    /// Goal: no buffer is lent twice at a time, none is written by another lease or taken away by
    /// a sweep, and the figures match.
    #[test]
    fn buffer_pool_matches_its_model(
        mode in prop::sample::select(MODES.to_vec()),
        buffer_bytes in 1..9000_usize,
        count_max in 0..40_u16,
        limit_bytes in prop_oneof![3 => Just(usize::MAX), 1 => 0..60_000_usize],
        operations in prop::collection::vec(operation(), 1..if cfg!(miri) { 50 } else { 120 }),
    ) {
        let pool = BufferPool::with_budget("model", mode, buffer_bytes, count_max, limit_bytes);
        let mut leases: Vec<(u8, Lease)> = Vec::new();
        for (operation, mark) in operations.into_iter().zip(1_u8..) {
            match operation {
                Operation::Lease => match pool.lease() {
                    Ok(mut lease) => {
                        fill(&mut lease, mark);
                        leases.push((mark, lease));
                    }
                    Err(PoolError::Exhausted { count_max: limit }) => {
                        prop_assert_eq!((limit, leases.len()), (count_max.into(), count_max.into()));
                    }
                    Err(refusal) => {
                        let is_expected = matches!(refusal, PoolError::BudgetExhausted { .. });
                        prop_assert!(is_expected && limit_bytes < usize::MAX, "{:?}", refusal);
                    }
                },
                Operation::Return(index) if !leases.is_empty() => {
                    leases.swap_remove(index.index(leases.len()));
                }
                Operation::ReturnAll => leases.clear(),
                Operation::Trim => {
                    let before_bytes = pool.stats().reserved_bytes;
                    let bytes = pool.trim() as u64;
                    prop_assert_eq!(before_bytes - pool.stats().reserved_bytes, bytes);
                }
                Operation::Return(_) => {}
            }
            check(&pool, &leases, limit_bytes);
        }
        leases.clear();
        pool.trim();
        while pool.trim() > 0 {}
        let stats = pool.stats();
        if !is_checked(mode) {
            prop_assert_eq!((stats.cached_bytes, stats.reserved_bytes), (0, stats.waste_bytes));
        }
    }
}

//! Operations on the pools that one thread alone uses.
use super::input::Input;
use super::ledger::Ledger;
use super::may_fail;
use millpond_mempool::{Arena, BufferPool, Handle, Lease, PoolMode, Slab};
use std::convert::Infallible;

/// Handles find their own object, and nothing once it is gone.
pub(super) fn slab(input: &mut Input, mode: PoolMode) {
    let mut slab = Slab::new("sequence", mode);
    let mut held: Vec<(Handle<Box<u64>>, u64)> = Vec::new();
    let mut stale: Vec<Handle<Box<u64>>> = Vec::new();
    let mut number = 0;
    while !input.is_empty() {
        match input.byte() % 8 {
            0..=3 => {
                number += 1;
                match slab.insert(Box::new(number)) {
                    Ok(handle) => held.push((handle, number)),
                    Err(error) => assert!(may_fail(mode), "{error}"),
                }
            }
            4 | 5 if !held.is_empty() => {
                let index = input.index(held.len());
                let (handle, number) = held.swap_remove(index);
                assert_eq!(slab.remove(handle).as_deref(), Some(&number));
                stale.push(handle);
            }
            6 if !held.is_empty() => {
                let index = input.index(held.len());
                let (handle, number) = &mut held[index];
                **slab.get_mut(*handle).unwrap() += 1;
                *number += 1;
                assert_eq!(slab.get(*handle).map(|object| **object), Some(*number));
            }
            7 if !stale.is_empty() => {
                let handle = stale[input.index(stale.len())];
                assert!(slab.get(handle).is_none() && slab.remove(handle).is_none());
            }
            _ => {
                let bits = (input.word() as u64) << 32 | input.word() as u64;
                let forged = Handle::<Box<u64>>::from_bits(bits);
                let is_held = held.iter().any(|(handle, _)| *handle == forged);
                assert_eq!(slab.get(forged).is_some(), is_held);
            }
        }
        let stats = slab.stats();
        assert!(stats.identity_holds(), "{stats:?}");
        assert_eq!(
            (slab.len(), stats.live_objects),
            (held.len(), held.len() as u64)
        );
    }
    held.sort_by_key(|(handle, _)| handle.index());
    assert!(
        slab.iter()
            .map(|(handle, object)| (handle, **object))
            .eq(held)
    );
}

/// Slices of one request are apart and keep their bytes until the reset.
pub(super) fn arena(input: &mut Input, mode: PoolMode) {
    let mut arena = Arena::new("sequence", mode);
    while !input.is_empty() {
        one_request(input, &arena, may_fail(mode));
        arena.reset();
        let stats = arena.stats();
        assert!(stats.identity_holds() && stats.live_bytes == 0, "{stats:?}");
    }
}

fn one_request(input: &mut Input, arena: &Arena, may_fail: bool) {
    let mut ledger = Ledger::default();
    let mut slices: Vec<(u8, &mut [u8])> = Vec::new();
    let mut live_bytes = 0;
    for mark in 1_u8.. {
        let choice = input.byte() % 16;
        if choice == 0 || mark == u8::MAX {
            break;
        }
        let len = if choice < 12 {
            usize::from(input.byte())
        } else {
            input.word() % 6_000
        };
        let is_copy = choice.is_multiple_of(2);
        let lent = if is_copy {
            arena.copy_in(&vec![mark; len])
        } else {
            arena.alloc_slice(len)
        };
        let slice = match lent {
            Ok(slice) => slice,
            Err(error) => {
                assert!(may_fail, "{error}");
                continue;
            }
        };
        assert!(
            slice
                .iter()
                .all(|&byte| byte == if is_copy { mark } else { 0 })
        );
        slice.fill(mark);
        assert_eq!(slice.len(), len);
        ledger.lend(slice.as_ptr(), len);
        slices.push((mark, slice));
        live_bytes += len as u64;
        let stats = arena.stats();
        assert!(stats.identity_holds(), "{stats:?}");
        assert_eq!(stats.live_bytes, live_bytes);
    }
    for (mark, slice) in slices {
        assert!(slice.iter().all(|byte| *byte == mark));
    }
}

/// No buffer is lent twice at a time, and a lease keeps what was filled into it.
pub(super) fn buffers(input: &mut Input, mode: PoolMode) {
    let (buffer_bytes, count_max) = (input.word() % 5_000, u16::from(input.byte() % 12));
    let pool = BufferPool::new("sequence", mode, buffer_bytes, count_max);
    let mut ledger = Ledger::default();
    let mut held: Vec<(u8, Lease)> = Vec::new();
    let mut mark = 0_u8;
    while !input.is_empty() {
        if input.byte().is_multiple_of(2) || held.is_empty() {
            match pool.lease() {
                Ok(mut lease) => {
                    mark = mark.wrapping_add(1);
                    let bytes = vec![mark; lease.capacity()];
                    lease
                        .fill_from(|room| Ok::<_, Infallible>(room.write_copy_of_slice(&bytes)))
                        .unwrap();
                    ledger.lend(lease.as_ptr(), lease.capacity());
                    held.push((mark, lease));
                }
                Err(error) => {
                    assert!(
                        may_fail(mode) || held.len() == usize::from(count_max),
                        "{error}"
                    );
                }
            }
        } else {
            let index = input.index(held.len());
            let (mark, lease) = held.swap_remove(index);
            assert!(lease.iter().all(|byte| *byte == mark));
            ledger.take_back(lease.as_ptr(), lease.capacity());
        }
        let stats = pool.stats();
        assert!(stats.identity_holds(), "{stats:?}");
        assert_eq!(stats.live_objects, held.len() as u64);
    }
    drop(pool);
    for (mark, lease) in held {
        assert!(lease.iter().all(|byte| *byte == mark));
    }
}

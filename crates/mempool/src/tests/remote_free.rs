use super::*;
use crate::outbox::{self, Outbox};
use std::mem::offset_of;
use std::sync::atomic::AtomicU32;

/// A pool of 16-byte blocks that only counts its frees.
#[repr(C)]
struct Home {
    remote: RemoteFrees,
    frees: AtomicU32,
    blocks: [[u64; 2]; 200],
}

impl Home {
    fn new() -> Box<Self> {
        Box::new(Self {
            remote: RemoteFrees::new(note_burial, u16::MAX),
            frees: AtomicU32::new(0),
            blocks: [[0; 2]; 200],
        })
    }
}

unsafe fn note_burial(remote: NonNull<RemoteFrees>) {
    // SAFETY: every `remote` of these tests is the field of a living `Home`, reached through a
    // pointer to all of it.
    unsafe {
        let home = remote.byte_sub(offset_of!(Home, remote)).cast::<Home>();
        (*home.as_ptr()).frees.fetch_add(1, Ordering::Relaxed);
    }
}

/// The home behind a raw pointer, as the code under test has it.
#[derive(Clone, Copy)]
struct HomePointer(NonNull<Home>);

impl HomePointer {
    fn remote(self) -> NonNull<RemoteFrees> {
        // SAFETY: the home lives; this only computes an address.
        unsafe { NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).remote) }
    }

    fn block(self, index: usize) -> NonNull<u8> {
        // SAFETY: as above; the index is checked.
        unsafe { NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).blocks[index]).cast() }
    }

    fn frees(self) -> u32 {
        // SAFETY: the home lives.
        unsafe { (*self.0.as_ptr()).frees.load(Ordering::Relaxed) }
    }

    fn leave(self, away_count: usize) {
        // SAFETY: the tests call this once for a home, after `close`.
        unsafe {
            assert_eq!((*self.0.as_ptr()).remote.close().count(), 0);
            RemoteFrees::leave(self.remote(), away_count);
        }
    }

    fn note_direct(self) {
        // SAFETY: the home lives, and its counter says when it would not.
        unsafe { RemoteFrees::note_direct(self.remote(), 5) };
    }
}

fn with_home(test: impl FnOnce(HomePointer)) {
    let home = NonNull::from(Box::leak(Home::new()));
    test(HomePointer(home));
    // SAFETY: leaked above; the test is done with it.
    drop(unsafe { Box::from_raw(home.as_ptr()) });
}

/// Goal: the thread that comes last, and only that one, frees the pool, whether the owner leaves
/// before the blocks or after them.
#[test]
fn exactly_the_last_one_buries() {
    with_home(|home| {
        // SAFETY: the home lives until the end of the test.
        let remote = unsafe { home.remote().as_ref() };
        home.note_direct();
        home.note_direct();
        assert_eq!(remote.take_direct(), (2, 10));
        assert_eq!(remote.take_direct(), (0, 0));
        home.note_direct();
        home.leave(3);
        home.note_direct();
        assert_eq!(home.frees(), 0);
        home.note_direct();
        assert_eq!(home.frees(), 1);
    });
}

/// Goal: an owner that comes last, after all blocks or without any, frees the pool.
#[test]
fn owner_can_be_the_last() {
    for away_count in 0..3 {
        with_home(|home| {
            (0..away_count).for_each(|_| home.note_direct());
            home.leave(away_count);
            assert_eq!(home.frees(), 1);
        });
    }
}

/// Goal: a batch that comes after the owner has left counts for as many as it has.
#[test]
fn late_batches_count_their_blocks() {
    with_home(|home| {
        let mut outbox = Outbox::new();
        home.leave(101);
        for index in 0..100 {
            // SAFETY: the blocks are 16 bytes and not in use.
            let batch = unsafe { outbox.add(home.remote(), home.block(index), 16, 0) };
            assert_eq!(batch.is_some(), index == 63);
            batch.into_iter().for_each(outbox::AddressedBatch::send);
        }
        drop(outbox);
        assert_eq!(home.frees(), 0);
        // SAFETY: as above.
        unsafe { RemoteFrees::push(home.remote(), Batch::of_one(home.block(100), 0)) };
        assert_eq!(home.frees(), 1);
    });
}

/// Goal: an outbox keeps the batches of its homes apart, however many there are, and sends
/// them all in the end.
#[test]
fn batches_go_to_their_own_home() {
    const HOMES: usize = 7;
    let homes: Vec<HomePointer> = (0..HOMES)
        .map(|_| HomePointer(NonNull::from(Box::leak(Home::new()))))
        .collect();
    let mut outbox = Outbox::new();
    for round in 0..150 {
        // Few homes, then many, in an order of no pattern the outbox could live on.
        let count = if round < 75 { 3 } else { HOMES };
        for step in 0..count {
            let home = homes[(step * 5 + round) % count];
            // SAFETY: the blocks are 16 bytes and not in use.
            let batch = unsafe { outbox.add(home.remote(), home.block(round), 16, round as u16) };
            batch.into_iter().for_each(outbox::AddressedBatch::send);
        }
    }
    drop(outbox);
    for (index, home) in homes.into_iter().enumerate() {
        // SAFETY: leaked above; the outbox is gone, and there were no other users.
        let blocks = unsafe { home.remote().as_ref() }.take();
        let mut tags: Vec<u16> = blocks
            .inspect(|&(block, tag)| assert_eq!(block, home.block(usize::from(tag))))
            .map(|(_, tag)| tag)
            .collect();
        tags.sort_unstable();
        let first = if index < 3 { 0 } else { 75 };
        assert!(tags.into_iter().eq(first..150), "home {index}");
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(home.0.as_ptr()) });
    }
}

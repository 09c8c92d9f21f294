//! Remote frees and the ends of pools and threads, in every order of their atomic operations.
//!
//! `cargo xtask loom` runs these on the code of `remote_free`, `outbox` and `batch`. A model holds when no order breaks
//! an assertion and no two accesses are left without an order: each block has a guard that its user, its taker and the
//! thread that frees the pool touch, and the last of them also claims the atomics for itself, as freeing their memory
//! would.
//!
//! A model that cannot fail proves nothing, so each lists the faults, injected by hand, that it caught. Unit tests
//! cover the arithmetic; here every further operation multiplies the number of orders.
use super::*;
use crate::batch::GrowingBatch;
use crate::outbox::{flush_remote_frees, free_away};
use loom::cell::UnsafeCell;
use loom::thread;
use std::cell::Cell;
use std::mem::offset_of;
use std::rc::Rc;

const BLOCKS: usize = 4;
const BLOCK_BYTES: usize = 32;

/// A pool that checks which thread may access which part. loom runs its threads one at a time on a single thread of the
/// system, so parts that are not under test may be plain numbers.
#[repr(C)]
struct Home {
    remote: RemoteFrees,
    memory: std::cell::UnsafeCell<[[u64; BLOCK_BYTES / 8]; BLOCKS]>,
    guards: [UnsafeCell<()>; BLOCKS],
    taken: [Cell<bool>; BLOCKS],
    books: UnsafeCell<()>,
    frees: Cell<u32>,
}

/// A home as each thread of a model has it. Its memory goes with the last of these.
#[derive(Clone)]
pub(crate) struct Handle(Rc<Home>);

// SAFETY: see `Home`: all threads of a model are coroutines of one.
unsafe impl Send for Handle {}

impl Handle {
    pub(crate) fn new() -> Self {
        Self(Rc::new(Home {
            remote: RemoteFrees::new(free_pool, u16::MAX),
            memory: std::cell::UnsafeCell::new([[0; BLOCK_BYTES / 8]; BLOCKS]),
            guards: std::array::from_fn(|_| UnsafeCell::new(())),
            taken: Default::default(),
            books: UnsafeCell::new(()),
            frees: Cell::new(0),
        }))
    }

    fn remote(&self) -> NonNull<RemoteFrees> {
        let home = Rc::as_ptr(&self.0).cast_mut();
        // SAFETY: the home lives; this only computes an address.
        unsafe { NonNull::new_unchecked(&raw mut (*home).remote) }
    }

    fn block(&self, index: usize) -> NonNull<u8> {
        let blocks = self.0.memory.get().cast::<[u64; BLOCK_BYTES / 8]>();
        assert!(index < BLOCKS);
        // SAFETY: inside the home's memory.
        unsafe { NonNull::new_unchecked(blocks.add(index)).cast() }
    }

    /// The last thing the user of a block does with it.
    fn use_block(&self, index: usize) {
        self.0.guards[index].with_mut(|_| ());
    }

    /// The owner has these blocks again, each once, and writes to them.
    fn absorb(&self, returned: ReturnedBlocks) -> usize {
        let mut count = 0;
        for (block, tag) in returned {
            let index = usize::from(tag);
            assert_eq!(block, self.block(index));
            assert!(!self.0.taken[index].replace(true), "a block came twice");
            self.use_block(index);
            // SAFETY: the block is the owner's now.
            unsafe { block.write_bytes(0xA5, BLOCK_BYTES) };
            count += 1;
        }
        count
    }

    /// Pushes one batch of these blocks after their users' last accesses.
    pub(crate) fn push(&self, indexes: &[usize]) {
        let mut batch = GrowingBatch::new();
        for &index in indexes {
            self.use_block(index);
            // SAFETY: the block is 32 bytes and not used any more.
            let _ = unsafe { batch.add(self.block(index), BLOCK_BYTES, index as u16) };
        }
        // SAFETY: the blocks are this home's.
        unsafe { RemoteFrees::push(self.remote(), batch.take().unwrap()) };
    }

    /// Frees one block through the calling thread's outbox.
    fn free_away(&self, index: usize) {
        self.use_block(index);
        // SAFETY: the block is 32 bytes, this home's, and not used any more.
        unsafe { free_away(self.remote(), self.block(index), BLOCK_BYTES, index as u16) };
    }

    /// An owner's regular work. It writes to owner-only state, so that two owners at a time would be detected.
    pub(crate) fn take_all(&self) {
        self.0.books.with_mut(|_| ());
        self.absorb(self.0.remote.take());
    }

    /// How many blocks have been taken.
    pub(crate) fn taken_count(&self) -> usize {
        self.0.taken.iter().filter(|taken| taken.get()).count()
    }

    /// The work of an owner that leaves while blocks may be lent.
    fn close_and_leave(&self, live_count: usize) {
        let home_count = self.absorb(self.0.remote.close());
        // SAFETY: called once, by the owner.
        unsafe { RemoteFrees::leave(self.remote(), live_count - home_count) };
    }

    /// Waits for the free, which no thread announces. One that never comes exceeds the number
    /// of steps loom grants a model.
    fn wait_for_burial(&self) {
        while self.0.frees.get() == 0 {
            thread::yield_now();
        }
    }
}

/// The callee must be alone with the home, so it may have all of it for itself.
unsafe fn free_pool(remote: NonNull<RemoteFrees>) {
    // SAFETY: every `remote` of these models is the field of a living home, by a pointer to all of
    // it, and loom's threads take turns.
    unsafe {
        let home = remote.byte_sub(offset_of!(Home, remote)).cast::<Home>();
        let frees = &(*home.as_ptr()).frees;
        frees.set(frees.get() + 1);
        assert_eq!(frees.get(), 1, "a pool is freed once");
        for guard in &(*home.as_ptr()).guards {
            guard.with_mut(|_| ());
        }
        let remote = remote.as_ptr();
        (*remote).newest.with_mut(|_| ());
        (*remote).direct_bytes.with_mut(|_| ());
        (*remote).outstanding.with_mut(|_| ());
    }
}

/// Goal: every block pushed by two threads is drained once, after its user's last access, however
/// pushes, drains and the last drain interleave.
///
/// Caught: `push` or `take` with relaxed order; `push` by a plain store, and `take` by a load and a
/// store, instead of the exchange.
#[test]
fn freers_against_drain() {
    loom::model(|| {
        let home = Handle::new();
        let freers = [[0, 1], [2, 3]].map(|mine| {
            let home = home.clone();
            thread::spawn(move || {
                home.push(&mine[..1]);
                home.push(&mine[1..]);
            })
        });
        let early = home.absorb(home.0.remote.take());
        freers.into_iter().for_each(|freer| freer.join().unwrap());
        let late = home.absorb(home.0.remote.take());
        assert_eq!(early + late, BLOCKS);
        assert_eq!(home.absorb(home.0.remote.close()), 0);
    });
}

/// Goal: when the owner leaves while two threads send batches, exactly one of the three frees the pool, after all
/// accesses, and no block is taken twice.
///
/// Caught: `close`, `retire` or `leave` with relaxed order, the last two also with only one of its halves; `retire` of
/// one block for a whole batch; `push` onto a closed list; a `leave` or `retire` that does not check whether it is the
/// last.
#[test]
fn leave_against_last_batches() {
    loom::model(|| {
        let home = Handle::new();
        let freers = [[0, 1], [2, 3]].map(|mine| {
            let home = home.clone();
            thread::spawn(move || home.push(&mine))
        });
        let early = home.absorb(home.0.remote.take());
        home.close_and_leave(BLOCKS - early);
        freers.into_iter().for_each(|freer| freer.join().unwrap());
        assert_eq!(home.0.frees.get(), 1);
    });
}

/// Goal: the same with blocks that only leave their figures, while the owner reads them and leaves;
/// the bytes it reads are at least those of the blocks it counts.
///
/// Caught: `retire` or `leave` with either half of its order; bytes noted after the count;
/// `take_direct` that stores what it has computed. Not caught: its load with relaxed order, because
/// loom's exchanges always see the newest value.
#[test]
fn leave_against_direct_blocks() {
    loom::model(|| {
        let home = Handle::new();
        let freers = [0, 1].map(|index| {
            let home = home.clone();
            thread::spawn(move || {
                home.use_block(index);
                // SAFETY: one of the two blocks that `leave` gets the number of.
                unsafe { RemoteFrees::note_direct(home.remote(), 10) };
            })
        });
        let (count, bytes) = home.0.remote.take_direct();
        assert!(bytes >= 10 * count && bytes <= 20);
        assert_eq!(home.absorb(home.0.remote.close()), 0);
        // SAFETY: called once, by the owner.
        unsafe { RemoteFrees::leave(home.remote(), 2 - count) };
        freers.into_iter().for_each(|freer| freer.join().unwrap());
        assert_eq!(home.0.frees.get(), 1);
    });
}

/// Goal: blocks gathered by a thread that ends are returned automatically, before or after the owner has left; also the
/// block that another thread-local value drops after the outbox is gone.
///
/// Caught: an outbox without its destructor; a `free_away` that loses the block when there is no
/// outbox.
#[test]
fn thread_exit_sends_what_is_left() {
    /// Frees its block when its thread ends.
    struct Late(Cell<Option<Handle>>);
    impl Drop for Late {
        fn drop(&mut self) {
            self.0.take().expect("set by the model").free_away(2);
        }
    }
    loom::thread_local! { static LATE: Late = Late(Cell::new(None)); }
    loom::model(|| {
        let home = Handle::new();
        let visitor = home.clone();
        let freer = thread::spawn(move || {
            LATE.with(|late| late.0.set(Some(visitor.clone())));
            visitor.free_away(0);
            visitor.free_away(1);
        });
        let early = home.absorb(home.0.remote.take());
        home.close_and_leave(3 - early);
        freer.join().unwrap();
        home.wait_for_burial();
    });
}

/// Goal: a thread that flushes sends all it has, to each home its own.
///
/// Caught: `flush_remote_frees` that sends the first batch only.
#[test]
fn flush_reaches_every_home() {
    loom::model(|| {
        let homes = [Handle::new(), Handle::new()];
        let freer = thread::spawn({
            let homes = homes.clone();
            move || {
                for home in &homes {
                    home.free_away(0);
                }
                flush_remote_frees();
            }
        });
        for home in &homes {
            home.close_and_leave(1);
        }
        freer.join().unwrap();
        assert!(homes.iter().all(|home| home.0.frees.get() == 1));
    });
}

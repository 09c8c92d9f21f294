//! All checked memories of the process, so that a pointer given to the wrong one finds its home.
//!
//! Lock order: the directory, then one memory's books; never the other way round.
#![allow(unsafe_code)]
use super::books::Books;
use crate::chunk::Chunk;
use crate::violation::Origin;
use crate::{Checks, PoolError};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One checked memory's books, at an address of their own that does not change.
pub(super) struct Entry {
    name: &'static str,
    books: Mutex<Books>,
    /// The neighbours; under the directory's lock.
    next: AtomicPtr<Entry>,
    previous: AtomicPtr<Entry>,
    /// What this lies in.
    memory: Chunk,
}

const _: () = assert!(size_of::<Entry>() <= crate::chunk::CHUNK_BYTES);

/// The first of all entries. Under a lock because entries come and go with their pools.
static FIRST: Mutex<First> = Mutex::new(First(ptr::null_mut()));

struct First(*mut Entry);

// SAFETY: an entry is made of parts that any thread may use, and reached under the lock only.
unsafe impl Send for First {}

impl Entry {
    /// The books, alone with them.
    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        // A panic under the lock would be a fault of these files; the figures would show it.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry in `place`, made now unless another thread was quicker.
pub(super) fn enter<'a>(
    place: &'a AtomicPtr<Entry>,
    name: &'static str,
    checks: Checks,
) -> Result<&'a Entry, PoolError> {
    let mut first = lock();
    let known = place.load(Ordering::Acquire);
    // SAFETY: whoever holds the place keeps what it points to until `leave`.
    if let Some(entry) = unsafe { known.as_ref() } {
        return Ok(entry);
    }
    let memory = Chunk::map()?;
    let entry = memory.start().as_ptr().cast::<Entry>();
    // SAFETY: a fresh chunk is large and aligned enough; entries in the list are alive, since
    // `leave` takes them off under the same lock.
    unsafe {
        entry.write(Entry {
            name,
            books: Mutex::new(Books::new(name, checks)),
            next: AtomicPtr::new(first.0),
            previous: AtomicPtr::new(ptr::null_mut()),
            memory,
        });
        if let Some(next) = first.0.as_ref() {
            next.previous.store(entry, Ordering::Relaxed);
        }
        first.0 = entry;
        place.store(entry, Ordering::Release);
        Ok(&*entry)
    }
}

/// Takes an entry off the list and frees it.
///
/// # Safety
/// `enter` made it, and nobody uses it any more.
pub(super) unsafe fn leave(entry: NonNull<Entry>) {
    let mut first = lock();
    // SAFETY: the entry and its neighbours are alive, as in `enter`.
    unsafe {
        let this = entry.as_ref();
        let next = this.next.load(Ordering::Relaxed);
        let previous = this.previous.load(Ordering::Relaxed);
        if let Some(next) = next.as_ref() {
            next.previous.store(previous, Ordering::Relaxed);
        }
        match previous.as_ref() {
            Some(previous) => previous.next.store(next, Ordering::Relaxed),
            None => first.0 = next,
        }
    }
    drop(first);
    // SAFETY: nobody can find it any more. Its memory is unmapped after its other parts are
    // dropped, which lie in it.
    let Entry { books, memory, .. } = unsafe { entry.read() };
    drop(books);
    drop(memory);
}

/// Which checked memory lent the block that `address` lies in. O(all blocks).
pub(super) fn origin_of(address: usize) -> Origin {
    let first = lock();
    let mut next = first.0;
    // SAFETY: as in `enter`.
    while let Some(entry) = unsafe { next.as_ref() } {
        if entry.books().origin_of(address) != Origin::Unknown {
            return Origin::OtherPool { pool: entry.name };
        }
        next = entry.next.load(Ordering::Relaxed);
    }
    Origin::Unknown
}

fn lock() -> MutexGuard<'static, First> {
    // Nothing under the lock panics half-way through a change.
    FIRST.lock().unwrap_or_else(PoisonError::into_inner)
}

//! malloc under checks: every block in a [`CheckedMemory`], and no heap for any thread.
//!
//! On the path: nothing of the fast path. A thread without a heap takes the slow ones, and those
//! look here first. What was lent before the checks began goes back where it came from.
//! One more lock around all of it: it is the one that can be held across a fork.
//! Absent on purpose: switching off again. Both kinds of blocks would be about for good.
#![allow(unsafe_code)]
use crate::Checks;
use crate::checked_memory::CheckedMemory;
use crate::chunk_store;
use crate::violation::{Violation, abort_with};
use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

static MEMORY: OnceLock<CheckedMemory> = OnceLock::new();
static GATE: Mutex<()> = Mutex::new(());

/// The checked memory, with the gate closed behind it.
struct Inside {
    memory: &'static CheckedMemory,
    _gate: MutexGuard<'static, ()>,
}

fn enter() -> Option<Inside> {
    let memory = MEMORY.get()?;
    Some(Inside {
        memory,
        _gate: close_gate(),
    })
}

fn close_gate() -> MutexGuard<'static, ()> {
    GATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the checks are on.
pub(super) fn is_on() -> bool {
    MEMORY.get().is_some()
}

/// Puts the checks on for good; `false` when they are on already.
pub(super) fn switch_on(checks: Checks) -> bool {
    MEMORY
        .set(CheckedMemory::new("malloc", checks, end))
        .is_ok()
}

/// A violation ends the process. A handler of the program's for that end would find the gate closed
/// and wait forever, so it is not asked.
fn end(violation: &Violation) -> ! {
    // SAFETY: the default action is no function.
    unsafe { libc::signal(libc::SIGABRT, libc::SIG_DFL) };
    abort_with(violation)
}

/// A block, or null; none when the checks are off.
pub(super) fn allocate(size_bytes: usize, align_bytes: usize) -> Option<*mut u8> {
    let inside = enter()?;
    if size_bytes > isize::MAX as usize {
        return Some(ptr::null_mut());
    }
    let block = inside.memory.allocate(size_bytes.max(1), align_bytes);
    Some(block.map_or(ptr::null_mut(), NonNull::as_ptr))
}

/// Takes a block back; `false` when the checks are off, or it was lent before they were on.
///
/// # Safety
/// As for malloc's free, as far as the checks cannot find out.
pub(super) unsafe fn free(block: NonNull<u8>) -> bool {
    let Some(inside) = enter() else {
        return false;
    };
    if inside.memory.size_of(block).is_none() && is_older(block) {
        return false;
    }
    // SAFETY: the caller's promise.
    unsafe { inside.memory.free(block, None) };
    true
}

/// Bytes of a checked block; none when the checks are off, or it was lent before they were on.
pub(super) fn size_of(block: NonNull<u8>) -> Option<usize> {
    enter()?.memory.size_of(block)
}

/// Whether an address the checks do not know can be that of a block lent before them.
fn is_older(block: NonNull<u8>) -> bool {
    let address = block.addr().get();
    !super::large::is_mapped(address) && chunk_store::is_ours(address)
}

/// Looks at everything now.
pub(super) fn verify() {
    if let Some(inside) = enter() {
        inside.memory.verify();
    }
}

/// Looks at everything and gives idle memory back; whether the checks are on.
pub(super) fn trim() -> bool {
    enter().map(|inside| inside.memory.trim()).is_some()
}

/// The gate across a fork, as the lock of `chunk_store`.
struct ForkGuard(UnsafeCell<Option<MutexGuard<'static, ()>>>);

// SAFETY: written only by the thread that holds the gate.
unsafe impl Sync for ForkGuard {}

static FORK_GUARD: ForkGuard = ForkGuard(UnsafeCell::new(None));

/// Call before a fork, on the thread that forks, and before any other lock of malloc's is taken.
pub(super) fn hold_for_fork() {
    let gate = close_gate();
    // SAFETY: this thread holds the gate, so no other is here or in `release_after_fork`.
    unsafe { *FORK_GUARD.0.get() = Some(gate) };
}

/// Call after a fork, in the parent and in the child, on the thread that forked.
pub(super) fn release_after_fork() {
    // SAFETY: as above: `hold_for_fork` on this thread came before.
    drop(unsafe { (*FORK_GUARD.0.get()).take() });
}

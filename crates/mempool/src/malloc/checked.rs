//! malloc under checks: every block in a [`CheckedMemory`], and no heap for any thread.
//!
//! Not on the fast path. A thread without a heap takes the slow paths, and those call this first. Blocks lent before
//! the checks began return to their origin. One more lock around all of it: it is the one that can be held across a
//! fork. Both kinds of blocks may exist until the end.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::io::Write as _;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::{process, ptr};

use crate::checked_memory::CheckedMemory;
use crate::violation::{Violation, abort_with};
use crate::{Checks, chunk_store};

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

/// Whether an address unknown to the checks can be that of a block lent before them.
fn is_older(block: NonNull<u8>) -> bool {
    let address = block.addr().get();
    !super::large::is_mapped(address) && chunk_store::is_ours(address)
}

/// Checks everything now.
pub(super) fn verify() {
    if let Some(inside) = enter() {
        inside.memory.verify();
    }
}

/// Checks everything and gives idle memory back; returns whether the checks are on.
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

// The end of a process whose heap is broken: writes one line, then aborts.

/// A pointer that malloc never returned, or that was freed before.
#[cold]
pub(super) fn foreign_pointer(address: usize) -> ! {
    let mut digits = [0; 16];
    let text = hexadecimal(address, &mut digits);
    let parts = [
        b"millpond malloc: free or realloc of 0x".as_slice(),
        text,
        b", which malloc did not return, or which is free already; MEMPOOL_CHECKS=1 finds out more\n",
    ];
    verdict_end(&parts)
}

/// Writes the parts as one line and aborts.
#[cold]
pub(super) fn verdict_end(parts: &[&[u8]; 3]) -> ! {
    for part in parts {
        // SAFETY: the pointer and length are one slice's. A closed standard error is no reason not
        // to abort.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
    process::abort()
}

fn hexadecimal(number: usize, digits: &mut [u8; 16]) -> &[u8] {
    let mut cursor = std::io::Cursor::new(digits.as_mut_slice());
    // A number of 64 bits has at most 16 digits.
    let _ = write!(cursor, "{number:x}");
    let len = cursor.position() as usize;
    &digits[..len]
}

// The calling thread's `errno`, which free must not change.

/// Puts `errno` back, when dropped, to what it was when this was made.
pub(super) struct KeptErrno(c_int);

impl KeptErrno {
    pub(super) fn new() -> Self {
        // SAFETY: the C library returns a valid pointer to this thread's number.
        Self(unsafe { libc::__errno_location().read() })
    }
}

impl Drop for KeptErrno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::__errno_location().write(self.0) }
    }
}

#[cfg(test)]
#[path = "tests/verdict.rs"]
mod verdict_tests;

#[cfg(test)]
#[path = "tests/errno.rs"]
mod errno_tests;

//! Notices the end of a thread, and holds the locks across a fork.
//!
//! On the path: a thread that gets a heap arms the key here; when it ends, the C library calls the
//! key's destructor, and the heap goes to the orphanage.
//! A thread-specific key and not a value dropped by the language: those are run through calls that
//! allocate, and in a shared object they would keep it from being a malloc. The key is set again the
//! first time round, so that others' destructors find the heap still there.
//! Absent on purpose: the main thread's end. The process ends with it, or goes on without its heap.
#![allow(unsafe_code)]
use super::thread_slot::{self, Stage};
use super::{give_up_heap, hold_for_fork, release_after_fork};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;

/// No key yet, or being made.
const NONE: u32 = u32::MAX;
const MAKING: u32 = u32::MAX - 1;
/// The system has no key to spare: heaps of threads that end are lost to the process.
const REFUSED: u32 = u32::MAX - 2;

static KEY: AtomicU32 = AtomicU32::new(NONE);
/// The thread that makes the key: its system calls may come back here before it is made.
static MAKER: AtomicUsize = AtomicUsize::new(0);
/// How often to let others go on while one of them makes the key. Bounded, because that one may be
/// missing: in the child of a fork.
const YIELDS_MAX: usize = 10_000;

/// Values of the key: how often its destructor has been called for this thread.
const FIRST_TIME: *const c_void = ptr::without_provenance(1);
const SECOND_TIME: *const c_void = ptr::without_provenance(2);

/// Makes the key and registers the fork handlers, once. May allocate, so the caller already has a
/// heap, or is the only thread.
pub fn prepare() {
    if KEY.load(Ordering::Acquire) != NONE
        || KEY
            .compare_exchange(NONE, MAKING, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
    {
        return;
    }
    MAKER.store(this_thread(), Ordering::Relaxed);
    let mut key = 0;
    // SAFETY: `key` may be written, and the destructor is a function of this object.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(at_thread_end)) };
    KEY.store(if made == 0 { key } else { REFUSED }, Ordering::Release);
    if !thread_slot::heap().is_null() {
        // The call above asked for memory, and there was no key to arm yet.
        set(FIRST_TIME);
    }
    // Miri knows no fork.
    #[cfg(not(miri))]
    // SAFETY: functions of this object. Refused only without memory; forks of a process with threads
    // are then as unsafe as they are without an allocator's help.
    let _ = unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
}

/// Asks for `at_thread_end` on the calling thread. May allocate: the caller has set the slot.
pub(super) fn arm() {
    prepare();
    set(FIRST_TIME);
}

fn set(value: *const c_void) {
    let mut key = KEY.load(Ordering::Acquire);
    let mut yields_left = YIELDS_MAX;
    while key == MAKING && MAKER.load(Ordering::Relaxed) != this_thread() && yields_left > 0 {
        thread::yield_now();
        yields_left -= 1;
        key = KEY.load(Ordering::Acquire);
    }
    if key < REFUSED {
        // SAFETY: a key that was created and is never deleted. Refused only without memory: the
        // heap is then lost to the process when the thread ends.
        let _ = unsafe { libc::pthread_setspecific(key, value) };
    }
}

fn this_thread() -> usize {
    // SAFETY: no condition. Never 0 on Linux, where it is an address.
    unsafe { libc::pthread_self() as usize }
}

extern "C" fn at_thread_end(value: *mut c_void) {
    if value.cast_const() == FIRST_TIME {
        set(SECOND_TIME);
        return;
    }
    thread_slot::set_stage(Stage::Ended);
    give_up_heap();
}

#[cfg_attr(miri, allow(dead_code))]
extern "C" fn before_fork() {
    hold_for_fork();
}

#[cfg_attr(miri, allow(dead_code))]
extern "C" fn after_fork() {
    release_after_fork();
}

//! A thread that calls `malloc_trim(0)` at an interval, as a shared object to preload: what many services do by
//! hand to get memory back from the C library's malloc.
//!
//! `MILLPOND_TRIM_INTERVAL_MS=N` says the interval; without it, or with 0, nothing is started. The program's malloc
//! stays what it is. A child of `fork` that continues with the same program, as a worker of a server does, has a thread
//! of its own; one that executes another program loads the object anew.
//!
//! Only with the GNU C library, whose function it is: in a program with another malloc it trims an unused heap. Built
//! twice, as `preload/plant`: with `panic = "abort"` it is `no_std`. Nothing here allocates.
#![cfg_attr(all(panic = "abort", not(test)), no_std)]
#![allow(
    unsafe_code,
    reason = "threads and signals of a program that is not ours are the C library's business"
)]

#[path = "../../plant/src/environment.rs"]
mod environment;
#[path = "../../trace/src/runtime.rs"]
mod runtime;

use core::ffi::{CStr, c_int, c_ulong, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use environment::number;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// As glibc has it on 64 bit.
#[repr(C, align(8))]
struct ThreadAttributes([u8; 64]);

/// As glibc has it: room for 1,024 signals.
#[repr(C)]
#[derive(Clone, Copy)]
struct SignalSet([c_ulong; 16]);

type Routine = extern "C" fn(*mut c_void) -> *mut c_void;

#[link(name = "c")]
unsafe extern "C" {
    fn malloc_trim(pad_bytes: usize) -> c_int;
    fn nanosleep(length: *const Timespec, left: *mut Timespec) -> c_int;
    fn pthread_attr_init(attributes: *mut ThreadAttributes) -> c_int;
    fn pthread_attr_setdetachstate(attributes: *mut ThreadAttributes, state: c_int) -> c_int;
    fn pthread_attr_setstacksize(attributes: *mut ThreadAttributes, size_bytes: usize) -> c_int;
    fn pthread_attr_destroy(attributes: *mut ThreadAttributes) -> c_int;
    fn pthread_create(
        thread: *mut c_ulong,
        attributes: *const ThreadAttributes,
        routine: Routine,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
    fn pthread_sigmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn prctl(option: c_int, ...) -> c_int;
}

const PTHREAD_CREATE_DETACHED: c_int = 1;
const SIG_SETMASK: c_int = 2;
const PR_SET_NAME: c_int = 15;
/// Enough for two calls, and little beside a program's own threads. Thread-local variables of the program's
/// libraries lie in it too.
const STACK_BYTES: usize = 256 << 10;
const INTERVAL_VARIABLE: &CStr = c"MILLPOND_TRIM_INTERVAL_MS";
/// At most 15 characters. Shown by top and in `/proc/PID/task`.
const THREAD_NAME: &CStr = c"malloc_trim";

/// 0: no thread is started.
static INTERVAL_MS: AtomicU64 = AtomicU64::new(0);

/// Runs before the program's own code, with one thread.
extern "C" fn start() {
    let interval_ms = number(INTERVAL_VARIABLE);
    if interval_ms == 0 {
        return;
    }
    INTERVAL_MS.store(interval_ms, Ordering::Relaxed);
    start_thread();
    // SAFETY: the function stays mapped, since nothing unloads what was preloaded.
    unsafe { pthread_atfork(None, None, Some(start_thread)) };
}

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static START: extern "C" fn() = start;

/// Without a thread the program is as it was; that it lacks shows in `/proc/PID/task`.
extern "C" fn start_thread() {
    let all = SignalSet([c_ulong::MAX; 16]);
    let mut before = SignalSet([0; 16]);
    let mut attributes = ThreadAttributes([0; 64]);
    let mut thread: c_ulong = 0;
    // SAFETY: every pointer is of a local value of the C library's size, which lives across the calls. The thread
    // inherits the mask: no signal of the program reaches a thread that it did not start.
    unsafe {
        if pthread_attr_init(&raw mut attributes) != 0 {
            return;
        }
        pthread_sigmask(SIG_SETMASK, &raw const all, &raw mut before);
        pthread_attr_setdetachstate(&raw mut attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&raw mut attributes, STACK_BYTES);
        let attributes_used = &raw const attributes;
        let none = ptr::null_mut();
        if pthread_create(&raw mut thread, attributes_used, trim_for_ever, none) != 0 {
            // Thread-local variables of the program's libraries may need more than that stack.
            pthread_create(&raw mut thread, ptr::null(), trim_for_ever, none);
        }
        pthread_sigmask(SIG_SETMASK, &raw const before, ptr::null_mut());
        pthread_attr_destroy(&raw mut attributes);
    }
}

extern "C" fn trim_for_ever(_: *mut c_void) -> *mut c_void {
    // SAFETY: the name ends in NUL and the kernel copies it.
    unsafe { prctl(PR_SET_NAME, THREAD_NAME.as_ptr()) };
    let length = timespec(INTERVAL_MS.load(Ordering::Relaxed));
    loop {
        // SAFETY: `length` lives across the call; a null second pointer means that no remainder is asked for.
        unsafe { nanosleep(&raw const length, ptr::null_mut()) };
        // SAFETY: it may be called at any time from any thread.
        unsafe { malloc_trim(0) };
    }
}

fn timespec(length_ms: u64) -> Timespec {
    Timespec {
        seconds: i64::try_from(length_ms / 1_000).unwrap_or(i64::MAX),
        nanoseconds: i64::try_from(length_ms % 1_000 * 1_000_000).unwrap_or(0),
    }
}

#[cfg(test)]
#[path = "tests/lib.rs"]
mod tests;

//! The C library's malloc with a fault of known size, as a shared object to preload.
//!
//! `cargo bench-suite lab-proof` gives it to `millpond compare` as an allocator of the user's and counts how
//! often the fault is found. Settings are variables of the environment, read once at the start; without
//! any of them it is the C library's malloc and a jump.
//!
//! | variable | each call of malloc, calloc and realloc |
//! |---|---|
//! | `PLANT_INSTRUCTIONS=N` | executes N more instructions |
//! | `PLANT_STALL_EVERY=K`, `PLANT_STALL_US=T` | one in K, of all threads together, sleeps for T microseconds first |
//! | `PLANT_RETAIN_BYTES=N` | nothing; so many bytes are resident from the start to the end |
//!
//! Built twice: as the object it is with `panic = "abort"`, where it is `no_std`; the workspace's own
//! build, which unwinds, only checks it. Nothing here may allocate.
#![cfg_attr(all(panic = "abort", not(test)), no_std)]
#![cfg_attr(
    test,
    allow(dead_code, reason = "a test must not replace its own process's malloc")
)]
#![allow(unsafe_code, reason = "a preloaded malloc is raw pointers by nature")]

mod environment;
#[path = "../../trace/src/runtime.rs"]
mod runtime;

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use environment::number;

/// The planted faults, from the environment. A variable that is absent or no number plants nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    instructions: u64,
    stall_every: u64,
    stall_us: u64,
    retain_bytes: usize,
}

impl Settings {
    fn read() -> Self {
        Self {
            instructions: number(c"PLANT_INSTRUCTIONS"),
            stall_every: number(c"PLANT_STALL_EVERY"),
            stall_us: number(c"PLANT_STALL_US"),
            retain_bytes: usize::try_from(number(c"PLANT_RETAIN_BYTES")).unwrap_or(0),
        }
    }
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

#[link(name = "c")]
unsafe extern "C" {
    fn __libc_malloc(size_bytes: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size_bytes: usize) -> *mut c_void;
    fn __libc_realloc(block: *mut c_void, size_bytes: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size_bytes: usize) -> *mut c_void;
    fn __libc_free(block: *mut c_void);
    fn nanosleep(length: *const Timespec, left: *mut Timespec) -> c_int;
    fn mmap(
        address: *mut c_void,
        size_bytes: usize,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn madvise(address: *mut c_void, size_bytes: usize, advice: c_int) -> c_int;
}

const ENOMEM: c_int = 12;
const PROT_READ_WRITE: c_int = 0x1 | 0x2;
const MAP_PRIVATE_ANONYMOUS: c_int = 0x02 | 0x20;
const MADV_NOHUGEPAGE: c_int = 15;
/// The smallest page there is: touching more often than needed costs nothing that counts.
const PAGE_BYTES: usize = 4096;

static INSTRUCTIONS: AtomicU64 = AtomicU64::new(0);
static STALL_EVERY: AtomicU64 = AtomicU64::new(0);
static STALL_US: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Runs before the program's own constructors. Calls that come earlier still are not planted.
extern "C" fn start() {
    let settings = Settings::read();
    retain(settings.retain_bytes);
    STALL_US.store(settings.stall_us, Ordering::Relaxed);
    STALL_EVERY.store(settings.stall_every, Ordering::Relaxed);
    INSTRUCTIONS.store(settings.instructions, Ordering::Relaxed);
}

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static START: extern "C" fn() = start;

/// Maps memory and touches every page of it. It is never given back.
fn retain(size_bytes: usize) {
    if size_bytes == 0 {
        return;
    }
    // SAFETY: a new private mapping at an address of the kernel's choice overlaps no other memory.
    let start = unsafe {
        mmap(
            ptr::null_mut(),
            size_bytes,
            PROT_READ_WRITE,
            MAP_PRIVATE_ANONYMOUS,
            -1,
            0,
        )
    };
    // MAP_FAILED.
    if start.addr() == usize::MAX {
        return;
    }
    // SAFETY: the mapping was just made with this address and length; huge pages would round it up.
    unsafe { madvise(start, size_bytes, MADV_NOHUGEPAGE) };
    for offset in (0..size_bytes).step_by(PAGE_BYTES) {
        // SAFETY: `offset` is below the length of the mapping, which is writable and has no other user.
        unsafe { start.cast::<u8>().add(offset).write_volatile(1) };
    }
}

#[inline]
fn plant() {
    let instructions = INSTRUCTIONS.load(Ordering::Relaxed);
    if instructions > 0 {
        burn(instructions);
    }
    let every = STALL_EVERY.load(Ordering::Relaxed);
    if every > 0 && CALLS.fetch_add(1, Ordering::Relaxed) % every == every - 1 {
        stall();
    }
}

/// The instructions of one turn of the loop in `burn`: subtract, test, jump.
const TURN_INSTRUCTIONS: u64 = 3;

#[inline(never)]
fn burn(instructions: u64) {
    let mut turns = instructions / TURN_INSTRUCTIONS;
    while turns > 0 {
        turns -= 1;
        // SAFETY: no instruction at all; it only keeps the loop from being worked out beforehand.
        unsafe { core::arch::asm!("/* {} */", inout(reg) turns, options(nomem, nostack)) };
    }
}

#[cold]
fn stall() {
    let length_us = STALL_US.load(Ordering::Relaxed);
    let length = Timespec {
        seconds: i64::try_from(length_us / 1_000_000).unwrap_or(i64::MAX),
        nanoseconds: i64::try_from(length_us % 1_000_000 * 1_000).unwrap_or(0),
    };
    // SAFETY: `length` lives across the call; a null second pointer is allowed and means no remainder.
    unsafe { nanosleep(&raw const length, ptr::null_mut()) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn malloc(size_bytes: usize) -> *mut c_void {
    plant();
    // SAFETY: the C library's malloc accepts any size.
    unsafe { __libc_malloc(size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn calloc(count: usize, size_bytes: usize) -> *mut c_void {
    plant();
    // SAFETY: the C library's calloc checks the product itself.
    unsafe { __libc_calloc(count, size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn realloc(block: *mut c_void, size_bytes: usize) -> *mut c_void {
    plant();
    // SAFETY: every block of this process is the C library's, as the caller promises it is a live one.
    unsafe { __libc_realloc(block, size_bytes) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn posix_memalign(
    out: *mut *mut c_void,
    alignment: usize,
    size_bytes: usize,
) -> c_int {
    plant();
    // SAFETY: the C library checks the alignment itself.
    let block = unsafe { __libc_memalign(alignment, size_bytes) };
    if block.is_null() {
        return ENOMEM;
    }
    // SAFETY: the caller promises that there is a place for the block's address.
    unsafe { out.write(block) };
    0
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: every block of this process is the C library's, as the caller promises it is a live one.
    unsafe { __libc_free(block) }
}

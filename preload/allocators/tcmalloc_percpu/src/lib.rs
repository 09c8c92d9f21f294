//! TCMalloc of Google, the one with a cache for each CPU, as `malloc`.
//!
//! Its caches need the kernel's restartable sequences for themselves: the C library must leave them alone, by
//! `GLIBC_TUNABLES=glibc.pthread.rseq=0`. Without it there is a cache for each thread, as in gperftools. Which of both
//! a program had, it writes to stderr at its end, if `TCMALLOC_PERCPU_REPORT` is set.
#![no_std]

// For its C++ library; the bindings are not enough.
use libtcmalloc_sys as _;

use core::ffi::c_char;

use family::{c_int, c_void};

// Its C++ library takes logarithms.
#[link(name = "m")]
unsafe extern "C" {
    fn TCMallocInternalMalloc(size: usize) -> *mut c_void;
    fn TCMallocInternalCalloc(count: usize, size: usize) -> *mut c_void;
    fn TCMallocInternalRealloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn TCMallocInternalReallocArray(block: *mut c_void, count: usize, size: usize) -> *mut c_void;
    fn TCMallocInternalFree(block: *mut c_void);
    fn TCMallocInternalMemalign(alignment: usize, size: usize) -> *mut c_void;
    fn TCMallocInternalAlignedAlloc(alignment: usize, size: usize) -> *mut c_void;
    fn TCMallocInternalPosixMemalign(
        slot: *mut *mut c_void,
        alignment: usize,
        size: usize,
    ) -> c_int;
    fn TCMallocInternalValloc(size: usize) -> *mut c_void;
    fn TCMallocInternalPvalloc(size: usize) -> *mut c_void;
    fn TCMallocInternalMallocSize(block: *mut c_void) -> usize;
    fn MallocExtension_Internal_GetPerCpuCachesActive() -> bool;
}

// Without the standard library there is no other way to them.
unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn write(file: c_int, bytes: *const c_void, count: usize) -> isize;
}

/// The line that `millpond compare` searches for; with a line end.
const ACTIVE: &[u8] = b"tcmalloc: per-CPU caches active\n";
const INACTIVE: &[u8] = b"tcmalloc: per-CPU caches not active\n";
const STDERR: c_int = 2;

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = report;

extern "C" fn report() {
    // SAFETY: the name ends with a zero; no other thread changes the environment while the program ends.
    if unsafe { getenv(c"TCMALLOC_PERCPU_REPORT".as_ptr()) }.is_null() {
        return;
    }
    // SAFETY: it has no arguments, and only reads.
    let line = match unsafe { MallocExtension_Internal_GetPerCpuCachesActive() } {
        true => ACTIVE,
        false => INACTIVE,
    };
    // SAFETY: the bytes are valid for the length that is given. A closed stderr loses the line.
    let _ = unsafe { write(STDERR, line.as_ptr().cast(), line.len()) };
}

family::export_malloc_family! {
    malloc = TCMallocInternalMalloc,
    calloc = TCMallocInternalCalloc,
    realloc = TCMallocInternalRealloc,
    reallocarray = TCMallocInternalReallocArray,
    free = TCMallocInternalFree,
    memalign = TCMallocInternalMemalign,
    aligned_alloc = TCMallocInternalAlignedAlloc,
    posix_memalign = TCMallocInternalPosixMemalign,
    valloc = TCMallocInternalValloc,
    pvalloc = TCMallocInternalPvalloc,
    malloc_usable_size = TCMallocInternalMallocSize,
}

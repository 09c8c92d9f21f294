//! C++ `operator new` and `operator delete`, as the malloc and free they become.
//!
//! Allocators such as jemalloc and tcmalloc export these operators themselves, so without this file
//! a C++ program's allocations would pass by the counters under some allocators and not under
//! others. All of those allocators accept `free` of a block from `new`. Out of memory aborts, as it
//! would with no handler.

use core::ffi::c_void;

use crate::{free, malloc, memalign, next};

fn or_abort(block: *mut c_void) -> *mut c_void {
    if block.is_null() {
        // SAFETY: abort has no arguments and does not return.
        unsafe { next::abort() }
    }
    block
}

macro_rules! operators_new {
    ($($name:ident)*) => { $(
        #[allow(non_snake_case, reason = "the C++ symbol")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        extern "C" fn $name(size_bytes: usize) -> *mut c_void {
            // SAFETY: malloc accepts any size; C++ demands a distinct block for zero bytes.
            or_abort(unsafe { malloc(size_bytes.max(1)) })
        }
    )* };
}

macro_rules! operators_new_nothrow {
    ($($name:ident)*) => { $(
        #[allow(non_snake_case, reason = "the C++ symbol")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        extern "C" fn $name(size_bytes: usize, _nothrow: *const c_void) -> *mut c_void {
            // SAFETY: malloc accepts any size.
            unsafe { malloc(size_bytes.max(1)) }
        }
    )* };
}

macro_rules! operators_new_aligned {
    ($($name:ident)*) => { $(
        #[allow(non_snake_case, reason = "the C++ symbol")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        extern "C" fn $name(size_bytes: usize, alignment: usize) -> *mut c_void {
            // SAFETY: a C++ alignment is a power of two, as memalign wants it.
            or_abort(unsafe { memalign(alignment, size_bytes.max(1)) })
        }
    )* };
}

macro_rules! operators_new_aligned_nothrow {
    ($($name:ident)*) => { $(
        #[allow(non_snake_case, reason = "the C++ symbol")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        extern "C" fn $name(
            size_bytes: usize,
            alignment: usize,
            _nothrow: *const c_void,
        ) -> *mut c_void {
            // SAFETY: a C++ alignment is a power of two, as memalign wants it.
            unsafe { memalign(alignment, size_bytes.max(1)) }
        }
    )* };
}

macro_rules! operators_delete {
    ($($name:ident($($rest:ty),*))*) => { $(
        #[allow(non_snake_case, reason = "the C++ symbol")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name(block: *mut c_void $(, _: $rest)*) {
            // SAFETY: C++ deletes what `new` above, hence malloc, returned.
            unsafe { free(block) }
        }
    )* };
}

// Plain and array form; `m` is size_t on 64-bit Linux.
operators_new! { _Znwm _Znam }
operators_new_nothrow! { _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t }
operators_new_aligned! { _ZnwmSt11align_val_t _ZnamSt11align_val_t }
operators_new_aligned_nothrow! {
    _ZnwmSt11align_val_tRKSt9nothrow_t
    _ZnamSt11align_val_tRKSt9nothrow_t
}
operators_delete! {
    _ZdlPv()
    _ZdaPv()
    _ZdlPvm(usize)
    _ZdaPvm(usize)
    _ZdlPvSt11align_val_t(usize)
    _ZdaPvSt11align_val_t(usize)
    _ZdlPvmSt11align_val_t(usize, usize)
    _ZdaPvmSt11align_val_t(usize, usize)
    _ZdlPvRKSt9nothrow_t(*const c_void)
    _ZdaPvRKSt9nothrow_t(*const c_void)
    _ZdlPvSt11align_val_tRKSt9nothrow_t(usize, *const c_void)
    _ZdaPvSt11align_val_tRKSt9nothrow_t(usize, *const c_void)
}

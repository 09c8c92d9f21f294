//! The C library's malloc family, for an object that is preloaded: each function is one jump to the
//! allocator's own.
//!
//! Every function that gives out or takes back memory is here. A missing one would stay the C
//! library's, and its blocks would reach a `free` that did not allocate them.
#![no_std]

pub use core::ffi::{c_int, c_void};

// Without the standard library no other code names it, and the allocators' own code needs it.
#[link(name = "c")]
unsafe extern "C" {
    fn abort() -> !;
    fn __errno_location() -> *mut c_int;
    fn getpagesize() -> c_int;
}

/// An argument is not acceptable.
pub const EINVAL: c_int = 22;
/// There is no memory.
pub const ENOMEM: c_int = 12;

/// The result that a failed function leaves for its caller.
pub fn set_errno(code: c_int) {
    // SAFETY: the C library returns the calling thread's own, always valid.
    unsafe { *__errno_location() = code }
}

/// The result of a function that cannot give what was asked for.
pub fn out_of_memory() -> *mut c_void {
    set_errno(ENOMEM);
    core::ptr::null_mut()
}

/// The size of a page of memory.
pub fn page_bytes() -> usize {
    // SAFETY: has no arguments, and never fails.
    usize::try_from(unsafe { getpagesize() }).unwrap_or(4096)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: abort has no arguments and does not return.
    unsafe { abort() }
}

// The prebuilt core library names the unwinder's personality; with `panic = "abort"` it is never
// called. Assembly, so that the symbol stays inside the object.
core::arch::global_asm!(".globl rust_eh_personality", "rust_eh_personality:");

/// Exports each allocator function, given with its own name, under the C library's name for it.
/// `cfree` was removed from the C library, but old programs call it.
#[macro_export]
macro_rules! export_malloc_family {
    (
        malloc = $malloc:path, calloc = $calloc:path, realloc = $realloc:path,
        reallocarray = $reallocarray:path, free = $free:path,
        memalign = $memalign:path, aligned_alloc = $aligned_alloc:path,
        posix_memalign = $posix_memalign:path, valloc = $valloc:path, pvalloc = $pvalloc:path,
        malloc_usable_size = $usable_size:path $(,)?
    ) => {
        $crate::export_malloc_family! { @each
            malloc(size: usize) -> *mut $crate::c_void = $malloc;
            calloc(count: usize, size: usize) -> *mut $crate::c_void = $calloc;
            realloc(block: *mut $crate::c_void, size: usize) -> *mut $crate::c_void = $realloc;
            reallocarray(block: *mut $crate::c_void, count: usize, size: usize)
                -> *mut $crate::c_void = $reallocarray;
            free(block: *mut $crate::c_void) -> () = $free;
            cfree(block: *mut $crate::c_void) -> () = $free;
            memalign(alignment: usize, size: usize) -> *mut $crate::c_void = $memalign;
            aligned_alloc(alignment: usize, size: usize) -> *mut $crate::c_void = $aligned_alloc;
            posix_memalign(slot: *mut *mut $crate::c_void, alignment: usize, size: usize)
                -> $crate::c_int = $posix_memalign;
            valloc(size: usize) -> *mut $crate::c_void = $valloc;
            pvalloc(size: usize) -> *mut $crate::c_void = $pvalloc;
            malloc_usable_size(block: *mut $crate::c_void) -> usize = $usable_size;
        }
    };
    (@each $($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $to:path;)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the caller keeps the contract of the C function, and this is the same one.
            unsafe { $to($($argument),*) }
        }
    )* };
}

/// Exports mimalloc's functions, whose names are the same in every version of it.
#[macro_export]
macro_rules! export_mimalloc {
    () => {
        unsafe extern "C" {
            fn mi_malloc(size: usize) -> *mut $crate::c_void;
            fn mi_calloc(count: usize, size: usize) -> *mut $crate::c_void;
            fn mi_realloc(block: *mut $crate::c_void, size: usize) -> *mut $crate::c_void;
            fn mi_reallocarray(
                block: *mut $crate::c_void,
                count: usize,
                size: usize,
            ) -> *mut $crate::c_void;
            fn mi_free(block: *mut $crate::c_void);
            fn mi_memalign(alignment: usize, size: usize) -> *mut $crate::c_void;
            fn mi_aligned_alloc(alignment: usize, size: usize) -> *mut $crate::c_void;
            fn mi_posix_memalign(
                slot: *mut *mut $crate::c_void,
                alignment: usize,
                size: usize,
            ) -> $crate::c_int;
            fn mi_valloc(size: usize) -> *mut $crate::c_void;
            fn mi_pvalloc(size: usize) -> *mut $crate::c_void;
            fn mi_malloc_usable_size(block: *mut $crate::c_void) -> usize;
        }

        $crate::export_malloc_family! {
            malloc = mi_malloc,
            calloc = mi_calloc,
            realloc = mi_realloc,
            reallocarray = mi_reallocarray,
            free = mi_free,
            memalign = mi_memalign,
            aligned_alloc = mi_aligned_alloc,
            posix_memalign = mi_posix_memalign,
            valloc = mi_valloc,
            pvalloc = mi_pvalloc,
            malloc_usable_size = mi_malloc_usable_size,
        }
    };
}

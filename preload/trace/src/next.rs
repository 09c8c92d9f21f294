//! The allocator behind this one: its functions, found once with `dlsym(RTLD_NEXT)`.
//!
//! Invariant: after `ready()` returned true every function of the table is known, or the process
//! was aborted with a sentence on stderr; the table never changes again.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;

const UNRESOLVED: u8 = 0;
const RESOLVING: u8 = 1;
const RESOLVED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNRESOLVED);

#[link(name = "c")]
unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn write(fd: c_int, bytes: *const c_void, count: usize) -> isize;
    fn __errno_location() -> *mut c_int;
    pub(crate) fn abort() -> !;
}

/// The calling thread's `errno`.
pub(crate) fn errno() -> c_int {
    // SAFETY: libc returns a valid pointer to this thread's errno.
    unsafe { __errno_location().read() }
}

/// Sets the calling thread's `errno`.
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: libc returns a valid pointer to this thread's errno.
    unsafe { __errno_location().write(value) }
}

/// True once the next allocator is known. False only for calls that arrive during the search: those
/// are `dlsym`'s own, or another thread's during the very first call.
#[inline]
pub(crate) fn ready() -> bool {
    STATE.load(Ordering::Acquire) == RESOLVED || resolve()
}

#[cold]
fn resolve() -> bool {
    match STATE.compare_exchange(UNRESOLVED, RESOLVING, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            table::fill();
            STATE.store(RESOLVED, Ordering::Release);
            true
        }
        Err(state) => state == RESOLVED,
    }
}

fn find(name: &CStr) -> *mut c_void {
    // SAFETY: RTLD_NEXT is dlsym's documented handle; the name ends in NUL.
    let address = unsafe { dlsym(RTLD_NEXT, name.as_ptr()) };
    if address.is_null() {
        for part in [
            b"millpond trace: no next ".as_slice(),
            name.to_bytes(),
            b"\n",
        ] {
            // SAFETY: the pointer and length describe one live slice.
            unsafe { write(2, part.as_ptr().cast(), part.len()) };
        }
        // SAFETY: abort has no arguments and does not return.
        unsafe { abort() }
    }
    address
}

/// Declares each function of the next allocator: its slot, its lookup and a caller.
macro_rules! next_functions {
    ($($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        mod table {
            use super::{AtomicPtr, Ordering, c_void, find, ptr};
            $(
                #[allow(non_upper_case_globals, reason = "named after the function it holds")]
                pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            )*
            pub(super) fn fill() {
                $( $name.store(find(
                    match core::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => c"?",
                    }), Ordering::Relaxed); )*
            }
        }
        $(
            /// The next allocator's function of this name.
            ///
            /// # Safety
            /// `ready()` has returned true, and the C contract of the function holds.
            #[inline]
            pub(crate) unsafe fn $name($($argument: $kind),*) $(-> $result)? {
                type Function = unsafe extern "C" fn($($kind),*) $(-> $result)?;
                let address = table::$name.load(Ordering::Relaxed);
                // SAFETY: `ready()` came first, so the slot holds the address that dlsym gave for
                // the libc function of this name, whose C signature is the one declared here.
                unsafe { mem::transmute::<*mut c_void, Function>(address)($($argument),*) }
            }
        )*
    };
}

next_functions! {
    malloc(size_bytes: usize) -> *mut c_void;
    calloc(count: usize, size_bytes: usize) -> *mut c_void;
    realloc(block: *mut c_void, size_bytes: usize) -> *mut c_void;
    free(block: *mut c_void);
    memalign(alignment: usize, size_bytes: usize) -> *mut c_void;
    aligned_alloc(alignment: usize, size_bytes: usize) -> *mut c_void;
    posix_memalign(out: *mut *mut c_void, alignment: usize, size_bytes: usize) -> c_int;
    valloc(size_bytes: usize) -> *mut c_void;
    pvalloc(size_bytes: usize) -> *mut c_void;
    malloc_usable_size(block: *mut c_void) -> usize;
}

//! The calling thread's `errno`.

use std::ffi::c_int;

/// Sets it.
pub(crate) fn set(value: c_int) {
    // SAFETY: the C library returns a valid pointer to this thread's number.
    unsafe { libc::__errno_location().write(value) }
}

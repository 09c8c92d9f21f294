//! The calling thread's `errno`, which free must not change.
//!
//! On the path: only where a free leaves the fast path: locks that others hold wait in the system.
#![allow(unsafe_code)]
use std::ffi::c_int;

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
mod tests {
    use super::*;

    /// Goal: a failing system call in between leaves no trace.
    #[test]
    fn errno_is_put_back() {
        let read = || KeptErrno::new().0;
        // SAFETY: as above; a descriptor that is none is refused.
        unsafe {
            libc::__errno_location().write(77);
            let kept = KeptErrno::new();
            assert_eq!(libc::close(-1), -1);
            assert_eq!(read(), libc::EBADF);
            drop(kept);
        }
        assert_eq!(read(), 77);
    }
}

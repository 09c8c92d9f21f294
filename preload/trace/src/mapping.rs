//! A file that another process made and named in the environment, mapped shared: its contents
//! survive this process.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

const O_RDWR: c_int = 2;
const O_CLOEXEC: c_int = 0o2_000_000;
const SEEK_END: c_int = 2;
const PROT_READ_WRITE: c_int = 3;
const MAP_SHARED: c_int = 1;
const MAP_FAILED: usize = usize::MAX;

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn lseek(fd: c_int, offset: i64, whence: c_int) -> i64;
    fn close(fd: c_int) -> c_int;
    fn mmap(
        at: *mut c_void,
        n: usize,
        prot: c_int,
        flags: c_int,
        fd: c_int,
        off: i64,
    ) -> *mut c_void;
}

/// The whole file named by `variable`, page aligned, writable, there for good, and its length in
/// bytes. `None` if there is none, or none of at least `min_bytes`. For constructors, which run before
/// the program can change its environment from another thread.
pub(crate) fn of_file_in(variable: &CStr, min_bytes: usize) -> Option<(*mut c_void, usize)> {
    // SAFETY: see above; getenv returns NULL or a string ending in NUL, which open only reads.
    let fd = unsafe {
        let path = getenv(variable.as_ptr());
        if path.is_null() {
            return None;
        }
        open(path, O_RDWR | O_CLOEXEC)
    };
    if fd < 0 {
        return None;
    }
    // SAFETY: `fd` is open; a shared mapping of a regular file at an address of the kernel's choice
    // touches no existing memory; the mapping outlives the descriptor.
    let (mapping, len_bytes) = unsafe {
        let len_bytes = usize::try_from(lseek(fd, 0, SEEK_END)).unwrap_or(0);
        let mapping = if len_bytes >= min_bytes {
            mmap(
                ptr::null_mut(),
                len_bytes,
                PROT_READ_WRITE,
                MAP_SHARED,
                fd,
                0,
            )
        } else {
            MAP_FAILED as *mut c_void
        };
        close(fd);
        (mapping, len_bytes)
    };
    (mapping as usize != MAP_FAILED).then_some((mapping, len_bytes))
}

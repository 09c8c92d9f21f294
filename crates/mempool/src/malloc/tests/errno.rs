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

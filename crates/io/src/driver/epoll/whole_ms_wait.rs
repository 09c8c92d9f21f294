//! The wait of kernels without `epoll_pwait2`: whole milliseconds.
//!
//! On the path only before Linux 5.11 and under emulators such as valgrind, where it lets the
//! programs be profiled. Deadlines are up to a millisecond late here, never early.
#![allow(unsafe_code)]

use rustix::event::epoll::Event;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::mem::offset_of;

const NS_PER_MS: u64 = 1_000_000;

/// Both libraries' events are the kernel's, so that one can be filled as the other.
const _: () = {
    assert!(size_of::<Event>() == size_of::<libc::epoll_event>());
    assert!(align_of::<Event>() == align_of::<libc::epoll_event>());
    assert!(offset_of!(Event, flags) == offset_of!(libc::epoll_event, events));
    assert!(offset_of!(Event, data) == offset_of!(libc::epoll_event, u64));
};

/// Waits for events of `epoll` at most `wait_ns`, rounded up; `None` waits without limit. Fills the front of `events`
/// and returns how many there are.
pub(super) fn wait(
    epoll: BorrowedFd<'_>,
    events: &mut [Event],
    wait_ns: Option<u64>,
) -> Result<usize, Errno> {
    let timeout_ms = wait_ns.map_or(-1, |wait_ns| {
        i32::try_from(wait_ns.div_ceil(NS_PER_MS)).unwrap_or(i32::MAX)
    });
    let capacity = i32::try_from(events.len()).unwrap_or(i32::MAX);
    let front = events.as_mut_ptr().cast::<libc::epoll_event>();
    // SAFETY: the descriptor is open while it is borrowed; `front` has room for `capacity` events
    // of the layout asserted above, and any bits the kernel writes are valid in both fields.
    let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), front, capacity, timeout_ms) };
    // Negative only on failure, with the reason in this thread's errno.
    usize::try_from(count).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
    })
}

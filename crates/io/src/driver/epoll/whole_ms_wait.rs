//! The wait of kernels without `epoll_pwait2`: whole milliseconds.
//!
//! On the path only before Linux 5.11 and under emulators such as valgrind, where it lets the
//! programs be profiled. Deadlines are up to a millisecond late here, never early.
#![allow(unsafe_code)]

use rustix::event::epoll::{Event, EventData, EventFlags};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;

const NS_PER_MS: u64 = 1_000_000;

/// Events taken per wait; more wait for the next.
const EVENTS_MAX: usize = 64;

/// Waits for events of `epoll` at most `wait_ns`, rounded up; `None` waits for ever. Fills the
/// front of `events` and returns how many there are.
pub(super) fn wait(
    epoll: BorrowedFd<'_>,
    events: &mut [Event],
    wait_ns: Option<u64>,
) -> Result<usize, Errno> {
    let timeout_ms = wait_ns.map_or(-1, |wait_ns| {
        i32::try_from(wait_ns.div_ceil(NS_PER_MS)).unwrap_or(i32::MAX)
    });
    let mut raw = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
    let capacity = EVENTS_MAX.min(events.len()) as i32;
    // SAFETY: the descriptor is open while it is borrowed, and `raw` has room for `capacity`
    // events, which the kernel fills from the front.
    let count =
        unsafe { libc::epoll_wait(epoll.as_raw_fd(), raw.as_mut_ptr(), capacity, timeout_ms) };
    // Negative only on failure, which says why in this thread's errno.
    let Ok(count) = usize::try_from(count) else {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
    };
    for (event, raw) in events.iter_mut().zip(&raw[..count]) {
        *event = Event {
            flags: EventFlags::from_bits_retain(raw.events),
            data: EventData::new_u64(raw.u64),
        };
    }
    Ok(count)
}

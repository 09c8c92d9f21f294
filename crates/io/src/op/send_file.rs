//! Handing bytes of a file to the kernel, which has them already: no copy through this process.
//!
//! `sendfile` has no flag against waiting for the disk. So the page cache is checked first; pages not there are left to
//! the caller. A page that is evicted in between is waited for: memory must be very short for that.
#![allow(unsafe_code)]

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::sendfile;
use std::ops::Range;
use std::sync::OnceLock;

/// `cachestat`, since Linux 6.5; the same number on all platforms.
const CACHESTAT: libc::c_long = 451;

/// Input of [`CACHESTAT`].
#[repr(C)]
struct CacheRange {
    offset: u64,
    len: u64,
}

/// Its result, in pages.
#[repr(C)]
#[derive(Default)]
struct CacheCount {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Sends as much of the range as the kernel takes at once to a socket that does not block; `None`:
/// nothing was sent, for whatever reason.
pub(crate) fn send_file_now(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    range: &Range<u64>,
) -> Option<u64> {
    if !is_harmless_to_gone_peers() || !is_cached(file, range) {
        return None;
    }
    let len = usize::try_from(range.end - range.start).ok()?;
    let mut offset = range.start;
    match sendfile(socket, file, Some(&mut offset), len) {
        Ok(sent @ 1..) => Some(sent as u64),
        // A fault of the socket or the file is reported by a plain send or read.
        _ => None,
    }
}

/// Whether every page of the range is in memory. A kernel without this call, or that refuses it to processes with read
/// access only, counts as having none.
fn is_cached(file: BorrowedFd<'_>, range: &Range<u64>) -> bool {
    let page_bytes = rustix::param::page_size() as u64;
    let pages = range.end.div_ceil(page_bytes) - range.start / page_bytes;
    let asked = CacheRange {
        offset: range.start,
        len: range.end - range.start,
    };
    let mut count = CacheCount::default();
    // SAFETY: both structures have the kernel's layout and live until the call returns, which reads
    // the first and writes the second; the descriptor is open.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            &raw const asked,
            &raw mut count,
            0,
        )
    };
    result == 0 && count.cached >= pages
}

/// `sendfile` has no flag that makes a closed peer an error instead of a signal. Rust programs ignore the signal from
/// the start; if the program restored it, files are read and sent.
fn is_harmless_to_gone_peers() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: all zeroes is a `sigaction` (no handler, no flags, an empty mask).
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: without a new action nothing changes; the old one is written to our variable.
        let outcome = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) };
        outcome == 0 && action.sa_sigaction != libc::SIG_DFL
    })
}

#[cfg(test)]
#[path = "tests/send_file.rs"]
mod tests;

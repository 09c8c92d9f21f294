//! Handing bytes of a file to the kernel, which has them already: no copy through this process.
//!
//! `sendfile` has no way to say "not if the disk has to be waited for". So the page cache is asked
//! first; what is not there is left to the caller. A page that goes in between is waited for: memory
//! must be very short for that.
#![allow(unsafe_code)]

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::sendfile;
use std::ops::Range;
use std::sync::OnceLock;

/// `cachestat`, since Linux 6.5; the same number on all platforms.
const CACHESTAT: libc::c_long = 451;

/// What [`CACHESTAT`] is asked about.
#[repr(C)]
struct CacheRange {
    offset: u64,
    len: u64,
}

/// What it answers, in pages.
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
        // What is wrong with the socket or the file, a plain send or read will tell.
        _ => None,
    }
}

/// Whether every page of the range is in memory. A kernel that cannot tell, or does not tell processes that may
/// only read, counts as one that has none.
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

/// `sendfile` cannot be told to answer a peer that is gone with an error and not with a signal. Rust
/// programs ignore the signal from the start; where somebody restored it, files are read and sent.
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

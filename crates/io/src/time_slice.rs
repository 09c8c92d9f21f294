//! How long a thread runs before it lets others of its CPU run, and so how soon it runs when it wakes.
//!
//! On the path once: a shard asks for a short slice when its thread starts. The scheduler (EEVDF, Linux 6.12 and newer)
//! lets a thread that wakes with a shorter slice go before one in the middle of a longer one; with equal ones of some 3
//! ms a request waits as long wherever another thread, such as one that merges tables, keeps the CPU busy. CPU shares
//! stay unchanged: a larger one takes time from others, and requires a privilege.
#![allow(unsafe_code)]

use rustix::io::Errno;
use std::io;

/// `struct sched_attr` of the kernel in its first form, which every kernel with the call takes
/// (`sched_setattr(2)`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Attributes {
    size_bytes: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Of the usual policies: the slice; ignored before 6.12.
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const ATTRIBUTES_BYTES: u32 = 48;
const _: () = assert!(size_of::<Attributes>() == ATTRIBUTES_BYTES as usize);

/// Asks for slices of `slice_ns` for the calling thread, which the kernel holds to 0.1 to 100 ms. Its other scheduling
/// settings stay; under a real-time policy, which has no slices of this kind, nothing changes.
///
/// # Errors
/// The kernel's error: a container may forbid the call.
pub(crate) fn ask_for(slice_ns: u64) -> Result<(), Errno> {
    let mut attributes = current()?;
    let has_slices =
        [libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&attributes.policy.cast_signed());
    if !has_slices {
        return Ok(());
    }
    attributes.runtime_ns = slice_ns;
    // SAFETY: the first argument is this thread, the second a whole attribute structure of the size stored in it, which
    // the kernel only reads.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    checked(result)
}

/// Those of the calling thread.
fn current() -> Result<Attributes, Errno> {
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes at most as many bytes as the given size, all of them plain numbers.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            0,
            &raw mut attributes,
            ATTRIBUTES_BYTES,
            0,
        )
    };
    checked(result)?;
    attributes.size_bytes = ATTRIBUTES_BYTES;
    Ok(attributes)
}

fn checked(result: libc::c_long) -> Result<(), Errno> {
    match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

#[cfg(test)]
#[path = "tests/time_slice.rs"]
mod tests;

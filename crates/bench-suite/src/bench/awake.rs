//! Idle CPUs that stay awake while something is measured.
//!
//! A virtual CPU with nothing to do is given back to the host, and how soon it returns when a packet
//! comes is the host's affair: on a noisy one that is most of a latency, and is told as stolen time.
//! Real CPUs sleep too, less deeply. Linux keeps those awake for which a program asks it to
//! (Documentation/admin-guide/pm/cpuidle.rst, "Power Management Quality of Service for CPUs"), until that
//! program closes the file; all servers that are compared profit alike.

use std::fs::{File, OpenOptions};
use std::io::Write;

/// As long as this is kept, no CPU sleeps.
pub(crate) struct Awake {
    _request: File,
}

impl Awake {
    /// Asks for it. `None` where that needs root, or a kernel that can.
    pub(crate) fn ask() -> Option<Self> {
        let mut request = OpenOptions::new()
            .write(true)
            .open("/dev/cpu_dma_latency")
            .ok()?;
        // The longest wait for a CPU that may be, in microseconds.
        request.write_all(&0_i32.to_ne_bytes()).ok()?;
        Some(Self { _request: request })
    }
}

//! Memory of this process, as the kernel counts it.
//!
//! On the path: programs read it at the edges of their phases. Only anonymous memory counts: the
//! program's own file and its libraries are there before the first allocation and differ between
//! allocators by what their files hold.
//! Absent on purpose: any allocation while reading, which would be part of what is read.

use std::fs::File;
use std::io::{Read, Write};

/// Longer than either file.
const TEXT_BYTES: usize = 8192;

/// Resident anonymous memory in bytes: exact where the kernel has `smaps_rollup` (Linux 4.14), else
/// from `status`, which may lag by some pages.
pub(crate) fn anonymous_bytes() -> u64 {
    field("/proc/self/smaps_rollup", "Anonymous:")
        .or_else(|| field("/proc/self/status", "RssAnon:"))
        .unwrap_or(0)
}

/// The same in microseconds; may lag by some pages for each CPU.
pub(crate) fn anonymous_bytes_quickly() -> u64 {
    field("/proc/self/status", "RssAnon:").unwrap_or_else(anonymous_bytes)
}

/// The most resident memory since [`forget_peak`], files included.
pub(crate) fn peak_bytes() -> u64 {
    field("/proc/self/status", "VmHWM:").unwrap_or(0)
}

/// All resident memory, files included: what [`peak_bytes`] is to be compared with.
pub(crate) fn resident_bytes() -> u64 {
    field("/proc/self/status", "VmRSS:").unwrap_or(0)
}

/// Starts the peak anew. Where a container forbids that, the peak is the one since the start, which
/// is no lower.
pub(crate) fn forget_peak() {
    if let Ok(mut file) = File::options().write(true).open("/proc/self/clear_refs") {
        let _ = file.write_all(b"5");
    }
}

fn field(path: &str, name: &str) -> Option<u64> {
    let mut text = [0; TEXT_BYTES];
    let mut file = File::open(path).ok()?;
    let mut len = 0;
    while len < text.len() {
        match file.read(&mut text[len..]).ok()? {
            0 => break,
            more => len += more,
        }
    }
    let text = str::from_utf8(&text[..len]).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: memory that was written shows, up to the byte counts of pages; the peak is not below.
    #[test]
    fn written_memory_shows() {
        let before = anonymous_bytes();
        let block = vec![1_u8; 32 << 20];
        let grown = anonymous_bytes().saturating_sub(before);
        assert!((31 << 20..40 << 20).contains(&grown), "{grown}");
        assert!(peak_bytes() >= resident_bytes());
        assert!(resident_bytes() >= block.len() as u64);
    }
}

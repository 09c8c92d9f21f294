//! The events of files, one line for each, to be read when the process is dead.
//!
//! ```text
//! failed KIND PATH
//! created PATH             empty, whatever it was before
//! synced BYTES PATH        so much of it lasts; written before the caller is told
//! renamed FROM<tab>TO
//! linked FROM<tab>TO
//! ```
//! Each line is one call that appends: lines of two threads do not mix, and the kernel has what a dead
//! process wrote.

use std::ffi::CString;
use std::fmt::Write as _;
use std::path::Path;

use crate::settings::{Kind, Settings};

/// The recorded events.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    Failed { kind: Kind, path: &'a Path },
    Created { path: &'a Path },
    Synced { path: &'a Path, length_bytes: u64 },
    Renamed { from: &'a Path, to: &'a Path },
    Linked { from: &'a Path, to: &'a Path },
}

/// Opens the file at its end.
pub(crate) fn open(path: &str) -> Result<i32, ()> {
    let path = CString::new(path).map_err(|_| ())?;
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    // By number: `open` is what this object replaces.
    // SAFETY: the path ends in NUL and lives across the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            0o644,
        )
    };
    i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or(())
}

/// Appends a line.
pub(crate) fn note(settings: &Settings, event: &Event<'_>) {
    let Some(journal) = settings.journal else {
        return;
    };
    let mut line = String::new();
    // A string takes all that is written into it.
    let _ = match event {
        Event::Failed { kind, path } => {
            writeln!(line, "failed {} {}", kind.as_str(), path.display())
        }
        Event::Created { path } => writeln!(line, "created {}", path.display()),
        Event::Synced { path, length_bytes } => {
            writeln!(line, "synced {length_bytes} {}", path.display())
        }
        Event::Renamed { from, to } => {
            writeln!(line, "renamed {}\t{}", from.display(), to.display())
        }
        Event::Linked { from, to } => {
            writeln!(line, "linked {}\t{}", from.display(), to.display())
        }
    };
    // SAFETY: the line lives across the call and is as long as it says.
    let written = unsafe { libc::syscall(libc::SYS_write, journal, line.as_ptr(), line.len()) };
    // A journal that lacks a line would let a test pass.
    if usize::try_from(written) != Ok(line.len()) {
        std::process::abort();
    }
}

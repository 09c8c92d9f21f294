//! The settings in the environment: `MEMPOOL_STATS`, what the heap held at exit, and `MEMPOOL_CHECKS`, finding misuse.
//!
//! The figures are one line on standard error, so that it can be found among a program's own: names
//! and numbers, sizes in bytes.

use millpond_mempool::Checks;
use millpond_mempool::malloc::{self as heap, MallocStats, stats};
use std::ffi::CStr;
use std::io::{Cursor, Write as _};

/// The value of a variable that switches something on.
const ON: &str = "1";

/// Reads the environment. Called before the program can change it from another thread.
pub(crate) fn prepare() {
    if variable(c"MEMPOOL_STATS") == Some(ON) {
        // SAFETY: a function of this object. Refused only without memory: then nothing is reported.
        let _ = unsafe { libc::atexit(at_exit) };
    }
    let Some(asked) = variable(c"MEMPOOL_CHECKS").filter(|asked| !asked.is_empty()) else {
        return;
    };
    let checks = match asked {
        ON => Ok(Checks::default()),
        options => options.parse(),
    };
    match checks {
        Ok(checks) => {
            heap::check(checks);
            // SAFETY: as above.
            let _ = unsafe { libc::atexit(verify_at_exit) };
        }
        // A user that asks for checks must not be led to think that there were some.
        Err(_) => end(b"millpond malloc: MEMPOOL_CHECKS is 1, guard, fail=N, or guard,fail=N\n"),
    }
}

/// A variable of the environment, if it is text.
fn variable(name: &CStr) -> Option<&'static str> {
    // SAFETY: getenv returns null or a string with an end, which stays while the environment does
    // not change: the program is not running yet.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        if value.is_null() {
            return None;
        }
        CStr::from_ptr(value).to_str().ok()
    }
}

extern "C" fn verify_at_exit() {
    heap::verify();
}

extern "C" fn at_exit() {
    let mut line = [0; 1024];
    let text = describe(&stats(), &mut line);
    // SAFETY: the slice is `text`. The program ignores whether it can be read.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// Ends the process because this object is broken.
#[cold]
pub(crate) fn fault_of_our_own() -> ! {
    end(b"millpond malloc: a fault of its own; without LD_PRELOAD the program runs as before\n")
}

/// Writes a line and aborts.
fn end(line: &[u8]) -> ! {
    // SAFETY: the slice is `line`. The program ignores whether it can be read.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
    std::process::abort()
}

fn describe<'a>(stats: &MallocStats, line: &'a mut [u8]) -> &'a [u8] {
    let mut cursor = Cursor::new(&mut *line);
    let rows: [(&str, u64); 12] = [
        ("heaps", stats.heap_count as u64),
        ("orphans", stats.abandoned_count as u64),
        ("live", stats.live_count as u64),
        ("live_bytes", stats.live_bytes as u64),
        ("cached_bytes", stats.cached_bytes as u64),
        ("waste_bytes", stats.waste_bytes as u64),
        ("heap_chunk_bytes", stats.heap_chunk_bytes as u64),
        ("chunk_bytes", stats.chunk_bytes as u64),
        ("dirty_bytes", stats.dirty_bytes as u64),
        ("reserved_bytes", stats.reserved_bytes as u64),
        ("mapped", stats.mapped_count as u64),
        ("mapped_bytes", stats.mapped_bytes as u64),
    ];
    // The line is longer than 12 names and numbers of 20 digits can be.
    let _ = cursor.write_all(b"mempool:");
    for (name, number) in rows {
        let _ = write!(cursor, " {name}={number}");
    }
    let _ = cursor.write_all(b"\n");
    let len = cursor.position() as usize;
    &line[..len]
}

#[cfg(test)]
#[path = "tests/environment.rs"]
mod tests;

//! The end of a process whose heap is broken: one written line, then abort.
//!
//! On the path: only where a free or a realloc meets something that was never lent.
//! Absent on purpose: unwinding and formatting. Both allocate, and the caller is C.
#![allow(unsafe_code)]
use std::io::Write as _;
use std::process;

/// A pointer that malloc never returned, or that was freed before.
#[cold]
pub(super) fn foreign_pointer(address: usize) -> ! {
    let mut digits = [0; 16];
    let text = hexadecimal(address, &mut digits);
    let parts = [
        b"millpond malloc: free or realloc of 0x".as_slice(),
        text,
        b", which malloc did not return, or which is free already; MEMPOOL_CHECKS=1 finds out more\n",
    ];
    end(&parts)
}

/// Writes the parts as one line and aborts.
#[cold]
pub(super) fn end(parts: &[&[u8]; 3]) -> ! {
    for part in parts {
        // SAFETY: the pointer and length are one slice's. A closed standard error is no reason not
        // to abort.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
    process::abort()
}

fn hexadecimal(number: usize, digits: &mut [u8; 16]) -> &[u8] {
    let mut cursor = std::io::Cursor::new(digits.as_mut_slice());
    // A number of 64 bits has at most 16 digits.
    let _ = write!(cursor, "{number:x}");
    let len = cursor.position() as usize;
    &digits[..len]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: addresses are written as they are.
    #[test]
    fn addresses_in_hexadecimal() {
        let mut digits = [0; 16];
        assert_eq!(hexadecimal(0, &mut digits), b"0");
        assert_eq!(hexadecimal(0x7f00_dead_beef, &mut digits), b"7f00deadbeef");
        assert_eq!(hexadecimal(usize::MAX, &mut digits), b"ffffffffffffffff");
    }
}

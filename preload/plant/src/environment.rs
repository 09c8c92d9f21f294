//! A number from the environment, in an object that has no standard library. `preload/trim` has this file too.

use core::ffi::{CStr, c_char};

#[link(name = "c")]
unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
}

/// The variable's value; 0 if it is absent or no number. For the start of a program, while it has one thread.
pub(crate) fn number(name: &CStr) -> u64 {
    // SAFETY: the name ends in NUL; no other thread exists yet that could change the environment.
    let value = unsafe { getenv(name.as_ptr()) };
    if value.is_null() {
        return 0;
    }
    // SAFETY: getenv gives a string that ends in NUL and lives as long as the environment.
    parse(unsafe { CStr::from_ptr(value) }.to_bytes())
}

fn parse(text: &[u8]) -> u64 {
    let text = core::str::from_utf8(text).unwrap_or_default();
    text.parse().unwrap_or(0)
}

#[cfg(test)]
#[path = "tests/environment.rs"]
mod tests;

//! `glibc+trim=30s`: the C library's malloc, and a thread that gives its free memory back at an interval.
//!
//! The thread is a preloaded object of ours (`preload/trim`), so the server needs no change. Its calls hold the arenas'
//! locks: that cost shows in the tail of the latency.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use millpond_measure::units::parse_duration_ns;

use crate::embedded;
use crate::embedded::{PrivateDirectory, SharedObject};

use super::{Allocator, AllocatorError, GLIBC};

/// Stands between the allocator and the interval.
pub(super) const MARK: &str = "+trim";
/// Read by the object.
const INTERVAL_VARIABLE: &str = "MILLPOND_TRIM_INTERVAL_MS";
const NS_PER_MS: u64 = 1_000_000;

/// The object, as long as anybody has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Trim {
    pub(super) object: PathBuf,
    written: Arc<PrivateDirectory>,
}

/// Gives `allocator` the thread. `text` is what stands behind the mark, `=30s`; `word` what the user wrote.
pub(super) fn give(
    allocator: &mut Allocator,
    word: &str,
    text: &str,
) -> Result<(), AllocatorError> {
    let refused = |reason: String| AllocatorError::Trim {
        word: word.to_owned(),
        reason,
    };
    if super::base_name(&allocator.name) != GLIBC {
        return Err(refused(format!(
            "malloc_trim is a function of the C library's malloc, which {} is not",
            allocator.name
        )));
    }
    let interval = text
        .strip_prefix('=')
        .ok_or_else(|| refused("the interval is missing".to_owned()))?;
    let interval_ns = parse_duration_ns(interval).map_err(|error| refused(error.to_string()))?;
    if interval_ns < NS_PER_MS || interval_ns % NS_PER_MS != 0 {
        return Err(refused(format!("{interval} is not whole milliseconds")));
    }
    let written =
        write().map_err(|error| refused(format!("its object cannot be written: {error}")))?;
    allocator.name = format!("{}{MARK}={interval}", allocator.name);
    let interval_ms = (interval_ns / NS_PER_MS).to_string();
    let variable = (INTERVAL_VARIABLE.to_owned(), interval_ms);
    allocator.environment.push(variable);
    allocator.trim = Some(written);
    Ok(())
}

/// The object out of this program.
fn write() -> io::Result<Trim> {
    static OBJECT: SharedObject = SharedObject::new(embedded::TRIM);
    let (object, written) = OBJECT.write()?;
    Ok(Trim { object, written })
}

#[cfg(test)]
#[path = "tests/trim.rs"]
mod tests;

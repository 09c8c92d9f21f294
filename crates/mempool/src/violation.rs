//! A violation caught by a checked pool, as one sentence that is written without allocating.
//!
//! `checked_memory` finds it; a pool panics with it, and where the pools are malloc, and a panic would allocate, it
//! goes to the standard error and the process aborts. After one violation the memory's content cannot be trusted.
use std::{fmt, io};

/// A rule of memory that the program broke, with the block it broke it on.
///
/// `allocation` counts the pool's allocations from 1: with `fail_at` one below it, or a breakpoint,
/// the same run stops where the block was made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Violation {
    /// A block was freed again before its memory was reused.
    DoubleFree {
        /// The pool's name.
        pool: &'static str,
        /// The block's first byte.
        address: usize,
        /// Bytes that were asked for.
        size_bytes: usize,
        /// Which of the pool's allocations made the block.
        allocation: u64,
    },
    /// A block was written to after it was freed.
    UseAfterFree {
        /// The pool's name.
        pool: &'static str,
        /// The block's first byte.
        address: usize,
        /// Bytes that were asked for.
        size_bytes: usize,
        /// The first byte that changed, counted from the block's first; below 0 before the block.
        offset_bytes: isize,
        /// Which of the pool's allocations made the block; none when that is forgotten, because
        /// the block left the quarantine before it was written to.
        allocation: Option<u64>,
    },
    /// An address was freed that is not the first byte of a block the pool has lent.
    ForeignPointer {
        /// The name of the pool it was given to.
        pool: &'static str,
        /// The address.
        address: usize,
        /// Knowledge about it.
        origin: Origin,
    },
    /// Bytes beside a block were overwritten.
    Overrun {
        /// The pool's name.
        pool: &'static str,
        /// The block's first byte.
        address: usize,
        /// Bytes that were asked for.
        size_bytes: usize,
        /// The overwritten byte nearest to the block, counted from the block's first byte: below
        /// 0, or `size_bytes` and above.
        offset_bytes: isize,
        /// Which of the pool's allocations made the block.
        allocation: u64,
    },
    /// A block was freed with another size than it was asked for with.
    WrongSize {
        /// The pool's name.
        pool: &'static str,
        /// The block's first byte.
        address: usize,
        /// Bytes that were asked for.
        size_bytes: usize,
        /// Bytes it was freed with.
        freed_bytes: usize,
        /// Which of the pool's allocations made the block.
        allocation: u64,
    },
}

/// Knowledge about an address that is not the first byte of a lent block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Origin {
    /// No checked pool has it.
    Unknown,
    /// It is memory of the pool, but of no block: freed so long ago that it left the quarantine,
    /// or never lent.
    Forgotten,
    /// It lies inside a block of the pool, behind its first byte.
    Inside {
        /// The block's first byte.
        address: usize,
        /// Bytes that were asked for.
        size_bytes: usize,
    },
    /// Another checked pool lent it.
    OtherPool {
        /// That pool's name.
        pool: &'static str,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::DoubleFree {
                pool,
                address,
                size_bytes,
                allocation,
            } => write!(
                formatter,
                "double free in pool {pool}: the block of {size_bytes} bytes at {address:#x} \
                 (allocation {allocation}) was freed before: let one owner alone free it"
            ),
            Self::UseAfterFree {
                pool,
                address,
                size_bytes,
                offset_bytes,
                allocation,
            } => {
                write!(
                    formatter,
                    "use after free in pool {pool}: byte {offset_bytes} of the block of \
                     {size_bytes} bytes at {address:#x} "
                )?;
                match allocation {
                    Some(allocation) => write!(formatter, "(allocation {allocation})")?,
                    None => formatter.write_str("(whose allocation is forgotten)")?,
                }
                formatter.write_str(
                    " was written after the block was freed: end that use before the free; with \
                     guard pages the write itself faults",
                )
            }
            Self::ForeignPointer {
                pool,
                address,
                origin,
            } => write!(
                formatter,
                "foreign pointer in pool {pool}: {address:#x} was freed, {origin}"
            ),
            Self::Overrun {
                pool,
                address,
                size_bytes,
                offset_bytes,
                allocation,
            } => {
                let (name, distance, place) = beside(offset_bytes, size_bytes);
                write!(
                    formatter,
                    "{name} in pool {pool}: byte {distance} {place} the block of {size_bytes} \
                     bytes at {address:#x} (allocation {allocation}, offset {offset_bytes}) was \
                     overwritten: ask for more bytes or write fewer; with guard pages the write \
                     itself can fault"
                )
            }
            Self::WrongSize {
                pool,
                address,
                size_bytes,
                freed_bytes,
                allocation,
            } => write!(
                formatter,
                "wrong size in pool {pool}: the block of {size_bytes} bytes at {address:#x} \
                 (allocation {allocation}) was freed as one of {freed_bytes} bytes: free it with \
                 the size it was asked for"
            ),
        }
    }
}

impl std::error::Error for Violation {}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unknown => formatter.write_str(
                "which no checked pool has lent: free it where it came from, each block once",
            ),
            Self::Forgotten => formatter.write_str(
                "which is the pool's memory but no lent block: freed long ago, or never lent; free \
                 each block once",
            ),
            Self::Inside {
                address,
                size_bytes,
            } => write!(
                formatter,
                "which lies inside the block of {size_bytes} bytes at {address:#x}: free a block \
                 by its first byte"
            ),
            Self::OtherPool { pool } => {
                write!(formatter, "which pool {pool} has lent: free it there")
            }
        }
    }
}

/// The name of damage beside a block, its distance, counted from 1, and its side.
fn beside(offset_bytes: isize, size_bytes: usize) -> (&'static str, usize, &'static str) {
    match usize::try_from(offset_bytes) {
        Ok(offset_bytes) => (
            "overrun",
            offset_bytes.saturating_sub(size_bytes) + 1,
            "behind",
        ),
        Err(_) => ("underrun", offset_bytes.unsigned_abs(), "before"),
    }
}

/// How pools handle a violation.
///
/// Where the thread is panicking already a second panic would show no message, so it aborts.
pub(crate) fn panic_with(violation: &Violation) -> ! {
    if std::thread::panicking() {
        abort_with(violation);
    }
    panic!("{violation}");
}

/// How malloc handles one: a line on the standard error, without allocating, then abort.
pub(crate) fn abort_with(violation: &Violation) -> ! {
    let mut line = Line::new();
    // A sentence too long for the line is cut; the cut cannot be reported.
    let _ = fmt::Write::write_fmt(&mut line, format_args!("millpond: {violation}\n"));
    let mut rest = line.bytes();
    while let Ok(count @ 1..) = rustix::io::write(io::stderr(), rest) {
        rest = &rest[count..];
    }
    std::process::abort();
}

/// Room for one sentence, on the stack.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    const fn new() -> Self {
        Self {
            bytes: [0; 512],
            len: 0,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len..];
        let count = text.len().min(room.len());
        room[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.len += count;
        if count == text.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

#[cfg(test)]
#[path = "tests/violation.rs"]
mod tests;

//! Aligned memory from the operating system.
//!
//! On the path: `chunk_store` maps segments for the blocks of all pools, `slot_table` cuts chunks
//! into slots and unmaps idle ones, and `buffer_pool` takes one long chunk for all its buffers and
//! discards the pages of idle ones.
//! A chunk is 64 KiB at a multiple of 64 KiB, so the chunk of any address is found by clearing 16
//! bits. It carries no header: 32 KiB blocks fill it twice, and the pages of a tail that no block
//! covers are never touched, hence never resident.
//! Absent on purpose: a cache of chunks. Who gives one back wants the system to have it.
#![allow(unsafe_code)]
use crate::PoolError;
use crate::pages::{self, Access};
use std::ptr::NonNull;

/// Size and alignment of a chunk.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;

/// Zeroed memory, aligned to `CHUNK_BYTES`, given back when dropped.
/// Invariant: `start..start + size_bytes` is mapped readable and writable and nobody else's.
#[derive(Debug)]
pub(crate) struct Chunk {
    start: NonNull<u8>,
    size_bytes: usize,
}

// SAFETY: a chunk is a range of addresses that only its holder uses; nothing in it depends on the
// thread, and all access goes through its holder's own unsafe code.
unsafe impl Send for Chunk {}
// SAFETY: a shared reference gives away two numbers and no access.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Maps `CHUNK_BYTES`. One system call, at first use of an address range up to five.
    pub(crate) fn map() -> Result<Self, PoolError> {
        Self::map_long(CHUNK_BYTES)
    }

    /// Maps `size_bytes`, a multiple of `CHUNK_BYTES`, in one piece.
    pub(crate) fn map_long(size_bytes: usize) -> Result<Self, PoolError> {
        Self::map_aligned(size_bytes, CHUNK_BYTES)
    }

    /// Maps `size_bytes`, a multiple of `CHUNK_BYTES`, at a multiple of `align_bytes`, a power of
    /// two that is one as well.
    pub(crate) fn map_aligned(size_bytes: usize, align_bytes: usize) -> Result<Self, PoolError> {
        debug_assert!(size_bytes > 0 && size_bytes.is_multiple_of(CHUNK_BYTES));
        debug_assert!(align_bytes.is_power_of_two() && align_bytes >= CHUNK_BYTES);
        let start = map_pages(size_bytes)?;
        if start.addr().get().is_multiple_of(align_bytes) {
            return Ok(Self { start, size_bytes });
        }
        // The kernel places mappings side by side, so once one is aligned its neighbours are too:
        // this detour is taken seldom.
        unmap_pages(start, size_bytes);
        let long_bytes = size_bytes
            .checked_add(align_bytes)
            .ok_or(PoolError::OutOfMemory {
                requested_bytes: size_bytes,
            })?;
        let long = map_pages(long_bytes)?;
        let before_bytes = long.addr().get().next_multiple_of(align_bytes) - long.addr().get();
        // SAFETY: `before_bytes` is below `align_bytes` and `long` has that many bytes more than the
        // chunk, so both points lie inside the mapping or at its end.
        let (start, end) = unsafe {
            let start = long.add(before_bytes);
            (start, start.add(size_bytes))
        };
        if before_bytes > 0 {
            unmap_pages(long, before_bytes);
        }
        if before_bytes < align_bytes {
            unmap_pages(end, align_bytes - before_bytes);
        }
        Ok(Self { start, size_bytes })
    }

    /// The chunk whose dropping was prevented: it will be given back when this one is dropped.
    ///
    /// # Safety
    /// `start` and `size_bytes` are those of a chunk that was forgotten, and nobody uses it.
    pub(crate) unsafe fn from_raw(start: NonNull<u8>, size_bytes: usize) -> Self {
        Self { start, size_bytes }
    }

    /// The first byte.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes reserved.
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        unmap_pages(self.start, self.size_bytes);
    }
}

/// Gives the pages of `start..start + size_bytes` back; the addresses stay, and read as zero.
/// `false` where the system refuses, as it does for locked pages: they stay, with what is in them.
///
/// # Safety
/// The range is whole pages of a chunk whose holder calls, and nobody needs what is in it.
pub(crate) unsafe fn discard(start: NonNull<u8>, size_bytes: usize) -> bool {
    #[cfg(test)]
    DISCARDS.set(DISCARDS.get() + 1);
    // SAFETY: the caller's promise.
    unsafe { pages::discard(start, size_bytes) }
}

#[cfg(test)]
thread_local! {
    /// How often the calling thread called `discard`.
    pub(crate) static DISCARDS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

fn map_pages(size_bytes: usize) -> Result<NonNull<u8>, PoolError> {
    pages::map(size_bytes, Access::Full).ok_or(PoolError::OutOfMemory {
        requested_bytes: size_bytes,
    })
}

/// Gives back whole pages this file has mapped and nobody uses any more.
fn unmap_pages(start: NonNull<u8>, size_bytes: usize) {
    // SAFETY: private to this file, which passes only ranges it mapped and owns, each once; ends
    // are multiples of the page size, since mappings begin at one and CHUNK_BYTES is one.
    let unmapped = unsafe { pages::unmap(start, size_bytes) };
    // Cutting a mapping in two can pass the kernel's limit on their number. The pages stay mapped
    // then, unused; nothing the caller holds is affected, so there is nothing to report to it.
    debug_assert!(unmapped, "the system keeps {size_bytes} bytes mapped");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: chunks are aligned, zeroed, usable to the last byte, and never overlap, also when the
    /// kernel would have placed them off the boundary.
    #[test]
    fn chunks_are_aligned_zeroed_and_apart() {
        let nudge = map_pages(4096).unwrap();
        let chunks: Vec<Chunk> = (1..9)
            .map(|count| Chunk::map_long(count * CHUNK_BYTES).unwrap())
            .collect();
        for (mark, chunk) in (1..).zip(&chunks) {
            assert!(chunk.start().addr().get().is_multiple_of(CHUNK_BYTES));
            // SAFETY: the range is the chunk's own and no reference to it exists.
            unsafe {
                let last = chunk.start().add(chunk.size_bytes() - 1);
                assert_eq!((chunk.start().read(), last.read()), (0, 0));
                chunk.start().write_bytes(mark, chunk.size_bytes());
            }
        }
        for (mark, chunk) in (1_u8..).zip(&chunks) {
            // SAFETY: the loop above initialised all of it.
            let last = unsafe { chunk.start().add(chunk.size_bytes() - 1).read() };
            assert_eq!(last, mark);
        }
        unmap_pages(nudge, 4096);
    }

    /// Goal: discarded pages are gone, their neighbours are not, and the place is usable again; a
    /// refusal is told and leaves everything as it was.
    #[test]
    fn discarded_pages_are_gone() {
        let chunk = Chunk::map_long(2 * CHUNK_BYTES).unwrap();
        // SAFETY: the chunk is this test's; the second range is no whole pages, which the system
        // refuses.
        unsafe {
            chunk.start().write_bytes(7, 2 * CHUNK_BYTES);
            let second = chunk.start().add(CHUNK_BYTES);
            assert!(discard(second, CHUNK_BYTES));
            assert_eq!((second.sub(1).read(), second.read()), (7, 0));
            second.write(8);
            assert!(cfg!(miri) || !discard(second.add(1), 4096));
            assert_eq!(second.read(), 8);
        }
    }

    /// Goal: a size the system cannot give is an error, not a crash.
    #[test]
    fn impossible_size_is_refused() {
        let requested_bytes = 1 << 62;
        assert_eq!(
            Chunk::map_long(requested_bytes).err(),
            Some(PoolError::OutOfMemory { requested_bytes })
        );
    }
}

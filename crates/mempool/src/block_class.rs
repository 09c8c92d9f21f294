//! One size class: its chunks, its free blocks, and the block being cut next.
//!
//! On the path: `local_pool` allocates from and frees to one of these.
//! A block is in one of three places, and the counts say so:
//! `chunks * blocks_per_chunk = live + free + uncut`.
//! Chunks are cut from low to high as blocks are wanted, so pages never wanted are never touched.
//! Absent on purpose: a count of free blocks per chunk. It would cost a cache miss on every
//! allocate and free, and only `release_idle` wants it, which counts for itself.
#![allow(unsafe_code)]
use crate::PoolError;
use crate::chunk::{CHUNK_BYTES, Chunk};
use crate::free_list::FreeList;
use std::ptr::NonNull;

/// How many of the chunks without a live block to give back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Release {
    /// Half, rounded up: a pool swept regularly shrinks soon, a burst does not find it bare.
    Half,
    /// All of them.
    All,
}

/// A chunk of a class. Its numbers mean something during `release_idle` only.
struct OwnedChunk {
    chunk: Chunk,
    free_count: usize,
    leaving: bool,
}

/// Blocks of one size.
/// Invariant: `chunks` is sorted by address; the `uncut_count` blocks from `uncut` on are the last
/// of one chunk of it and have never been lent; every other block is live or in `free`.
#[repr(C)]
pub(crate) struct BlockClass {
    free: FreeList,
    /// Blocks lent, ever, without and with a new chunk, and blocks taken back, ever. What is live
    /// is the difference: that leaves one count to write per call.
    hits: u64,
    misses: u64,
    returns: u64,
    block_bytes: usize,
    uncut: NonNull<u8>,
    uncut_count: usize,
    chunks: Vec<OwnedChunk>,
}

impl BlockClass {
    /// A class without memory.
    pub(crate) const fn new(block_bytes: usize) -> Self {
        Self {
            free: FreeList::new(),
            uncut: NonNull::dangling(),
            uncut_count: 0,
            block_bytes,
            hits: 0,
            misses: 0,
            returns: 0,
            chunks: Vec::new(),
        }
    }

    /// A block the class already has: the newest free one, else the next uncut one.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<NonNull<u8>> {
        let block = match self.free.pop() {
            Some(block) => block,
            None => self.cut()?,
        };
        self.hits += 1;
        Some(block)
    }

    /// A block of a new chunk. Only when `take` found nothing.
    pub(crate) fn take_from_new_chunk(&mut self) -> Result<NonNull<u8>, PoolError> {
        self.add_chunk()?;
        self.misses += 1;
        Ok(self.cut().expect("a new chunk holds at least two blocks"))
    }

    fn cut(&mut self) -> Option<NonNull<u8>> {
        self.uncut_count = self.uncut_count.checked_sub(1)?;
        let block = self.uncut;
        // SAFETY: by the invariant a whole block lay at `uncut`, so its end is inside the chunk or
        // one past it.
        self.uncut = unsafe { block.add(self.block_bytes) };
        Some(block)
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// `take` of this class gave the block out, and nobody uses it any more.
    #[inline]
    pub(crate) unsafe fn put(&mut self, block: NonNull<u8>) {
        self.returns += 1;
        // SAFETY: blocks are at least 64 bytes, 16-aligned, inside a mapped chunk; unused now.
        unsafe { self.free.push(block) };
    }

    fn add_chunk(&mut self) -> Result<(), PoolError> {
        assert_eq!(
            self.uncut_count, 0,
            "a chunk is cut to its end before the next one is asked for"
        );
        let refused = PoolError::OutOfMemory {
            requested_bytes: CHUNK_BYTES,
        };
        // The free list counts in 32 bits: 256 GiB of the smallest blocks.
        let block_count = (self.chunks.len() + 1).saturating_mul(self.blocks_per_chunk());
        u32::try_from(block_count).map_err(|_| refused)?;
        self.chunks.try_reserve(1).map_err(|_| refused)?;
        let chunk = Chunk::map()?;
        self.uncut = chunk.start();
        self.uncut_count = self.blocks_per_chunk();
        let place = self
            .chunks
            .partition_point(|owned| owned.chunk.start() < chunk.start());
        self.chunks.insert(
            place,
            OwnedChunk {
                chunk,
                free_count: 0,
                leaving: false,
            },
        );
        Ok(())
    }

    /// Gives chunks without a live block back to the system; returns how many.
    /// O(free blocks * log chunks).
    pub(crate) fn release_idle(&mut self, release: Release) -> usize {
        let blocks_per_chunk = self.blocks_per_chunk();
        if self.free.len() + self.uncut_count < blocks_per_chunk {
            return 0;
        }
        // The chunk being cut counts its uncut blocks as free. One cut to its end has none, and
        // `uncut` points past it, perhaps into a chunk beside it.
        let uncut_home = (self.uncut_count > 0).then(|| find(&self.chunks, self.uncut));
        for (index, owned) in self.chunks.iter_mut().enumerate() {
            owned.leaving = false;
            owned.free_count = if uncut_home == Some(index) {
                self.uncut_count
            } else {
                0
            };
        }
        let chunks = &mut self.chunks;
        self.free.for_each(|block| {
            let home = find(chunks, block);
            chunks[home].free_count += 1;
        });
        let is_idle = |owned: &OwnedChunk| owned.free_count == blocks_per_chunk;
        let idle_count = chunks.iter().filter(|owned| is_idle(owned)).count();
        let leaving_count = match release {
            Release::Half => idle_count.div_ceil(2),
            Release::All => idle_count,
        };
        if leaving_count == 0 {
            return 0;
        }
        for owned in chunks
            .iter_mut()
            .filter(|owned| is_idle(owned))
            .take(leaving_count)
        {
            owned.leaving = true;
        }
        self.free
            .retain(|block| !chunks[find(chunks, block)].leaving);
        if uncut_home.is_some_and(|home| chunks[home].leaving) {
            self.uncut = NonNull::dangling();
            self.uncut_count = 0;
        }
        chunks.retain(|owned| !owned.leaving);
        leaving_count
    }

    /// Size of every block.
    pub(crate) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Blocks lent.
    pub(crate) fn live_count(&self) -> usize {
        (self.hits + self.misses - self.returns) as usize
    }

    /// Blocks lent, ever, without asking for memory.
    pub(crate) fn hits(&self) -> u64 {
        self.hits
    }

    /// Blocks lent, ever, for which a chunk was mapped.
    pub(crate) fn misses(&self) -> u64 {
        self.misses
    }

    /// Blocks that can be lent without asking for memory.
    pub(crate) fn cached_count(&self) -> usize {
        self.free.len() + self.uncut_count
    }

    /// Bytes at the ends of chunks, too short for a block.
    pub(crate) fn tail_bytes(&self) -> usize {
        self.chunks.len() * (CHUNK_BYTES % self.block_bytes)
    }

    fn blocks_per_chunk(&self) -> usize {
        CHUNK_BYTES / self.block_bytes
    }
}

/// Which of the sorted chunks holds the block.
fn find(chunks: &[OwnedChunk], block: NonNull<u8>) -> usize {
    let after = chunks.partition_point(|owned| owned.chunk.start() <= block);
    after
        .checked_sub(1)
        .expect("every block of a class lies in one of its chunks")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(class: &mut BlockClass) -> NonNull<u8> {
        class
            .take()
            .unwrap_or_else(|| class.take_from_new_chunk().unwrap())
    }

    /// Goal: idle chunks leave, chunks with one live block stay, and what is left still serves
    /// distinct blocks; for a class that divides the chunk and one that leaves a tail.
    #[test]
    fn release_takes_exactly_the_idle_chunks() {
        for block_bytes in [16 * 1024, 12 * 1024] {
            let mut class = BlockClass::new(block_bytes);
            let per_chunk = CHUNK_BYTES / block_bytes;
            let blocks: Vec<NonNull<u8>> = (0..4 * per_chunk).map(|_| take(&mut class)).collect();
            // One block of chunk 0 and all of chunk 1 stay live; chunks 2 and 3 become idle.
            let (live, freed): (Vec<_>, Vec<_>) = blocks
                .iter()
                .enumerate()
                .partition(|(index, _)| *index == 0 || index / per_chunk == 1);
            for (_, block) in freed {
                // SAFETY: taken above and used by nobody.
                unsafe { class.put(*block) };
            }
            assert_eq!(class.release_idle(Release::Half), 1);
            assert_eq!(class.release_idle(Release::Half), 1);
            assert_eq!(class.release_idle(Release::All), 0);
            assert_eq!(class.cached_count(), per_chunk - 1);
            let mut all: Vec<NonNull<u8>> = live.into_iter().map(|(_, block)| *block).collect();
            all.extend((0..per_chunk + 1).map(|_| take(&mut class)));
            all.sort();
            for pair in all.windows(2) {
                assert!(pair[1].addr().get() - pair[0].addr().get() >= block_bytes);
            }
        }
    }

    /// Goal: a half-cut chunk without live blocks is idle too, and the class works on after it left.
    #[test]
    fn half_cut_chunk_can_leave() {
        let mut class = BlockClass::new(1024);
        let block = take(&mut class);
        assert_eq!(class.release_idle(Release::All), 0);
        // SAFETY: taken above and used by nobody.
        unsafe { class.put(block) };
        assert_eq!(class.release_idle(Release::All), 1);
        assert_eq!((class.cached_count(), class.take()), (0, None));
        take(&mut class);
        assert_eq!((class.cached_count(), class.live_count()), (63, 1));
    }
}

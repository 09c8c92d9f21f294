//! The owner's records of one chunk of blocks: which blocks are free, and which of its pages are idle.
//!
//! `block_class` refills the front list from a shelf and spills back to it; its sweep gives back
//! pages of chunks that one live block keeps from going back whole. A block that is home is in
//! `free`, or it begins in a page of `uncut`: one never cut since the chunk was empty, or given
//! back since. Such a page is cut into blocks again when they are wanted, so blocks given back need
//! no list of their own, and a list never runs through missing memory. How many free blocks reach
//! into each page is counted as they come, so that a sweep need not walk them: they are cold, and
//! walking them cost more than all else a sweep does.
#![allow(unsafe_code)]
use crate::chunk::{CHUNK_BYTES, discard};
use crate::free_list::FreeList;
use std::ops::Range;
use std::ptr::NonNull;

/// The unit of cutting and giving back.
const PAGE_BYTES: usize = 4096;
const PAGE_COUNT: usize = CHUNK_BYTES / PAGE_BYTES;

/// Some of a chunk's pages, a bit each.
type Pages = u16;
const _: () = assert!(PAGE_COUNT == Pages::BITS as usize);

/// One chunk's blocks, from the owner's side.
/// Invariant: of the chunk's blocks `out_count` are lent or in the front list; of those that are
/// home, exactly the ones that begin in a page of `uncut` are not in `free`, which has `free_count`,
/// `free_counts[page]` of them reaching into each page.
pub(crate) struct ChunkShelf {
    free: FreeList,
    free_count: u32,
    out_count: u32,
    free_counts: [u16; PAGE_COUNT],
    uncut: Pages,
    /// Pages that no block away from home reached into at the last sweep, nor since.
    idle: Pages,
    /// Pages known to have no memory. Nothing but blocks at home reach into them.
    absent: Pages,
    /// Whether blocks were returned or lent since the last sweep.
    has_news: bool,
}

impl ChunkShelf {
    /// The books before a chunk has a use.
    pub(crate) const NONE: Self = Self {
        free: FreeList::new(),
        free_count: 0,
        out_count: 0,
        free_counts: [0; PAGE_COUNT],
        uncut: 0,
        idle: 0,
        absent: 0,
        has_news: false,
    };

    /// The records of a chunk whose blocks are all free. `is_absent`: none of it has memory.
    pub(crate) fn new(block_bytes: u32, is_absent: bool) -> Self {
        let begins = |page: &usize| !blocks_beginning_in(*page, block_bytes).is_empty();
        let uncut = (0..PAGE_COUNT)
            .filter(begins)
            .fold(0, |pages, page| pages | 1 << page);
        Self {
            uncut,
            absent: if is_absent { Pages::MAX } else { 0 },
            ..Self::NONE
        }
    }

    /// Starts again, when all blocks are home.
    pub(crate) fn restart(&mut self, block_bytes: u32) {
        debug_assert_eq!(self.out_count, 0);
        *self = Self {
            absent: self.absent,
            ..Self::new(block_bytes, false)
        };
    }

    /// Blocks lent, or in the front list.
    pub(crate) fn out_count(&self) -> u32 {
        self.out_count
    }

    /// Whether a block is home.
    pub(crate) fn has_room(&self) -> bool {
        self.free_count > 0 || self.uncut != 0
    }

    /// Fills the empty front list with the free blocks, or with a page's worth of uncut ones, lowest
    /// address in front; returns how many. `start` is the chunk's.
    ///
    /// # Safety
    /// The chunk at `start` is the caller's, cut into blocks of `block_bytes`, and these are its
    /// books.
    pub(crate) unsafe fn fill(
        &mut self,
        front: &mut FreeList,
        start: NonNull<u8>,
        block_bytes: u32,
    ) -> u32 {
        self.idle = 0;
        self.has_news = true;
        let count = if self.free_count > 0 {
            for page in 0..PAGE_COUNT {
                let is_free_of_them = u16::from(self.free_counts[page] == 0);
                self.absent &= !(1 << page) | is_free_of_them << page;
            }
            self.free_counts = [0; PAGE_COUNT];
            *front = self.free.take();
            std::mem::take(&mut self.free_count)
        } else {
            let page = self.uncut.trailing_zeros() as usize;
            self.uncut &= self.uncut - 1;
            let blocks = blocks_beginning_in(page, block_bytes);
            for index in blocks.clone().rev() {
                // SAFETY: the chunk holds such a block; home and in no list it is unused, and it is
                // aligned as its size and the chunk are.
                unsafe { front.push(start.add((index * block_bytes) as usize)) };
            }
            let end = (blocks.end * block_bytes) as usize;
            for touched in page..end.div_ceil(PAGE_BYTES) {
                self.absent &= !(1 << touched);
            }
            blocks.end - blocks.start
        };
        self.out_count += count;
        count
    }

    /// Takes a block home.
    ///
    /// # Safety
    /// The block is one of this chunk's that was out, and unused.
    pub(crate) unsafe fn put(&mut self, block: NonNull<u8>, block_bytes: u32) {
        // SAFETY: blocks are at least 16 bytes, 8-aligned, and mapped; unused by the caller's
        // promise.
        unsafe { self.free.push(block) };
        let offset = block.addr().get() % CHUNK_BYTES;
        for page in pages_of(offset, block_bytes) {
            self.free_counts[page] += 1;
        }
        self.free_count += 1;
        self.out_count -= 1;
        self.has_news = true;
    }

    /// Gives back half, rounded up, of the pages that were idle all the time since the last sweep,
    /// and sees which are idle now. Walks the chunk's free blocks only when pages go.
    ///
    /// # Safety
    /// As for `fill`; `layout` is that of the chunk's blocks.
    pub(crate) unsafe fn sweep(&mut self, start: NonNull<u8>, layout: &PageLayout) -> SweptPages {
        let leaving = upper_half(self.idle);
        if leaving != 0 {
            self.idle &= !leaving;
            // SAFETY: the caller's promise; no block that is out reaches into an idle page.
            unsafe { self.give_back(leaving, start, layout.block_bytes) };
        }
        if self.has_news {
            self.has_news = false;
            self.idle = self.pages_without_live(layout);
        }
        SweptPages {
            bytes: leaving.count_ones() as usize * PAGE_BYTES,
            runs: (leaving & !(leaving << 1)).count_ones(),
        }
    }

    /// Whether the last sweep found idle pages that the next may give back.
    pub(crate) fn has_idle_pages(&self) -> bool {
        self.idle != 0
    }

    /// Gives back all pages that only blocks at home reach into; returns how many bytes.
    ///
    /// # Safety
    /// As for `sweep`.
    pub(crate) unsafe fn empty_pages(&mut self, start: NonNull<u8>, layout: &PageLayout) -> usize {
        let leaving = self.pages_without_live(layout);
        self.idle = 0;
        self.has_news = false;
        if leaving != 0 {
            // SAFETY: the caller's promise; no block that is out reaches into these pages.
            unsafe { self.give_back(leaving, start, layout.block_bytes) };
        }
        leaving.count_ones() as usize * PAGE_BYTES
    }

    /// Gives pages back. The blocks that begin in them are uncut from now on.
    ///
    /// # Safety
    /// The chunk at `start` is the caller's, and no block that is out reaches into one of the pages.
    unsafe fn give_back(&mut self, leaving: Pages, start: NonNull<u8>, block_bytes: u32) {
        if leaving & !self.uncut != 0 {
            let mut listed = self.free.take();
            while let Some(block) = listed.pop() {
                let offset = block.addr().get() % CHUNK_BYTES;
                let page = offset / PAGE_BYTES;
                if leaving >> page & 1 == 0 {
                    // SAFETY: it was in the list just now, and its first page stays.
                    unsafe { self.free.push(block) };
                } else {
                    self.free_count -= 1;
                    self.uncut |= 1 << page;
                    for page in pages_of(offset, block_bytes) {
                        self.free_counts[page] -= 1;
                    }
                }
            }
        }
        self.absent |= leaving;
        let mut left = leaving;
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let count = (left >> first).trailing_ones() as usize;
            // SAFETY: the pages are the chunk's. Blocks that begin in them are in no list; of others
            // that reach into them, free ones too, only the first bytes matter.
            unsafe { discard(start.add(first * PAGE_BYTES), count * PAGE_BYTES) };
            left &= !(((1_u32 << count) - 1) << first) as Pages;
        }
    }

    /// The pages with memory into which only blocks reach that are home.
    fn pages_without_live(&self, layout: &PageLayout) -> Pages {
        let is_uncut = |page: u8| self.uncut >> page & 1;
        let mut idle = 0;
        for (index, page) in layout.pages.iter().enumerate() {
            let uncut_count = is_uncut(index as u8) * page.beginning_count
                + is_uncut(page.reached_from) * page.reaching_count;
            let all_count = page.beginning_count + page.reaching_count;
            let is_home = self.free_counts[index] + uncut_count == all_count && all_count > 0;
            idle |= Pages::from(is_home) << index;
        }
        idle & !self.absent
    }
}

/// Result of a sweep of one chunk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SweptPages {
    pub(crate) bytes: usize,
    /// Each of them a system call.
    pub(crate) runs: u32,
}

/// How blocks of one size lie on the pages of a chunk.
pub(crate) struct PageLayout {
    block_bytes: u32,
    pages: [PageBlocks; PAGE_COUNT],
}

/// The blocks that reach into a page.
#[derive(Clone, Copy)]
struct PageBlocks {
    /// Those that begin in it.
    beginning_count: u16,
    /// Those that began before it, 0 or 1, and where.
    reaching_count: u16,
    reached_from: u8,
}

impl PageLayout {
    /// The layout for a size.
    pub(crate) fn new(block_bytes: u32) -> Self {
        let block_count = CHUNK_BYTES as u32 / block_bytes;
        let pages = std::array::from_fn(|page| {
            let here = blocks_beginning_in(page, block_bytes);
            let first = (page * PAGE_BYTES) as u32 / block_bytes;
            let is_reached = first < here.start && first < block_count;
            PageBlocks {
                beginning_count: (here.end - here.start) as u16,
                reaching_count: u16::from(is_reached),
                reached_from: ((first * block_bytes) as usize / PAGE_BYTES) as u8,
            }
        });
        Self { block_bytes, pages }
    }
}

/// The pages that a block at this offset reaches into.
fn pages_of(offset: usize, block_bytes: u32) -> Range<usize> {
    let first = offset / PAGE_BYTES;
    first..((offset + block_bytes as usize).div_ceil(PAGE_BYTES)).min(PAGE_COUNT)
}

/// The blocks whose first byte lies in the page.
fn blocks_beginning_in(page: usize, block_bytes: u32) -> Range<u32> {
    let first = |page: usize| ((page * PAGE_BYTES) as u32).div_ceil(block_bytes);
    let block_count = CHUNK_BYTES as u32 / block_bytes;
    first(page).min(block_count)..first(page + 1).min(block_count)
}

/// The upper half of the pages, rounded up.
fn upper_half(pages: Pages) -> Pages {
    let mut half = pages;
    for _ in 0..pages.count_ones() / 2 {
        half &= half - 1;
    }
    half
}

#[cfg(test)]
#[path = "tests/chunk_shelf.rs"]
mod tests;

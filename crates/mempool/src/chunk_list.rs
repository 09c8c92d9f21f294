//! Chunks in a row, linked through their headers.
//!
//! On the path: a class of blocks keeps the chunks with room in one list and the idle ones in
//! another; refilling the front list takes from the first, sweeping releases from the second.
#![allow(unsafe_code)]
use crate::chunk_header::{ChunkHeader, Place};
use std::ptr::NonNull;

/// How finely chunks are told apart by how full they are.
const FULLNESS_STEPS: usize = 32;

/// Chunks of one owner, each in at most one list.
/// Invariant: every listed header's chunk belongs to the list's owner, and `next` and `previous` of
/// neighbours name each other.
pub(crate) struct ChunkList {
    first: Option<NonNull<ChunkHeader>>,
    len: u32,
}

impl ChunkList {
    pub(crate) const fn new() -> Self {
        Self {
            first: None,
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Puts a chunk in front.
    ///
    /// # Safety
    /// The chunk is the list owner's and in no list.
    pub(crate) unsafe fn push(&mut self, header: NonNull<ChunkHeader>) {
        // SAFETY: the caller's promise; the two places are of different chunks and no reference to
        // either outlives its statement.
        unsafe {
            *ChunkHeader::place(header) = Place {
                next: self.first,
                previous: None,
            };
            if let Some(second) = self.first {
                ChunkHeader::place(second).previous = Some(header);
            }
        }
        self.first = Some(header);
        self.len += 1;
    }

    /// Takes a chunk out, wherever it stands.
    ///
    /// # Safety
    /// The chunk is in this list.
    pub(crate) unsafe fn remove(&mut self, header: NonNull<ChunkHeader>) {
        // SAFETY: listed chunks are the owner's, who calls; one place is referred to at a time.
        unsafe {
            let Place { next, previous } =
                std::mem::replace(ChunkHeader::place(header), Place::NONE);
            match previous {
                Some(previous) => ChunkHeader::place(previous).next = next,
                None => self.first = next,
            }
            if let Some(next) = next {
                ChunkHeader::place(next).previous = previous;
            }
        }
        self.len -= 1;
    }

    /// Takes the first chunk out.
    pub(crate) fn pop(&mut self) -> Option<NonNull<ChunkHeader>> {
        let first = self.first?;
        // SAFETY: it is in this list.
        unsafe { self.remove(first) };
        Some(first)
    }

    /// Puts the chunks with the most blocks away from home in front, roughly: into one of
    /// `FULLNESS_STEPS` steps. O(chunks).
    pub(crate) fn order_by_fullness(&mut self, blocks_per_chunk: u32) {
        let mut steps = [const { Self::new() }; FULLNESS_STEPS];
        while let Some(header) = self.pop() {
            // SAFETY: it was this owner's in no list after `pop`, and is so between the two pushes.
            unsafe {
                let out_count = ChunkHeader::shelf(header).out_count() as usize;
                let step = out_count * (FULLNESS_STEPS - 1) / blocks_per_chunk as usize;
                steps[step].push(header);
            }
        }
        for mut step in steps {
            while let Some(header) = step.pop() {
                // SAFETY: as above.
                unsafe { self.push(header) };
            }
        }
    }

    /// The first chunk.
    pub(crate) fn first(&self) -> Option<NonNull<ChunkHeader>> {
        self.first
    }

    /// The chunk behind one of this list.
    ///
    /// # Safety
    /// The chunk is in this list.
    pub(crate) unsafe fn behind(
        &self,
        header: NonNull<ChunkHeader>,
    ) -> Option<NonNull<ChunkHeader>> {
        // SAFETY: listed chunks are the owner's, who calls.
        unsafe { ChunkHeader::place(header).next }
    }

    /// The chunks, first to last. They must stay in the list while this runs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NonNull<ChunkHeader>> {
        std::iter::successors(self.first, |header| {
            // SAFETY: listed chunks are the owner's, who calls.
            unsafe { ChunkHeader::place(*header).next }
        })
    }
}

//! Growable bytes on one pooled block: the `Vec<u8>` of this project.
//!
//! A request that arrives in parts is put together in one, every response is written into one, and `io` owns it until
//! the kernel has taken the last byte. A buffer that must grow gets the pool as an argument, so 32 bytes per idle
//! connection are enough, and no allocation is hidden.
#![allow(unsafe_code)]
use crate::block_pool::BLOCK_BYTES_MAX;
use crate::size_class::POOLED_BYTES_MAX;
use crate::size_class::fill_beginning;
use crate::{Block, BlockPool, PoolError};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::{fmt, ptr, slice};

/// Growable bytes on one block of a [`BlockPool`].
///
/// `Send`: it may travel to another thread and be dropped there. The code that makes it grow must do so
/// on the pool's own thread, where alone the pool can be reached.
///
/// ```
/// use millpond_mempool::{BlockPool, Buffer, PoolMode};
/// let pool = BlockPool::new("bodies", PoolMode::On);
/// let mut body = Buffer::new();
/// body.extend_from_slice(&pool, b"Hello, World!")?;
/// body.consume_front(7);
/// assert_eq!(&*body, b"World!");
/// # Ok::<(), millpond_mempool::PoolError>(())
/// ```
#[derive(Default)]
pub struct Buffer {
    block: Option<Block>,
    /// Invariant: `start <= end <= capacity`, and the block's bytes `start..end` are initialised.
    /// Both are 0 when the buffer is empty, so that consumed room is usable again.
    start: u32,
    end: u32,
}

impl Buffer {
    /// An empty buffer that holds no memory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            block: None,
            start: 0,
            end: 0,
        }
    }

    /// An empty buffer with room for at least `capacity_bytes`. One pool allocation.
    #[inline]
    pub fn with_capacity(pool: &BlockPool, capacity_bytes: usize) -> Result<Self, PoolError> {
        Ok(Self {
            block: Some(pool.allocate(capacity_bytes)?),
            start: 0,
            end: 0,
        })
    }

    /// Bytes in it.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether it holds no bytes. It may still hold a block.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether it holds a block, with bytes or without.
    #[inline]
    #[must_use]
    pub const fn has_block(&self) -> bool {
        self.block.is_some()
    }

    /// Bytes its block holds; 0 without one.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.block.as_ref().map_or(0, Block::capacity)
    }

    /// Bytes that can be appended without moving or growing.
    #[inline]
    #[must_use]
    pub fn spare_bytes(&self) -> usize {
        self.capacity() - self.end as usize
    }

    /// Its bytes.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        let Some(block) = &self.block else { return &[] };
        // SAFETY: bytes `start..end` are inside the block and initialised; while the slice lives
        // the buffer is shared and nothing writes.
        unsafe {
            slice::from_raw_parts(block.start().as_ptr().add(self.start as usize), self.len())
        }
    }

    /// Its bytes.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.len();
        let Some(block) = &mut self.block else {
            return &mut [];
        };
        // SAFETY: as in `as_slice`, and the buffer is borrowed mutably while the slice lives.
        unsafe { slice::from_raw_parts_mut(block.start().as_ptr().add(self.start as usize), len) }
    }

    /// Forgets the bytes, keeps the block.
    #[inline]
    pub const fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// Takes the block of `other`, and none of its bytes, if this buffer has no block.
    ///
    /// ```
    /// # use millpond_mempool::{BlockPool, Buffer, PoolMode};
    /// # let pool = BlockPool::new("bodies", PoolMode::On);
    /// let mut first = Buffer::with_capacity(&pool, 64)?;
    /// first.append_within_capacity(b"mill");
    /// let mut second = Buffer::new();
    /// second.take_block_of(&mut first);
    /// assert!(second.has_block() && second.is_empty() && !first.has_block());
    /// # Ok::<(), millpond_mempool::PoolError>(())
    /// ```
    #[inline]
    pub fn take_block_of(&mut self, other: &mut Self) {
        if self.block.is_none() {
            other.clear();
            self.block = other.block.take();
        }
    }

    /// Drops the bytes and gives the block back, as an idle connection does.
    #[inline]
    pub fn release(&mut self) {
        *self = Self::new();
    }

    /// Keeps the first `len` bytes; nothing happens when there are fewer.
    #[inline]
    pub const fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.end = self.start + len as u32;
            self.rewind_if_empty();
        }
    }

    /// Forgets the first `count` bytes. O(1): their room is used again when the buffer is empty or
    /// must make room.
    ///
    /// # Panics
    /// When `count` is over [`len`](Self::len).
    #[inline]
    pub const fn consume_front(&mut self, count: usize) {
        assert!(count <= self.len(), "more consumed than there is");
        self.start += count as u32;
        self.rewind_if_empty();
    }

    #[inline]
    const fn rewind_if_empty(&mut self) {
        if self.start == self.end {
            self.clear();
        }
    }

    /// Makes room for `additional_bytes` more. Nothing when there is room behind the last byte.
    /// Else, at most O(`len`): moves the bytes to the front where at least as many were consumed,
    /// or takes a block of at least twice the size. Appending is thus O(1) per byte over time.
    /// On an error the buffer is as before.
    #[inline(always)]
    pub fn reserve(&mut self, pool: &BlockPool, additional_bytes: usize) -> Result<(), PoolError> {
        // Asked here, so that nothing is called where there is room.
        if additional_bytes <= self.spare_bytes() {
            return Ok(());
        }
        self.reserve_more(pool, additional_bytes)
    }

    fn reserve_more(&mut self, pool: &BlockPool, additional_bytes: usize) -> Result<(), PoolError> {
        if self.block.is_none() {
            *self = Self::with_capacity(pool, additional_bytes)?;
            return Ok(());
        }
        self.make_room(pool, additional_bytes)
    }

    #[cold]
    fn make_room(&mut self, pool: &BlockPool, additional_bytes: usize) -> Result<(), PoolError> {
        let (start, len, capacity) = (self.start as usize, self.len(), self.capacity());
        let needed_bytes = len.saturating_add(additional_bytes);
        if let Some(block) = &mut self.block
            && needed_bytes <= capacity
            && start >= len
        {
            block.as_uninit_mut().copy_within(start..start + len, 0);
        } else {
            // A refused doubling still leaves the chance that exactly enough is granted.
            let mut grown = match pool.allocate(grown_bytes(capacity, needed_bytes)) {
                Err(PoolError::BudgetExhausted { .. }) => pool.allocate(needed_bytes)?,
                granted => granted?,
            };
            if let Some(block) = &mut self.block {
                let bytes = &block.as_uninit_mut()[start..start + len];
                grown.as_uninit_mut()[..len].copy_from_slice(bytes);
            }
            self.block = Some(grown);
        }
        self.start = 0;
        self.end = len as u32;
        Ok(())
    }

    /// Appends `source`, growing where needed. Its copy, and what [`reserve`](Self::reserve) costs.
    #[inline]
    pub fn extend_from_slice(&mut self, pool: &BlockPool, source: &[u8]) -> Result<(), PoolError> {
        self.reserve(pool, source.len())?;
        self.append_within_capacity(source);
        Ok(())
    }

    /// Appends all `sources` in their order, growing where needed. As [`extend_from_slice`](Self::extend_from_slice)
    /// for each, but room is made and checked once, and nothing is appended on an error.
    #[inline(always)]
    pub fn extend_from_slices<const COUNT: usize>(
        &mut self,
        pool: &BlockPool,
        sources: [&[u8]; COUNT],
    ) -> Result<(), PoolError> {
        // So many bytes do not exist: more than there can be is refused.
        let added_bytes = sources
            .iter()
            .fold(0_usize, |sum, source| sum.saturating_add(source.len()));
        self.reserve(pool, added_bytes)?;
        let Some(block) = &mut self.block else {
            return Ok(());
        };
        let mut place = block.start().as_ptr().wrapping_add(self.end as usize);
        for source in sources {
            // SAFETY: behind `end` there is room for the sum of all lengths, which `reserve` made or
            // refused; it is the buffer's own, so no shared slice overlaps it.
            unsafe {
                ptr::copy_nonoverlapping(source.as_ptr(), place, source.len());
                place = place.add(source.len());
            }
        }
        self.end += added_bytes as u32;
        Ok(())
    }

    /// This buffer and a pool to grow from, as a [`std::io::Write`] that appends: for `write!`, serializers and the
    /// like. Its errors are of the kind `OutOfMemory` and carry the [`PoolError`].
    pub const fn writer<'a>(&'a mut self, pool: &'a BlockPool) -> BufferWriter<'a> {
        BufferWriter { buffer: self, pool }
    }

    /// Appends one byte, growing where needed.
    #[inline]
    pub fn push(&mut self, pool: &BlockPool, byte: u8) -> Result<(), PoolError> {
        self.extend_from_slice(pool, &[byte])
    }

    /// Appends `source`. One copy, no pool call.
    ///
    /// # Panics
    /// When `source` is longer than [`spare_bytes`](Self::spare_bytes).
    #[inline]
    pub fn append_within_capacity(&mut self, source: &[u8]) {
        let room = self.spare_mut();
        assert!(source.len() <= room.len(), "reserve room before appending");
        // SAFETY: the room has that many bytes and is the buffer's own, so `source`, a shared
        // slice, does not overlap it.
        unsafe {
            ptr::copy_nonoverlapping(source.as_ptr(), room.as_mut_ptr().cast(), source.len());
        }
        self.end += source.len() as u32;
    }

    /// Appends all `sources` in their order. As [`append_within_capacity`] for each, but the room is checked once.
    ///
    /// # Panics
    /// When they are together longer than [`spare_bytes`](Self::spare_bytes).
    ///
    /// [`append_within_capacity`]: Self::append_within_capacity
    #[inline]
    pub fn append_all_within_capacity<const COUNT: usize>(&mut self, sources: [&[u8]; COUNT]) {
        let mut room = self.spare_mut();
        let room_bytes = room.len();
        for source in sources {
            let (place, rest) = room.split_at_mut(source.len());
            place.write_copy_of_slice(source);
            room = rest;
        }
        self.end += (room_bytes - room.len()) as u32;
    }

    /// Appends what `fill` writes: it is given the room behind the last byte and returns the part
    /// it initialised, which begins where the room begins. Returns how many bytes were appended.
    /// No pool call: [`reserve`](Self::reserve) before.
    ///
    /// ```
    /// # use millpond_mempool::{BlockPool, Buffer, PoolMode};
    /// # let pool = BlockPool::new("bodies", PoolMode::On);
    /// let mut buffer = Buffer::with_capacity(&pool, 64)?;
    /// buffer.fill_from(|room| Ok::<_, std::io::Error>(room[..5].write_copy_of_slice(b"mills")))?;
    /// assert_eq!(&*buffer, b"mills");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When `fill` returns something else than a beginning of the room.
    pub fn fill_from<E>(
        &mut self,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<&mut [u8], E>,
    ) -> Result<usize, E> {
        let count = fill_beginning(self.spare_mut(), fill)?;
        self.end += count as u32;
        Ok(count)
    }

    #[inline]
    fn spare_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        match &mut self.block {
            Some(block) => &mut block.as_uninit_mut()[self.end as usize..],
            None => &mut [],
        }
    }
}

/// The new capacity of a buffer of `capacity` that must hold `needed_bytes`: twice the old one, but no more than a
/// pooled block while that is enough.
const fn grown_bytes(capacity: usize, needed_bytes: usize) -> usize {
    let most_bytes = if needed_bytes <= POOLED_BYTES_MAX {
        POOLED_BYTES_MAX
    } else {
        BLOCK_BYTES_MAX
    };
    let doubled_bytes = 2 * capacity;
    let wanted_bytes = if doubled_bytes < most_bytes {
        doubled_bytes
    } else {
        most_bytes
    };
    if needed_bytes > wanted_bytes {
        needed_bytes
    } else {
        wanted_bytes
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl fmt::Debug for Buffer {
    /// Sizes only: buffers hold peers' data, which has no place in a log.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Buffer");
        fields
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish()
    }
}

/// Appends to a [`Buffer`]: see [`Buffer::writer`].
#[derive(Debug)]
pub struct BufferWriter<'a> {
    buffer: &'a mut Buffer,
    pool: &'a BlockPool,
}

impl std::io::Write for BufferWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let appended = self.buffer.extend_from_slice(self.pool, bytes);
        appended.map_err(|error| std::io::Error::new(std::io::ErrorKind::OutOfMemory, error))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

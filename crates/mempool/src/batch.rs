//! Freed blocks on their way to their owner, with the list written into the blocks themselves.
//!
//! `outbox` gathers a batch per home, `remote_free` hands whole batches over, and the owner walks
//! [`ReturnedBlocks`].
//!
//! ```text
//!   oldest container            next container           newest container
//!   +------------------+        +------------------+     +------------------+
//!   | next           --+------> | next           --+-->  | next: the batch  |
//!   | tag, block count |        | tag, block count |     |  under this one  |
//!   | block            |        | block            |     | tag, block count |
//!   | block ...        |        | block ...        |     | block ...        |
//!   +------------------+        +------------------+     +------------------+
//! ```
//!
//! Blocks are given out again in the order in which they were freed, container by container. That
//! keeps what was neighbours neighbours, however often they go round: the processor that reads them
//! next fetches ahead, and it fetches what it is going to need. In an order shuffled by reversals
//! it would fetch lines that the other processor is writing to.
//!
//! A container is a freed block that lists as many others as fit after its first 16 bytes. So the owner gets 62 blocks
//! of 512 B by reading one of them, and prefetches the lines that it will write to; in a list through the blocks each
//! would be a cache miss that waits for the one before. Blocks of 16 B have room for no others: each is a container,
//! and four of them share a line.
//!
//! Each block travels with a tag of 16 bits that means something to its pool only, in the bits of
//! its address that no address of a program uses. Freeing must not need any.
#![allow(unsafe_code)]
use std::ptr::{self, NonNull};

/// Minimum size of a block to be sent: it may have to be a container.
pub(crate) const SENT_BYTES_MIN: usize = size_of::<Container>();

/// A batch that reaches one of these is sent. One atomic operation for 64 blocks costs each of them
/// nothing; and no thread keeps more than 64 KiB from a home.
const BLOCKS_MAX: usize = 64;
const BYTES_MAX: usize = 64 * 1024;

/// Blocks up to this size are counted as so many bytes when they are added through [`Slots`]: 64 of
/// them still are no more than a batch may have.
pub(crate) const SMALL_BYTES_MAX: usize = BYTES_MAX / BLOCKS_MAX;

/// Above the addresses of a program, which end at 2^47 or 2^48.
const TAG_SHIFT: u32 = 48;
const _: () = assert!(
    usize::BITS == 64,
    "tags need addresses with 16 bits to spare"
);

/// The unit that processors move between their caches.
pub(crate) const LINE_BYTES: usize = 64;

/// How far ahead of the owner the lines of returned blocks are asked for: far enough for a line to
/// come from another core's cache, near enough not to lose it again.
const BLOCKS_AHEAD: usize = 16;

/// How a container begins. Its slots follow, each one block's address with the block's tag.
pub(crate) struct Container {
    next: *mut Container,
    /// The container's own tag in the upper bits, how many slots are written in the lower 16.
    tag_and_count: usize,
}

/// A block's address and tag in one word; the pointer keeps its right to the block's memory.
fn tagged(block: NonNull<u8>, tag: u16) -> *mut u8 {
    debug_assert_eq!(
        block.addr().get() >> TAG_SHIFT,
        0,
        "an address of a program"
    );
    block
        .as_ptr()
        .map_addr(|address| address | usize::from(tag) << TAG_SHIFT)
}

/// Takes apart what `tagged` has put together.
fn untagged(word: *mut u8) -> (*mut u8, u16) {
    let tag = (word.addr() >> TAG_SHIFT) as u16;
    let block = word.map_addr(|address| address & ((1 << TAG_SHIFT) - 1));
    (block, tag)
}

/// Blocks of one home, to be handed over at once. At least one.
#[must_use = "blocks that are not handed over are lost"]
pub(crate) struct Batch {
    oldest: NonNull<Container>,
    newest: NonNull<Container>,
    block_count: usize,
}

impl Batch {
    /// A batch of a single block.
    ///
    /// # Safety
    /// As for [`GrowingBatch::add`].
    pub(crate) unsafe fn of_one(block: NonNull<u8>, tag: u16) -> Self {
        let mut growing = GrowingBatch::new();
        // SAFETY: the caller's promise, passed on; the size only bounds how many others would fit.
        unsafe {
            let _ = growing.add(block, SENT_BYTES_MIN, tag);
        }
        growing.take().expect("a block was added")
    }

    pub(crate) fn block_count(&self) -> usize {
        self.block_count
    }

    /// The new beginning of the list of batches once this batch is on it.
    pub(crate) fn first(&self) -> *mut Container {
        self.oldest.as_ptr()
    }

    /// Puts the batches that begin with `below` under this one. `below` may be null.
    pub(crate) fn put_onto(&self, below: *mut Container) {
        // SAFETY: the batch's containers are written, and exclusive until it is handed over.
        unsafe { (*self.newest.as_ptr()).next = below };
    }
}

/// Free slots of a batch's newest container, apart from the batch: all that adding a small block needs.
pub(crate) struct Slots {
    next: *mut *mut u8,
    left: usize,
}

impl Slots {
    /// None.
    pub(crate) const NONE: Self = Self {
        next: ptr::null_mut(),
        left: 0,
    };

    /// Whether there is one more.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Writes a block into the next one.
    ///
    /// # Safety
    /// As for [`GrowingBatch::add`] of the batch these are from; the block is of at most
    /// [`SMALL_BYTES_MAX`], and there is one more slot.
    #[inline(always)]
    pub(crate) unsafe fn write(&mut self, block: NonNull<u8>, tag: u16) {
        // SAFETY: the caller promises that the container has room for this slot.
        unsafe {
            self.next.write(tagged(block, tag));
            self.next = self.next.add(1);
        }
        self.left -= 1;
    }
}

/// A batch under way. Invariant: without a `newest`, all else is null or 0. Otherwise the containers from `oldest` to
/// `newest` are linked by `next`; all but `newest` contain their number of slots; `newest` has written those below
/// `slot` and has room for `slots_left` more.
pub(crate) struct GrowingBatch {
    slot: *mut *mut u8,
    slots_left: usize,
    block_count: usize,
    bytes: usize,
    newest: *mut Container,
    oldest: *mut Container,
}

impl GrowingBatch {
    /// Without blocks.
    pub(crate) const fn new() -> Self {
        Self {
            slot: ptr::null_mut(),
            slots_left: 0,
            block_count: 0,
            bytes: 0,
            newest: ptr::null_mut(),
            oldest: ptr::null_mut(),
        }
    }

    /// Adds a block; returns whether the batch is full now. A store into the newest container, or
    /// into the block itself where that has no room.
    ///
    /// # Safety
    /// The block is at least `block_bytes`, which is at least `SENT_BYTES_MIN`; 8-aligned, writable, and not used
    /// elsewhere until the batch's blocks are taken.
    #[inline]
    #[must_use = "a full batch is to be sent"]
    pub(crate) unsafe fn add(&mut self, block: NonNull<u8>, block_bytes: usize, tag: u16) -> bool {
        debug_assert!(block_bytes >= SENT_BYTES_MIN && block.cast::<Container>().is_aligned());
        if self.slots_left > 0 {
            // SAFETY: by the invariant the newest container has room for this slot.
            unsafe {
                self.slot.write(tagged(block, tag));
                self.slot = self.slot.add(1);
            }
            self.slots_left -= 1;
        } else {
            // SAFETY: the caller's promise, passed on.
            unsafe { self.open(block.cast(), block_bytes, tag) };
        }
        self.block_count += 1;
        self.bytes += block_bytes;
        self.block_count >= BLOCKS_MAX || self.bytes >= BYTES_MAX
    }

    /// Where the next small block's slot is, and how many more there are before `add` has to update the batch: at the
    /// latest for the block that fills it.
    pub(crate) fn slots(&self) -> Slots {
        Slots {
            next: self.slot,
            left: self
                .slots_left
                .min((BLOCKS_MAX - 1).saturating_sub(self.block_count)),
        }
    }

    /// Notes that slots were written since `slots` gave them.
    ///
    /// # Safety
    /// `slots` came from this batch, which has not changed since, and only [`Slots::write`] changed
    /// them.
    pub(crate) unsafe fn note_written(&mut self, slots: &Slots) {
        // SAFETY: by the caller's promise `next` is behind `slot` in the same container.
        let count = unsafe { slots.next.offset_from_unsigned(self.slot) };
        self.slot = slots.next;
        self.slots_left -= count;
        self.block_count += count;
        self.bytes += count * SMALL_BYTES_MAX;
    }

    /// Makes a block the newest container.
    ///
    /// # Safety
    /// As for `add`.
    unsafe fn open(&mut self, container: NonNull<Container>, block_bytes: usize, tag: u16) {
        self.close_newest();
        let container = container.as_ptr();
        // SAFETY: the caller promises the room for a container, and as many slots behind it as fit.
        unsafe {
            container.write(Container {
                next: ptr::null_mut(),
                tag_and_count: usize::from(tag) << u16::BITS,
            });
            self.slot = container.add(1).cast();
            match NonNull::new(self.newest) {
                Some(newest) => (*newest.as_ptr()).next = container,
                None => self.oldest = container,
            }
        }
        self.slots_left = (block_bytes - SENT_BYTES_MIN) / size_of::<*mut u8>();
        self.newest = container;
    }

    /// Writes down how many slots the newest container has.
    fn close_newest(&mut self) {
        if self.newest.is_null() {
            return;
        }
        // SAFETY: `slot` is inside the container or at its end, after its beginning; the batch is still exclusive. The
        // count is below BLOCKS_MAX, and its bits are still 0.
        unsafe {
            let first_slot = self.newest.add(1).cast::<*mut u8>();
            (*self.newest).tag_and_count |= self.slot.offset_from_unsigned(first_slot);
        }
    }

    /// The batch as it is, if it has blocks; this one is empty then.
    pub(crate) fn take(&mut self) -> Option<Batch> {
        self.close_newest();
        let taken = std::mem::replace(self, Self::new());
        Some(Batch {
            oldest: NonNull::new(taken.oldest)?,
            newest: NonNull::new(taken.newest)?,
            block_count: taken.block_count,
        })
    }
}

/// The blocks of received batches, each with its tag. Blocks that are not iterated are lost to the pool, which is safe.
/// Invariant: `container` is null, or the `slot_count` slots after it and all containers from `next` on are as their
/// senders wrote them.
pub(crate) struct ReturnedBlocks {
    container: *mut Container,
    slot_count: usize,
    container_tag: u16,
    /// Blocks with this tag or a higher one are longer than a line.
    long_tag: u16,
    next: *mut Container,
}

impl ReturnedBlocks {
    /// None.
    pub(crate) const NONE: Self = Self {
        container: ptr::null_mut(),
        slot_count: 0,
        container_tag: 0,
        long_tag: 0,
        next: ptr::null_mut(),
    };

    /// Whether there is none left.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.container.is_null()
    }

    /// How many are left of the first container, itself included. Their lines have been asked for.
    pub(crate) const fn near_count(&self) -> usize {
        if self.is_empty() {
            0
        } else {
            self.slot_count + 1
        }
    }

    /// The blocks of a list of batches, which may be null; those with `long_tag` or a higher tag are
    /// longer than a cache line.
    ///
    /// # Safety
    /// The list consists of batches that were handed over whole, all their senders' writes happened before this, and
    /// the list is exclusive.
    pub(crate) unsafe fn new(list: *mut Container, long_tag: u16) -> Self {
        let mut blocks = Self {
            long_tag,
            ..Self::NONE
        };
        // SAFETY: the caller's promise is the invariant.
        unsafe { blocks.turn_to(list) };
        blocks
    }

    /// # Safety
    /// `container` is null or begins a list that fulfils the invariant.
    unsafe fn turn_to(&mut self, container: *mut Container) {
        self.container = container;
        if container.is_null() {
            return;
        }
        // SAFETY: by the caller's promise its sender wrote it.
        let header = unsafe { container.read() };
        // By the time the slots are walked, the next container is near.
        prefetch_line(header.next.cast());
        self.next = header.next;
        self.slot_count = header.tag_and_count & usize::from(u16::MAX);
        self.container_tag = (header.tag_and_count >> u16::BITS) as u16;
        for index in self.slot_count.saturating_sub(BLOCKS_AHEAD)..self.slot_count {
            // SAFETY: below `slot_count`.
            self.prefetch(unsafe { self.slot(index) });
        }
    }

    /// Prefetches the lines of a slot's block that the next holder writes first: two, if it has as many. The second
    /// costs the same miss as the first, and is written soon.
    #[inline]
    fn prefetch(&self, slot: *mut u8) {
        let (block, tag) = untagged(slot);
        prefetch_line(block);
        if tag >= self.long_tag {
            prefetch_line(block.wrapping_add(LINE_BYTES));
        }
    }

    /// # Safety
    /// `index` is below `slot_count`.
    #[inline]
    unsafe fn slot(&self, index: usize) -> *mut u8 {
        // SAFETY: by the invariant the slot is written.
        unsafe { self.container.add(1).cast::<*mut u8>().add(index).read() }
    }
}

impl Iterator for ReturnedBlocks {
    type Item = (NonNull<u8>, u16);

    /// A container comes after the blocks it names: a thread that takes it may write over the names.
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let container = NonNull::new(self.container)?;
        let Some(index) = self.slot_count.checked_sub(1) else {
            let tag = self.container_tag;
            // SAFETY: the rest of the list is untouched.
            unsafe { self.turn_to(self.next) };
            return Some((container.cast(), tag));
        };
        self.slot_count = index;
        if let Some(ahead) = index.checked_sub(BLOCKS_AHEAD) {
            // SAFETY: below `index`.
            self.prefetch(unsafe { self.slot(ahead) });
        }
        // SAFETY: `index` was below `slot_count`, and addresses of blocks are not null.
        let (block, tag) = unsafe { untagged(self.slot(index)) };
        // SAFETY: as above.
        Some((unsafe { NonNull::new_unchecked(block) }, tag))
    }
}

/// Prefetches a line for writing: a line prefetched for reading would have to be requested again at the write. Any
/// address is allowed.
#[inline]
fn prefetch_line(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; it reads nothing that the program can observe, and processors without it ignore it. The intrinsic
    // needs a target feature, or prefetches for reading.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

#[cfg(test)]
#[path = "tests/batch.rs"]
mod tests;

//! The buffers the kernel receives into: leases of the shard's pool, offered through a ring.
//!
//! ```text
//! pool --lease--> offered --completion--> bytes of an event --end of tick--> offered again
//! ```
//! A lease is cut into pieces. With incremental buffers a piece is a whole lease, which the kernel
//! fills receive after receive; `filled_bytes` is where the next one begins. Otherwise a piece
//! takes one receive, so pieces are small.
//!
//! Invariant: a piece is either offered to the kernel, or on `consumed` until the tick ends. Bytes
//! of an event stay as they are until then: nobody offers their piece before.
//!
//! Absent on purpose: buffers of one connection. A slow peer must not be able to keep one.
#![allow(unsafe_code)]

use super::ring::Ring;
use crate::driver::features::{DriverFeature, DriverFeatures};
use io_uring::cqueue;
use io_uring::types::BufRingEntry;
use millpond_mempool::{BufferPool, Lease};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

/// The group all receives of a ring take their buffers from.
pub(super) const GROUP: u16 = 0;

/// Bytes of a piece where one takes one receive: most requests are smaller, and larger ones come
/// in several.
const PLAIN_PIECE_BYTES: usize = 4 << 10;

/// Leases kept with the kernel: 512 KiB with the shard's 64 KiB buffers.
const LEASES_MAX: usize = 8;

const _: () = assert!(LEASES_MAX.is_power_of_two() && PLAIN_PIECE_BYTES.is_power_of_two());

/// `IOU_PBUF_RING_INC`.
const INCREMENTAL: u16 = 2;

/// A table of buffers shared with the kernel.
pub(super) struct ReceiveBuffers {
    table: NonNull<BufRingEntry>,
    table_bytes: usize,
    entry_count: u16,
    is_incremental: bool,
    is_registered: bool,
    /// What has been offered since the start, modulo 2^16; the kernel reads it.
    tail: u16,
    leases: Vec<Lease>,
    /// Where each lease begins.
    starts: [*mut u8; LEASES_MAX],
    piece_bytes: usize,
    /// A lease is cut into 2 to the power of this many pieces.
    pieces_shift: u32,
    /// Of an incremental piece, how much has been received into it.
    filled_bytes: Vec<u32>,
    /// Pieces to be offered again when the tick ends.
    consumed: Vec<u16>,
}

impl ReceiveBuffers {
    /// A table without buffers, for leases of `lease_bytes`.
    pub(super) fn new(features: DriverFeatures, lease_bytes: usize) -> Result<Self, Errno> {
        let is_incremental = features.has(DriverFeature::IncrementalBuffers);
        let piece_bytes = if is_incremental {
            lease_bytes
        } else {
            PLAIN_PIECE_BYTES.min(lease_bytes)
        };
        let pieces_shift = (lease_bytes / piece_bytes).ilog2();
        let entry_count = u16::try_from(LEASES_MAX << pieces_shift).map_err(|_| Errno::INVAL)?;
        let page_bytes = rustix::param::page_size();
        let table_bytes =
            (usize::from(entry_count) * size_of::<BufRingEntry>()).next_multiple_of(page_bytes);
        // SAFETY: a new private mapping, which overlaps nothing.
        let table = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                table_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        Ok(Self {
            table: NonNull::new(table.cast()).ok_or(Errno::NOMEM)?,
            table_bytes,
            entry_count,
            is_incremental,
            is_registered: false,
            tail: 0,
            leases: Vec::with_capacity(LEASES_MAX),
            starts: [std::ptr::null_mut(); LEASES_MAX],
            piece_bytes,
            pieces_shift,
            filled_bytes: vec![0; usize::from(entry_count)],
            consumed: Vec::with_capacity(usize::from(entry_count)),
        })
    }

    /// Whether receives can find a buffer.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.is_registered && !self.leases.is_empty()
    }

    /// Makes the table known to the kernel and leases what is missing. What the pool refuses is
    /// asked for again by the next call.
    pub(super) fn provide(&mut self, ring: &Ring, pool: &BufferPool) -> Result<(), Errno> {
        if !self.is_registered {
            self.register(ring)?;
        }
        while self.leases.len() < LEASES_MAX {
            let Ok(mut lease) = pool.lease() else { break };
            let number = self.leases.len();
            let first = number << self.pieces_shift;
            assert!(lease.capacity() >= self.piece_bytes << self.pieces_shift);
            self.starts[number] = lease.as_uninit_mut().as_mut_ptr().cast();
            self.leases.push(lease);
            for piece in first..first + (1 << self.pieces_shift) {
                #[expect(clippy::cast_possible_truncation, reason = "below `entry_count`")]
                self.offer(piece as u16);
            }
        }
        self.publish();
        Ok(())
    }

    /// Whether [`Self::provide`] has something to do.
    #[inline]
    pub(super) fn lacks_leases(&self) -> bool {
        self.leases.len() < LEASES_MAX || !self.is_registered
    }

    fn register(&mut self, ring: &Ring) -> Result<(), Errno> {
        let flags = if self.is_incremental { INCREMENTAL } else { 0 };
        // SAFETY: the table is a mapping of our own, on a page's start, with that many entries. It
        // lives until `unregister` or, when the ring went first, until after it.
        let outcome = unsafe {
            ring.io().submitter().register_buf_ring_with_flags(
                self.table.as_ptr() as u64,
                self.entry_count,
                GROUP,
                flags,
            )
        };
        outcome.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))?;
        self.is_registered = true;
        Ok(())
    }

    /// Takes all buffers back. The kernel must not be receiving.
    pub(super) fn withdraw(&mut self, ring: &Ring) {
        if self.is_registered && ring.io().submitter().unregister_buf_ring(GROUP).is_err() {
            // The kernel may still write: better to lose the memory than to reuse it.
            self.leases.drain(..).for_each(std::mem::forget);
        }
        self.is_registered = false;
        self.tail = 0;
        self.leases.clear();
        self.consumed.clear();
        self.filled_bytes.fill(0);
    }

    /// How much of the pool is with the kernel.
    pub(super) fn leased_bytes(&self) -> usize {
        self.leases.iter().map(Lease::capacity).sum()
    }

    /// The bytes a completion brought, and notes that their piece is used up if it is. `None`: the
    /// completion took no buffer.
    ///
    /// The slice stays valid until [`Self::end_tick`] or [`Self::withdraw`], whatever else is done
    /// with `self`: those two may not be called while it is looked at.
    #[inline]
    pub(super) fn received<'a>(&mut self, completion: &cqueue::Entry) -> Option<&'a [u8]> {
        let flags = completion.flags();
        let piece = cqueue::buffer_select(flags)?;
        let len = usize::try_from(completion.result()).unwrap_or(0);
        let mut offset = 0;
        if self.is_incremental {
            offset = self.filled_bytes[usize::from(piece)] as usize;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a lease is far below 4 GiB"
            )]
            {
                self.filled_bytes[usize::from(piece)] = (offset + len) as u32;
            }
        }
        if !self.is_incremental || !cqueue::buffer_more(flags) {
            self.consumed.push(piece);
        }
        let room = self.piece(piece);
        assert!(
            offset + len <= self.piece_bytes,
            "the kernel wrote past a buffer"
        );
        // SAFETY: the kernel has initialised `len` bytes from `offset` of a piece, which lie inside its lease, and
        // writes there no more until the piece is offered again; the lease lives until `withdraw`. Neither
        // happens while the slice is looked at, says this function's contract.
        Some(unsafe { std::slice::from_raw_parts(room.add(offset), len) })
    }

    /// Offers the used pieces again, with one store.
    #[inline]
    pub(super) fn end_tick(&mut self) {
        if self.consumed.is_empty() {
            return;
        }
        let mut consumed = std::mem::take(&mut self.consumed);
        for piece in consumed.drain(..) {
            self.filled_bytes[usize::from(piece)] = 0;
            self.offer(piece);
        }
        self.consumed = consumed;
        self.publish();
    }

    /// Where a piece begins.
    #[inline]
    fn piece(&self, piece: u16) -> *mut u8 {
        let piece = usize::from(piece);
        let number = piece >> self.pieces_shift;
        let offset = (piece - (number << self.pieces_shift)) * self.piece_bytes;
        debug_assert!(number < self.leases.len());
        // SAFETY: a lease holds all its pieces.
        unsafe { self.starts[number].add(offset) }
    }

    /// Writes the next entry of the table; [`Self::publish`] shows it to the kernel.
    fn offer(&mut self, piece: u16) {
        let start = self.piece(piece);
        let index = usize::from(self.tail & (self.entry_count - 1));
        // SAFETY: the index is below the table's length, and the entry is ours: at most
        // `entry_count` pieces exist, so the kernel has long read what stood here.
        let entry = unsafe { &mut *self.table.as_ptr().add(index) };
        entry.set_addr(start as u64);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a lease is far below 4 GiB"
        )]
        entry.set_len(self.piece_bytes as u32);
        entry.set_bid(piece);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the tail lies in the first entry's reserved bytes, says the kernel's layout, is
        // aligned, and is written by nobody else.
        let tail =
            unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.table.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for ReceiveBuffers {
    fn drop(&mut self) {
        if self.is_registered {
            // Only when a panic kept the driver from withdrawing: the ring is still there.
            self.leases.drain(..).for_each(std::mem::forget);
            return;
        }
        // SAFETY: the mapping made in `new`; the kernel does not know it any more.
        let _ = unsafe { munmap(self.table.as_ptr().cast(), self.table_bytes) };
    }
}

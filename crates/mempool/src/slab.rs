//! Objects of one type behind handles that detect when they are stale.
//!
//! `io` keeps its sockets here and `http` its connections; a late event for a closed connection
//! carries the old handle and finds nothing. One owner, no atomics; and moving objects: one stays
//! where it was put until it is removed.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::ptr::NonNull;

use crate::heap::DirectMemory;
use crate::slot_chunk::SlotTable;
use crate::{PoolError, PoolMode, PoolStats};

/// Names one object of a [`Slab<T>`]. 8 bytes, `Copy`; once the object is removed it never finds anything again, even
/// though the slot is reused.
pub struct Handle<T> {
    index: u32,
    generation: u32,
    object: PhantomData<fn() -> T>,
}

impl<T> Handle<T> {
    /// The handle as one number, for a kernel's user data or a timer.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The handle whose [`to_bits`](Self::to_bits) is `bits`. Any number is safe: one that was
    /// never a handle finds nothing, or an object that is there.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            index: bits as u32,
            generation: (bits >> 32) as u32,
            object: PhantomData,
        }
    }

    /// The object's place: dense from 0, so it may serve as index of a table beside the slab.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Which of the place's lives is meant.
    #[inline]
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.to_bits() == other.to_bits()
    }
}

impl<T> Eq for Handle<T> {}

impl<T> Hash for Handle<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.to_bits());
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Handle({}, generation {})",
            self.index, self.generation
        )
    }
}

/// Objects of one type, in 64 KiB chunks, newest free place of the chunk in hand first.
///
/// Objects may be of any size and alignment: those over 4 KiB come in longer runs of chunks where
/// that wastes less; those of over 1 MiB, or aligned to more than 64 KiB, are boxes of their own
/// (every one a miss), as all are with pools off. The chunks then hold only the table of handles,
/// which counts as waste.
///
/// ```
/// use millpond_mempool::{PoolMode, Slab};
/// let mut names = Slab::new("names", PoolMode::On);
/// let mill = names.insert("mill")?;
/// assert_eq!(names.get(mill), Some(&"mill"));
/// names.remove(mill);
/// let pond = names.insert("pond")?;
/// assert_eq!(pond.index(), mill.index());
/// assert_eq!(names.get(mill), None);
/// # Ok::<(), millpond_mempool::PoolError>(())
/// ```
pub struct Slab<T> {
    name: &'static str,
    mode: PoolMode,
    objects: Objects<T>,
    /// Where objects come from that are not in place.
    direct: DirectMemory,
    hits: u64,
    misses: u64,
}

enum Objects<T> {
    InPlace(SlotTable<T>),
    Boxed(SlotTable<ObjectBox<T>>),
}

/// Runs the same expression on the table of either mode.
macro_rules! on_either {
    ($objects:expr, $table:ident => $result:expr) => {
        match $objects {
            Objects::InPlace($table) => $result,
            Objects::Boxed($table) => $result,
        }
    };
}

impl<T> Slab<T> {
    /// An empty slab without memory and without a limit.
    #[must_use]
    pub const fn new(name: &'static str, mode: PoolMode) -> Self {
        Self::with_budget(name, mode, usize::MAX)
    }

    /// An empty slab whose `reserved_bytes` never pass `limit_bytes`: whole chunks, the table of chunks, and boxed
    /// objects.
    #[must_use]
    pub const fn with_budget(name: &'static str, mode: PoolMode, limit_bytes: usize) -> Self {
        let objects = if mode.pools_blocks() && SlotTable::<T>::FITS {
            Objects::InPlace(SlotTable::new(limit_bytes))
        } else {
            Objects::Boxed(SlotTable::new(limit_bytes))
        };
        Self {
            name,
            mode,
            objects,
            direct: DirectMemory::new(name, mode),
            hits: 0,
            misses: 0,
        }
    }

    /// Stores `value`. A pop from the free list; every 64 KiB of growth a system call; with pools
    /// off one malloc. On an error `value` is dropped.
    #[inline]
    pub fn insert(&mut self, value: T) -> Result<Handle<T>, PoolError> {
        let ((index, generation), is_hit) = match &mut self.objects {
            Objects::InPlace(table) => {
                let room = table.room()?;
                let is_hit = room.is_hit();
                (room.fill(value), is_hit)
            }
            Objects::Boxed(table) => {
                let mut room = table.room()?;
                room.budget().take(size_of::<T>())?;
                let boxed = ObjectBox::new(&self.direct, value)
                    .inspect_err(|_| room.budget().give_back(size_of::<T>()))?;
                (room.fill(boxed), false)
            }
        };
        self.hits += u64::from(is_hit);
        self.misses += u64::from(!is_hit);
        Ok(Handle {
            index,
            generation,
            object: PhantomData,
        })
    }

    /// The object, unless it was removed. Two loads and a comparison.
    #[inline]
    pub fn get(&self, handle: Handle<T>) -> Option<&T> {
        match &self.objects {
            Objects::InPlace(table) => table.get(handle.index, handle.generation),
            Objects::Boxed(table) => table
                .get(handle.index, handle.generation)
                .map(|boxed| &**boxed),
        }
    }

    /// The object, unless it was removed. Two loads and a comparison.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle<T>) -> Option<&mut T> {
        match &mut self.objects {
            Objects::InPlace(table) => table.get_mut(handle.index, handle.generation),
            Objects::Boxed(table) => table
                .get_mut(handle.index, handle.generation)
                .map(|boxed| &mut **boxed),
        }
    }

    /// Takes the object out, unless that was done before. A push to the free list; with pools off
    /// one free.
    #[inline]
    pub fn remove(&mut self, handle: Handle<T>) -> Option<T> {
        match &mut self.objects {
            Objects::InPlace(table) => table.remove(handle.index, handle.generation),
            Objects::Boxed(table) => {
                let boxed = table.remove(handle.index, handle.generation)?;
                table.budget().give_back(size_of::<T>());
                // SAFETY: every box of this table was made with this memory.
                Some(unsafe { boxed.take(&self.direct) })
            }
        }
    }

    /// Drops the object where it is, unless it was removed; returns whether it was there. As [`remove`](Self::remove),
    /// but nothing is moved.
    #[inline]
    pub fn discard(&mut self, handle: Handle<T>) -> bool {
        match &mut self.objects {
            Objects::InPlace(table) => table.discard(handle.index, handle.generation),
            Objects::Boxed(table) => {
                let Some(boxed) = table.remove(handle.index, handle.generation) else {
                    return false;
                };
                table.budget().give_back(size_of::<T>());
                // SAFETY: every box of this table was made with this memory.
                unsafe { boxed.discard(&self.direct) };
                true
            }
        }
    }

    /// Objects in it.
    #[inline]
    pub const fn len(&self) -> usize {
        on_either!(&self.objects, table => table.len())
    }

    /// Whether it holds no object.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every object with its handle, in the order of places. O(places of the chunks in use).
    pub fn iter(&self) -> impl Iterator<Item = (Handle<T>, &T)> {
        // SAFETY: the objects live where they are found as long as the slab is borrowed, during which they are not
        // written.
        self.places()
            .map(|(handle, object)| (handle, unsafe { &*object }))
    }

    /// Every object with its handle, in the order of places. O(places of the chunks in use).
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Handle<T>, &mut T)> {
        // SAFETY: as in `iter`; the slab is borrowed mutably, and no object comes twice.
        self.places()
            .map(|(handle, object)| (handle, unsafe { &mut *object }))
    }

    /// Every object's handle, in the order of places. O(places of the chunks in use).
    pub fn handles(&self) -> impl Iterator<Item = Handle<T>> {
        self.places().map(|(handle, _)| handle)
    }

    /// Every object's handle and place.
    fn places(&self) -> impl Iterator<Item = (Handle<T>, *mut T)> {
        let (in_place, boxed) = match &self.objects {
            Objects::InPlace(table) => (Some(table), None),
            Objects::Boxed(table) => (None, Some(table)),
        };
        let in_place = in_place.into_iter().flat_map(SlotTable::live);
        let boxed = boxed.into_iter().flat_map(SlotTable::live);
        let boxed = boxed.map(|(index, generation, place)| {
            // SAFETY: a live slot of this table holds a box; only the pointer in it is read.
            let object = unsafe { *place.cast::<*mut T>() };
            (index, generation, object)
        });
        in_place.chain(boxed).map(|(index, generation, place)| {
            let handle = Handle {
                index,
                generation,
                object: PhantomData,
            };
            (handle, place)
        })
    }

    /// Gives back half (rounded up) of the chunks that no object needed since the last call, and returns how many
    /// bytes. Call it about once a second: idle memory halves each time, used memory stays. Handles stay valid or stale
    /// as before. O(chunks, and places of those that leave).
    pub fn trim(&mut self) -> usize {
        self.direct.trim() + on_either!(&mut self.objects, table => table.trim())
    }

    /// In [`PoolMode::Checked`] checks all memory of the slab for invalid writes. Nothing in other modes. O(objects).
    ///
    /// # Panics
    /// When it finds such a place.
    pub fn verify(&self) {
        self.direct.verify();
    }

    /// Current numbers of the slab. O(1).
    pub fn stats(&self) -> PoolStats {
        let object_bytes = size_of::<T>();
        let live_bytes = self.len() * object_bytes;
        let (len_max, reserved_bytes, cached_bytes, waste_bytes) = match &self.objects {
            Objects::InPlace(table) => {
                let slot_bytes = SlotTable::<T>::SLOT_BYTES;
                let around_live_bytes = table.len() * (slot_bytes - object_bytes);
                (
                    table.len_max(),
                    table.reserved_bytes(),
                    table.cached_count() * slot_bytes,
                    around_live_bytes + table.overhead_bytes(),
                )
            }
            Objects::Boxed(table) => {
                let slot_count = table.len() + table.cached_count();
                let slots_bytes = slot_count * SlotTable::<ObjectBox<T>>::SLOT_BYTES;
                (
                    table.len_max(),
                    table.reserved_bytes(),
                    0,
                    slots_bytes + table.overhead_bytes(),
                )
            }
        };
        PoolStats {
            name: self.name,
            kind: "slab",
            mode: self.mode,
            live_objects: self.len() as u64,
            live_bytes: live_bytes as u64,
            cached_bytes: cached_bytes as u64,
            waste_bytes: waste_bytes as u64,
            reserved_bytes: reserved_bytes as u64,
            high_water_bytes: (len_max * object_bytes) as u64,
            hits: self.hits,
            misses: self.misses,
            remote_frees: 0,
        }
        .with_memory_of(&self.direct)
        .checked()
    }
}

impl<T> Drop for Slab<T> {
    /// Drops the objects that are left. Those in place their table drops.
    fn drop(&mut self) {
        let Objects::Boxed(table) = &mut self.objects else {
            return;
        };
        for (_, _, place) in table.live() {
            // SAFETY: a live slot holds a box of this table, made with this memory. It is read here once; the table,
            // which is dropped next, drops no boxes, and there are no other users.
            unsafe { place.read().discard(&self.direct) };
        }
    }
}

impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Slab").field(&self.stats()).finish()
    }
}

// Objects that never move, behind handles that detect when they are stale: mainly for futures.

/// A [`Slab`] whose objects are pinned from the moment they are in it.
///
/// ```
/// use millpond_mempool::{PinSlab, PoolMode};
/// use std::future::Future;
/// use std::task::{Context, Poll, Waker};
/// let mut futures = PinSlab::new("futures", PoolMode::On);
/// let handle = futures.insert(async { 7 })?;
/// let future = futures.get_mut(handle).expect("it is there");
/// assert_eq!(future.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(7));
/// assert!(futures.remove(handle));
/// # Ok::<(), millpond_mempool::PoolError>(())
/// ```
pub struct PinSlab<T> {
    /// `None` only between an object's end and its place's.
    slab: Slab<Option<T>>,
}

impl<T> fmt::Debug for PinSlab<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PinSlab").finish_non_exhaustive()
    }
}

impl<T> PinSlab<T> {
    /// An empty slab without memory.
    #[must_use]
    pub const fn new(name: &'static str, mode: PoolMode) -> Self {
        Self {
            slab: Slab::new(name, mode),
        }
    }

    /// Stores `value`, which does not move from here on. On an error it is dropped.
    pub fn insert(&mut self, value: T) -> Result<Handle<Option<T>>, PoolError> {
        self.slab.insert(Some(value))
    }

    /// The object, unless it was removed.
    pub fn get_mut(&mut self, handle: Handle<Option<T>>) -> Option<Pin<&mut T>> {
        let place = self.slab.get_mut(handle)?;
        // SAFETY: a slab leaves an object where it was put until it is removed, and then drops it
        // before the memory is used again; nothing here gives out a plain reference to it, and
        // `remove` drops it in its place before the slab moves the `None` out.
        unsafe { Pin::new_unchecked(place) }.as_pin_mut()
    }

    /// Drops the object without moving it; false when it was removed before.
    pub fn remove(&mut self, handle: Handle<Option<T>>) -> bool {
        let Some(place) = self.slab.get_mut(handle) else {
            return false;
        };
        // SAFETY: as in `get_mut`; `set` drops the object before it overwrites it.
        unsafe { Pin::new_unchecked(place) }.set(None);
        self.slab.remove(handle).is_some()
    }

    /// Objects in it.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// As [`Slab::trim`].
    pub fn trim(&mut self) -> usize {
        self.slab.trim()
    }

    /// As [`Slab::stats`].
    pub fn stats(&self) -> PoolStats {
        self.slab.stats()
    }
}

// One object in memory of its own, where a slab does not keep it in a slot.

/// Owns an object and its memory, until one of its methods ends both. Invariant: the object is initialised and
/// exclusive.
#[repr(transparent)]
pub(crate) struct ObjectBox<T>(NonNull<T>);

// SAFETY: it owns a `T` as a box does.
unsafe impl<T: Send> Send for ObjectBox<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for ObjectBox<T> {}

impl<T> ObjectBox<T> {
    /// Moves `value` into memory of its own; none for a type without size. On an error it is
    /// dropped.
    #[inline(always)]
    pub(crate) fn new(direct: &DirectMemory, value: T) -> Result<Self, PoolError> {
        let layout = Layout::new::<T>();
        let start = match layout.size() {
            0 => NonNull::dangling(),
            _ => direct.allocate_layout(layout)?.cast::<T>(),
        };
        // SAFETY: fresh memory of `T`'s layout.
        unsafe { start.write(value) };
        Ok(Self(start))
    }

    /// Moves the object out and frees its memory.
    ///
    /// # Safety
    /// `direct` is what `new` was given.
    ///
    /// # Panics
    /// When that breaks a rule of checked memory.
    #[inline(always)]
    pub(crate) unsafe fn take(self, direct: &DirectMemory) -> T {
        // SAFETY: the object is there, by the invariant, and `self` is gone after this.
        let value = unsafe { self.0.read() };
        // SAFETY: the caller's promise.
        unsafe { self.free(direct) };
        value
    }

    /// Drops the object where it is and frees its memory.
    ///
    /// # Safety
    /// `direct` is what `new` was given.
    ///
    /// # Panics
    /// As [`take`](Self::take), and where the object does.
    pub(crate) unsafe fn discard(self, direct: &DirectMemory) {
        // SAFETY: as in `take`.
        unsafe {
            self.0.drop_in_place();
            self.free(direct);
        }
    }

    /// # Safety
    /// The object is gone, and `direct` is what `new` was given.
    #[inline(always)]
    unsafe fn free(self, direct: &DirectMemory) {
        let layout = Layout::new::<T>();
        if layout.size() > 0 {
            // SAFETY: the memory came from `direct` by the caller's promise.
            unsafe { direct.free_layout(self.0.cast::<u8>(), layout) }.report();
        }
    }
}

impl<T> Deref for ObjectBox<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: by the invariant.
        unsafe { self.0.as_ref() }
    }
}

impl<T> DerefMut for ObjectBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: by the invariant.
        unsafe { self.0.as_mut() }
    }
}

#[cfg(test)]
#[path = "tests/pin_slab.rs"]
mod pin_slab_tests;

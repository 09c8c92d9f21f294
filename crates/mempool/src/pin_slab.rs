//! Objects that never move behind handles that know when they are stale: futures, above all.
//!
//! On the path: `http` keeps the futures of `async` handlers here, one slab for each handler's type,
//! so that none needs a box of its own.
//! Absent on purpose: taking an object out, which would move it.
#![allow(unsafe_code)]
use crate::{Handle, PoolError, PoolMode, PoolStats, Slab};
use std::fmt;
use std::pin::Pin;

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

    /// Drops the object in its place; false when it was removed before.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::marker::PhantomPinned;
    use std::rc::Rc;

    /// Notes where it is dropped.
    struct Pinned {
        dropped_at: Rc<Cell<usize>>,
        _pinned: PhantomPinned,
    }

    impl Drop for Pinned {
        fn drop(&mut self) {
            self.dropped_at.set(std::ptr::from_ref(self).addr());
        }
    }

    /// Goal: an object is dropped where it was pinned, by removal and by the end of the slab, with
    /// pools and without, however many others come and go.
    #[test]
    fn objects_are_dropped_where_they_were_pinned() {
        for mode in [PoolMode::On, PoolMode::Off] {
            let mut slab = PinSlab::new("pinned", mode);
            let make = |dropped_at: &Rc<Cell<usize>>| Pinned {
                dropped_at: Rc::clone(dropped_at),
                _pinned: PhantomPinned,
            };
            let places: Vec<Rc<Cell<usize>>> = (0..300).map(|_| Rc::default()).collect();
            let handles: Vec<_> = places
                .iter()
                .map(|place| slab.insert(make(place)).unwrap())
                .collect();
            let address = |slab: &mut PinSlab<Pinned>, handle| {
                let pinned = slab.get_mut(handle).unwrap();
                std::ptr::from_ref(&*pinned).addr()
            };
            let addresses: Vec<usize> = handles.iter().map(|&h| address(&mut slab, h)).collect();
            for index in (0..300).step_by(2) {
                assert!(slab.remove(handles[index]));
                assert!(!slab.remove(handles[index]), "it is gone");
            }
            slab.trim();
            drop(slab);
            for (place, address) in places.iter().zip(addresses) {
                assert_eq!(place.get(), address);
            }
        }
    }
}

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

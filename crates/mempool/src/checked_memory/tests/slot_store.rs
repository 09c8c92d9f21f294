use super::*;

/// Goal: the arithmetic of sizes is a table: rising, 16-aligned, at most 25 % too large.
#[test]
fn sizes_are_a_rising_table() {
    let mut last = (0, SLOT_BYTES_MIN);
    let bytes_max = if cfg!(miri) { 2048 } else { SLOT_BYTES_MAX };
    for bytes in 1..=bytes_max {
        let (index, slot_bytes) = size_of_slot(bytes);
        assert!(slot_bytes >= bytes && slot_bytes.is_multiple_of(16));
        assert!(bytes <= SLOT_BYTES_MIN || (slot_bytes - bytes) * 4 <= slot_bytes);
        let is_next = index == last.0 + 1 && bytes == last.1 + 1;
        assert!(is_next || (index, slot_bytes) == last, "{bytes} bytes");
        assert_eq!(size_of_slot(slot_bytes), (index, slot_bytes));
        last = (index, slot_bytes);
    }
    assert!(cfg!(miri) || last.0 == SIZE_COUNT - 1);
    assert_eq!(last.1, bytes_max);
}

/// Goal: free slots side by side are checked together, and each damaged one is repaired, the first one reported; lent
/// slots between them are not checked.
#[test]
fn every_damaged_slot_of_a_run_is_mended() {
    let mut store = SlotStore::new();
    let slots = [(); 70].map(|()| store.take(100).unwrap().0);
    for (index, slot) in slots.iter().enumerate() {
        // SAFETY: lent above and not used any more, but for one that stays lent.
        unsafe {
            if index == 65 {
                slot.start.write(1);
            } else {
                store.put(*slot);
            }
        }
    }
    assert!(store.mend_free_slots().is_none());
    for index in [63, 64, 66, 69] {
        // SAFETY: the fault to be found.
        unsafe { slots[index].start.add(index).write(1) };
    }
    let damage = store.mend_free_slots().unwrap();
    assert_eq!(
        (damage.address, damage.offset_bytes),
        (slots[63].start.addr().get(), 63)
    );
    assert!(store.mend_free_slots().is_none());
    // SAFETY: lent still.
    assert_eq!(unsafe { slots[65].start.read() }, 1);
}

/// Goal: slots never overlap, all of a chunk is lent before the next is mapped, damage in a
/// free slot is found and mended, and idle chunks leave while others stay usable.
#[test]
fn slots_are_apart_and_free_ones_are_watched() {
    let mut store = SlotStore::new();
    let mut lent: Vec<Slot> = Vec::new();
    for round in 0..3 {
        let smallest = if cfg!(miri) { [700, 900] } else { [64, 100] };
        for bytes in [smallest[0], smallest[1], 5000, SLOT_BYTES_MAX] {
            for _ in 0..2 * (CHUNK_BYTES / size_of_slot(bytes).1) {
                let (slot, damage) = store.take(bytes).unwrap();
                assert!(damage.is_none());
                lent.push(slot);
            }
        }
        assert_eq!((store.free_bytes(), store.chunk_count), (0, 8));
        let mut places: Vec<_> = lent.iter().map(|slot| (slot.start, slot.bytes)).collect();
        places.sort();
        let is_apart = |pair: &[(NonNull<u8>, usize)]| {
            pair[1].0.addr().get() - pair[0].0.addr().get() >= pair[0].1
        };
        assert!(places.windows(2).all(is_apart));
        // All but one go back, in an order that differs from the lending.
        let keep = lent.swap_remove(round * 7);
        for slot in lent.drain(..) {
            // SAFETY: lent above, never written to.
            unsafe { store.put(slot) };
        }
        lent.push(keep);
        store.release_idle();
        assert_eq!(store.reserved_bytes(), CHUNK_BYTES);
        assert_eq!(
            store.reserved_bytes(),
            store.free_bytes() + store.tail_bytes() + keep.bytes
        );
        // SAFETY: as above.
        unsafe { store.put(lent.pop().unwrap()) };
        assert!(store.contains(keep.start.addr().get() + 5));
        assert!(store.mend_free_slots().is_none());
        // SAFETY: the fault to be found: the slot is free.
        unsafe { keep.start.add(3).write(0) };
        let damage = store.mend_free_slots().unwrap();
        assert_eq!(
            (damage.address, damage.slot_bytes, damage.offset_bytes),
            (keep.start.addr().get(), keep.bytes, 3)
        );
        assert!(store.mend_free_slots().is_none());
        store.release_idle();
        assert_eq!((store.reserved_bytes(), store.free_bytes()), (0, 0));
        assert!(!store.contains(keep.start.addr().get()));
    }
}

use super::*;

fn insert<V>(table: &mut SlotTable<V>, value: V) -> (u32, u32) {
    table.room().unwrap().fill(value)
}

fn set_generation(table: &mut SlotTable<char>, index: u32, generation: u32) {
    let (number, place) = SlotTable::<char>::chunk_of(index);
    let slot = table.chunks[number].slot::<char>(place).unwrap();
    // SAFETY: the slot is cut, and the table is borrowed mutably.
    unsafe { (*slot).generation = generation };
}

/// Goal: the last generation is served, then the slot retires and old handles stay stale; a chunk that holds such a
/// slot leaves for good, and others take its place.
#[test]
fn slot_retires_instead_of_repeating_a_generation() {
    let mut table = SlotTable::new(usize::MAX);
    let (index, first) = insert(&mut table, 'a');
    table.remove(index, first).unwrap();
    set_generation(&mut table, index, RETIRED - 2);
    assert_eq!(insert(&mut table, 'b'), (index, RETIRED - 1));
    assert_eq!(table.remove(index, RETIRED - 1), Some('b'));
    assert_eq!((table.len(), table.retired_count), (0, 1));
    assert_eq!(table.get(index, RETIRED), None);
    let (next_index, next) = insert(&mut table, 'c');
    assert_ne!(next_index, index);
    assert_eq!(table.get(index, first), None);
    table.remove(next_index, next);
    assert_eq!((table.trim(), table.trim()), (0, CHUNK_BYTES));
    assert_eq!((table.retired_count, table.cached_count()), (0, 0));
    let (beyond, _) = insert(&mut table, 'd');
    assert_eq!(beyond, SlotTable::<char>::SLOTS_PER_RUN);
}

/// Goal: the multiplication finds the place that a division finds, for few and for many slots
/// a chunk, at both ends of the range of indices.
#[test]
fn multiplication_divides() {
    fn check<V>() {
        let per_run = SlotTable::<V>::SLOTS_PER_RUN;
        let last = (1 << INDEX_BITS) - 1;
        // Numbers only, of which Miri learns nothing.
        let (count, border_count) = if cfg!(miri) {
            (100, 20)
        } else {
            (100_000, 1000)
        };
        let low = 0..per_run.saturating_mul(5).min(count);
        let high = last - count..=last;
        let borders = (1..border_count).flat_map(|step| {
            let border = (last / per_run / border_count * step).saturating_mul(per_run);
            [border.saturating_sub(1), border]
        });
        for index in low.chain(high).chain(borders) {
            let expected = ((index / per_run) as usize, index % per_run);
            assert_eq!(SlotTable::<V>::chunk_of(index), expected, "{per_run} slots");
        }
    }
    check::<()>();
    check::<u8>();
    check::<[u8; 3]>();
    check::<[u64; 9]>();
    check::<[u64; 125]>();
    check::<[u64; 1001]>();
    check::<[u64; 8000]>();
    check::<[u64; 100_000]>();
}

/// Goal: any number is safe where an index is expected.
#[test]
fn indices_out_of_range_find_nothing() {
    let mut table = SlotTable::new(usize::MAX);
    let (_, generation) = insert(&mut table, [1_u64; 9]);
    for index in (0..32)
        .map(|shift| 1 << shift)
        .chain([u32::MAX, u32::MAX - 819])
    {
        assert_eq!(table.get(index, generation), None);
        assert_eq!(table.remove(index, generation), None);
    }
    assert_eq!(table.len(), 1);
}

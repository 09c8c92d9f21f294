use super::*;
use std::rc::Rc;

/// Goal: items keep their order and value through growth, and each is dropped once.
#[test]
fn items_survive_growth_and_are_dropped_once() {
    let counter = Rc::new(());
    let mut items = MappedVec::new();
    // More than one mapping of 64 KiB holds.
    let count = 3 * CHUNK_BYTES / size_of::<(usize, Rc<()>, [u64; 30])>();
    for number in 0..count {
        items.reserve_one().unwrap();
        items.push((number, Rc::clone(&counter), [0_u64; 30]));
    }
    assert!(items.iter().map(|(number, ..)| *number).eq(0..count));
    items[5].0 = 0;
    assert_eq!(
        (items.len(), items[5].0, Rc::strong_count(&counter)),
        (count, 0, count + 1)
    );
    drop(items);
    assert_eq!(Rc::strong_count(&counter), 1);
}

use super::*;

/// Goal: every batch arrives once and in order, more of them than there are slots.
#[test]
fn batches_arrive_in_order() {
    let ring = Handover::new(3);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut batch = Vec::new();
            for number in 0..100 * SLOT_COUNT {
                batch.extend([number; 3]);
                ring.give(&mut batch);
                assert!(batch.is_empty());
            }
        });
        let mut batch = Vec::new();
        for number in 0..100 * SLOT_COUNT {
            ring.take(&mut batch, || {});
            assert_eq!(batch, [number; 3]);
            batch.clear();
        }
    });
}

use super::*;
use millpond_mempool::{BlockPool, PoolMode};

/// Goal: two queues in one slab each give back what they were given, in order, whether they run
/// empty in between or not, and leave nothing behind.
#[test]
fn queues_keep_their_own_order() {
    let blocks = BlockPool::new("bytes", PoolMode::On);
    let mut slab = Slab::new("queued", PoolMode::On);
    let mut queues = [BufferQueue::default(), BufferQueue::default()];
    let mut expected = [Vec::new(), Vec::new()];
    let mut random = 7_u32;
    for number in 0..2_000_u32 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let which = (random >> 20) as usize % 2;
        let queue = &mut queues[which];
        if (random >> 24) % 9 < 4 {
            let mut data = Buffer::new();
            data.extend_from_slice(&blocks, &number.to_le_bytes())
                .unwrap();
            queue.push(&mut slab, data).unwrap();
            expected[which].push(number.to_le_bytes());
        } else if expected[which].is_empty() {
            assert!(queue.is_empty() && queue.front(&slab).is_none());
            assert!(queue.pop(&mut slab).is_none());
        } else {
            let oldest = expected[which].remove(0);
            assert_eq!(queue.front(&slab), Some(&oldest[..]));
            queue.consume_front(&mut slab, 1);
            assert_eq!(queue.front(&slab), Some(&oldest[1..]));
            queue.consume_front(&mut slab, oldest.len() - 1);
        }
        let held: usize = expected.iter().map(Vec::len).sum();
        assert_eq!(slab.len(), held);
    }
    queues.iter_mut().for_each(|queue| queue.clear(&mut slab));
    assert_eq!(slab.len(), 0);
}

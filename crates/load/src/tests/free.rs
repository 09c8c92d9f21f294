use super::*;
use std::collections::VecDeque;

/// Goal: a queue gives out what it was given in order, round and round, full and empty.
#[test]
fn a_queue_keeps_the_order() {
    for room in [1, 3, 4] {
        let (mut queue, mut plain) = (Queue::new(room), VecDeque::new());
        // Just before its counters begin again.
        (queue.front, queue.back) = (u32::MAX - 5, u32::MAX - 5);
        for step in 0..100_u32 {
            let wants_push = (step * 7 + step / 3) % 5 < 3;
            if wants_push && plain.len() < room {
                queue.push(step);
                plain.push_back(step);
            } else if plain.pop_front().is_some() {
                queue.remove_first();
            }
            assert_eq!(
                queue.first(),
                plain.front().copied(),
                "step {step} of {room}"
            );
            assert_eq!(queue.is_empty(), plain.is_empty());
        }
    }
}

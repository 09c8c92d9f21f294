//! Bytes that wait for the kernel, or for their owner: buffers of one socket in order.
//!
//! An idle socket owns none; the buffers of all sockets are linked through one slab per driver. A
//! queue is a ring of which only the end is kept: sockets are many and rarely have one.

use millpond_mempool::{Buffer, Handle, PoolError, Slab};

/// One waiting buffer.
#[derive(Debug)]
pub(super) struct QueuedBuffer {
    data: Buffer,
    /// The next younger one; of the youngest, the oldest.
    next: Handle<QueuedBuffer>,
}

/// The handle of no buffer: it finds nothing in the slab. An `Option` of it would be half as large
/// again.
const NOBODY: Handle<QueuedBuffer> = Handle::from_bits(u64::MAX);

/// Buffers of one socket, oldest first; they live in the driver's slab.
#[derive(Debug)]
pub(super) struct BufferQueue {
    last: Handle<QueuedBuffer>,
}

impl Default for BufferQueue {
    fn default() -> Self {
        Self { last: NOBODY }
    }
}

impl BufferQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.last == NOBODY
    }

    fn first(&self, slab: &Slab<QueuedBuffer>) -> Handle<QueuedBuffer> {
        slab.get(self.last).map_or(NOBODY, |last| last.next)
    }

    pub(super) fn push(
        &mut self,
        slab: &mut Slab<QueuedBuffer>,
        data: Buffer,
    ) -> Result<(), PoolError> {
        let next = self.first(slab);
        let added = slab.insert(QueuedBuffer { data, next })?;
        let mut before = std::mem::replace(&mut self.last, added);
        if before == NOBODY {
            before = added;
        }
        if let Some(before) = slab.get_mut(before) {
            before.next = added;
        }
        Ok(())
    }

    /// The oldest bytes.
    pub(super) fn front<'a>(&self, slab: &'a Slab<QueuedBuffer>) -> Option<&'a [u8]> {
        slab.get(self.first(slab))
            .map(|queued| queued.data.as_slice())
    }

    /// Forgets the first `count` bytes of [`Self::front`]; its buffer goes home when empty.
    pub(super) fn consume_front(&mut self, slab: &mut Slab<QueuedBuffer>, count: usize) {
        let Some(queued) = slab.get_mut(self.first(slab)) else {
            return;
        };
        queued.data.consume_front(count);
        if queued.data.is_empty() {
            self.pop(slab);
        }
    }

    /// Takes the oldest buffer out.
    pub(super) fn pop(&mut self, slab: &mut Slab<QueuedBuffer>) -> Option<Buffer> {
        let first = self.first(slab);
        let gone = slab.remove(first)?;
        if first == self.last {
            self.last = NOBODY;
        } else if let Some(last) = slab.get_mut(self.last) {
            last.next = gone.next;
        }
        Some(gone.data)
    }

    pub(super) fn clear(&mut self, slab: &mut Slab<QueuedBuffer>) {
        while self.pop(slab).is_some() {}
    }
}

#[cfg(test)]
mod tests {
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
}

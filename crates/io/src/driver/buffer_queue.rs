//! Bytes that wait for the kernel, or for their owner: buffers of one socket in order.
//!
//! An idle socket owns none; the buffers of all sockets are linked through one slab per driver.

use millpond_mempool::{Buffer, Handle, PoolError, Slab};

/// One waiting buffer.
#[derive(Debug)]
pub(super) struct QueuedBuffer {
    data: Buffer,
    next: Option<Handle<QueuedBuffer>>,
}

/// Buffers of one socket, oldest first; they live in the driver's slab.
#[derive(Debug, Default)]
pub(super) struct BufferQueue {
    first: Option<Handle<QueuedBuffer>>,
    last: Option<Handle<QueuedBuffer>>,
}

impl BufferQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn push(
        &mut self,
        slab: &mut Slab<QueuedBuffer>,
        data: Buffer,
    ) -> Result<(), PoolError> {
        let added = slab.insert(QueuedBuffer { data, next: None })?;
        match self.last.and_then(|last| slab.get_mut(last)) {
            Some(last) => last.next = Some(added),
            None => self.first = Some(added),
        }
        self.last = Some(added);
        Ok(())
    }

    /// The oldest bytes.
    pub(super) fn front<'a>(&self, slab: &'a Slab<QueuedBuffer>) -> Option<&'a [u8]> {
        self.first
            .and_then(|first| slab.get(first))
            .map(|queued| queued.data.as_slice())
    }

    /// Forgets the first `count` bytes of [`Self::front`]; its buffer goes home when empty.
    pub(super) fn consume_front(&mut self, slab: &mut Slab<QueuedBuffer>, count: usize) {
        let Some(first) = self.first else { return };
        let Some(queued) = slab.get_mut(first) else {
            return;
        };
        queued.data.consume_front(count);
        if queued.data.is_empty() {
            self.pop(slab);
        }
    }

    /// Takes the oldest buffer out.
    pub(super) fn pop(&mut self, slab: &mut Slab<QueuedBuffer>) -> Option<Buffer> {
        let gone = self.first.and_then(|first| slab.remove(first));
        self.first = gone.as_ref().and_then(|gone| gone.next);
        if self.first.is_none() {
            self.last = None;
        }
        gone.map(|gone| gone.data)
    }

    pub(super) fn clear(&mut self, slab: &mut Slab<QueuedBuffer>) {
        while self.pop(slab).is_some() {}
    }
}

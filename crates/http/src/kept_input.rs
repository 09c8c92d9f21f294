//! Bytes that arrived and must wait: for the rest of a head, for an earlier request, for room.
//!
//! A receive brings up to 64 KiB, and two may have to wait, but a pooled block holds 32 KiB. So it is a chain of
//! blocks, of which each but the last is full when it is made: however a network splits the bytes, none of them is in
//! memory from malloc. Only a head longer than a block makes a block of its own size.

use millpond_mempool::{BlockPool, Buffer, POOLED_BYTES_MAX, Pool, PoolError, Pooled};

/// Received bytes that wait, as a chain of blocks. Never empty.
#[derive(Debug)]
pub(crate) struct KeptInput {
    bytes: Buffer,
    next: Option<Pooled<Self>>,
}

impl KeptInput {
    /// Keeps `arrived` behind what is kept. On an error a part of it may be kept: the sender has to
    /// go.
    pub(crate) fn keep(
        kept: &mut Option<Pooled<Self>>,
        mut arrived: &[u8],
        blocks: &BlockPool,
        pool: &Pool<Self>,
    ) -> Result<(), PoolError> {
        let mut place = kept;
        while !arrived.is_empty() {
            match place {
                Some(input) => {
                    let room_bytes = match input.next {
                        None => POOLED_BYTES_MAX.saturating_sub(input.bytes.len()),
                        Some(_) => 0,
                    };
                    let (now, later) = arrived.split_at(room_bytes.min(arrived.len()));
                    input.bytes.extend_from_slice(blocks, now)?;
                    arrived = later;
                    place = &mut input.next;
                }
                None => {
                    let (now, later) = arrived.split_at(POOLED_BYTES_MAX.min(arrived.len()));
                    let mut bytes = Buffer::with_capacity(blocks, now.len())?;
                    bytes.append_within_capacity(now);
                    let input = place.insert(pool.insert(Self { bytes, next: None })?);
                    arrived = later;
                    place = &mut input.next;
                }
            }
        }
        Ok(())
    }

    /// All of it, in bytes.
    pub(crate) fn len(&self) -> usize {
        let (mut sum, mut at) = (0, self);
        loop {
            sum += at.bytes.len();
            match at.next.as_deref() {
                Some(next) => at = next,
                None => return sum,
            }
        }
    }

    /// The first bytes: all there are, or as many as a block holds.
    pub(crate) fn first(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether there are bytes after [`Self::first`].
    pub(crate) const fn has_more(&self) -> bool {
        self.next.is_some()
    }

    /// The rest after `count` of the first bytes are consumed.
    pub(crate) fn without_front(mut input: Pooled<Self>, count: usize) -> Option<Pooled<Self>> {
        if count == input.bytes.len() {
            return input.next.take();
        }
        input.bytes.consume_front(count);
        Some(input)
    }

    /// Moves bytes from behind the first ones to them: as many as make a block full, or, if they are one,
    /// those of the next block.
    pub(crate) fn join_next(&mut self, blocks: &BlockPool) -> Result<(), PoolError> {
        let Some(next) = self.next.as_deref_mut() else {
            return Ok(());
        };
        let room_bytes = match POOLED_BYTES_MAX.saturating_sub(self.bytes.len()) {
            0 => POOLED_BYTES_MAX,
            room_bytes => room_bytes,
        };
        let moved_bytes = room_bytes.min(next.bytes.len());
        let joined_bytes = self.bytes.len() + moved_bytes;
        // Not by growing in place, which doubles what it takes.
        let mut joined = Buffer::with_capacity(blocks, joined_bytes)?;
        joined.append_within_capacity(&self.bytes);
        joined.append_within_capacity(&next.bytes[..moved_bytes]);
        self.bytes = joined;
        next.bytes.consume_front(moved_bytes);
        if next.bytes.is_empty() {
            self.next = next.next.take();
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/kept_input.rs"]
mod kept_input_tests;

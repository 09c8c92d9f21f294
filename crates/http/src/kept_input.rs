//! Bytes that arrived and must wait: for the rest of a head, for an earlier request, for room.
//!
//! On the path: what one receive brought is handled where it lies; only what cannot be handled yet is
//! copied here, and handled from here first when the reason to wait is gone.
//!
//! A receive brings up to 64 KiB, and two may have to wait, but a pooled block holds 32 KiB. So it is a
//! chain of blocks, of which each but the last is full when it is made: however a network cuts what
//! a peer sends, no byte of it is malloc's. Only a head longer than a block makes a block of its own
//! size.
//! Absent on purpose: looking at what is kept as one piece of memory.

use millpond_mempool::{BlockPool, Buffer, POOLED_BYTES_MAX, Pool, PoolError, Pooled};

/// See the module. Never empty.
#[derive(Debug)]
pub(crate) struct KeptInput {
    bytes: Buffer,
    next: Option<Pooled<Self>>,
}

impl KeptInput {
    /// Keeps `arrived` behind what is kept. On an error a part of it may be kept: whoever sent it has to
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

    /// Whether there are bytes behind [`Self::first`].
    pub(crate) const fn has_more(&self) -> bool {
        self.next.is_some()
    }

    /// What is left once `count` of the first bytes are done with.
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
mod tests {
    use super::*;
    use millpond_mempool::PoolMode;
    use proptest::prelude::*;

    struct Bench {
        blocks: BlockPool,
        pool: Pool<KeptInput>,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                blocks: BlockPool::new("blocks", PoolMode::On),
                pool: Pool::new("inputs", PoolMode::On),
            }
        }

        fn keep(&self, kept: &mut Option<Pooled<KeptInput>>, arrived: &[u8]) {
            KeptInput::keep(kept, arrived, &self.blocks, &self.pool).unwrap();
        }
    }

    fn len_of(kept: Option<&Pooled<KeptInput>>) -> usize {
        kept.map_or(0, |input| input.len())
    }

    /// A receive of 64 KiB of which a few bytes were handled had a block of malloc's to itself, on
    /// machines where the network brings so many bytes at once. Goal: none of two such receives.
    #[test]
    fn two_receives_wait_in_pooled_blocks() {
        let bench = Bench::new();
        let receive = vec![b'x'; 64 << 10];
        let misses_after = || {
            let mut kept = None;
            bench.keep(&mut kept, &receive[10..]);
            bench.keep(&mut kept, &receive);
            assert_eq!(len_of(kept.as_ref()), 2 * receive.len() - 10);
            bench.blocks.stats().misses
        };
        let first = misses_after();
        // A block of malloc's is one each time.
        assert_eq!(misses_after(), first);
    }

    #[test]
    fn nothing_kept_is_nothing() {
        let bench = Bench::new();
        let mut kept = None;
        bench.keep(&mut kept, b"");
        assert!(kept.is_none());
    }

    proptest! {
        /// Goal: what is kept comes back, in its order, however it arrived and is taken.
        #[test]
        fn bytes_come_back_in_their_order(
            steps in prop::collection::vec((0_usize..80_000, 0_usize..70_000, any::<bool>()), 1..12),
        ) {
            let bench = Bench::new();
            let (mut kept, mut sent, mut back) = (None, Vec::new(), Vec::new());
            for (arrived_bytes, taken_bytes, joins) in steps {
                let arrived: Vec<u8> =
                    (0..arrived_bytes).map(|at| ((sent.len() + at) * 31 % 251) as u8).collect();
                bench.keep(&mut kept, &arrived);
                sent.extend_from_slice(&arrived);
                let Some(mut input) = kept.take() else {
                    continue;
                };
                if joins {
                    let (all, first) = (input.len(), input.first().len());
                    let had_more = input.has_more();
                    input.join_next(&bench.blocks).unwrap();
                    prop_assert_eq!(input.len(), all);
                    prop_assert_eq!(input.first().len() > first, had_more);
                }
                let taken_bytes = taken_bytes.min(input.first().len());
                back.extend_from_slice(&input.first()[..taken_bytes]);
                kept = KeptInput::without_front(input, taken_bytes);
                prop_assert_eq!(len_of(kept.as_ref()), sent.len() - back.len());
            }
            while let Some(input) = kept {
                prop_assert!(!input.first().is_empty());
                back.extend_from_slice(input.first());
                let all = input.first().len();
                kept = KeptInput::without_front(input, all);
            }
            prop_assert!(back == sent);
        }
    }
}

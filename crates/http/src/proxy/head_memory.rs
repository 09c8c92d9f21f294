//! Heads that were received, and what was written in their place, so that the next one, if it is the
//! same, is compared and copied, not taken apart.
//!
//! On the path: `request_head` and `response_head` look here first. Who repeats himself, to the byte,
//! is who keeps a connection busy: a client sends the same fields with every request, and an upstream
//! the same head until its date changes. Invariant: a form is found again only when all that it was
//! made from is equal, which is the received bytes and the key; what is written then is what would be
//! written anew.
//!
//! Absent on purpose: heads longer than nearly all are, and any search: each head has one place, and
//! whoever comes there last is remembered.

/// Longer ones are written anew each time.
const RECEIVED_BYTES_MAX: usize = 1024;
/// With what the proxy adds.
const WRITTEN_BYTES_MAX: usize = RECEIVED_BYTES_MAX + 512;
/// A power of two. Sixteen clients with fields of their own, or sixteen pages.
const PLACES: usize = 16;

/// What was written for some bytes, given `key`, and what that led to.
#[derive(Debug)]
struct Place<K, R> {
    /// `None`: nothing is remembered here.
    made_from: Option<(K, R)>,
    received: Vec<u8>,
    written: Vec<u8>,
}

/// See the module. Some 40 KiB for each shard, allocated at once, touched where it is used.
#[derive(Debug)]
pub(super) struct HeadMemory<K, R> {
    places: Box<[Place<K, R>]>,
}

impl<K, R: Copy> HeadMemory<K, R> {
    /// Remembers nothing yet.
    pub(super) fn new() -> Self {
        let place = |_| Place {
            made_from: None,
            received: Vec::with_capacity(RECEIVED_BYTES_MAX),
            written: Vec::with_capacity(WRITTEN_BYTES_MAX),
        };
        Self {
            places: (0..PLACES).map(place).collect(),
        }
    }

    /// What was written for `received` with a key that `is_equal`, and what came of it. `salt` tells apart
    /// keys that come with the same bytes; equal keys have equal ones.
    #[inline]
    pub(super) fn find(
        &self,
        received: &[u8],
        is_equal: impl FnOnce(&K) -> bool,
        salt: u64,
    ) -> Option<(&[u8], R)> {
        let place = &self.places[place_of(received, salt)];
        let (made_from, result) = place.made_from.as_ref()?;
        let is_same = received == place.received && is_equal(made_from);
        is_same.then_some((&place.written, *result))
    }

    /// From now on this is what `received` and `key` give. Copies both heads, allocates nothing.
    pub(super) fn remember(
        &mut self,
        (received, key, salt): (&[u8], K, u64),
        written: &[u8],
        result: R,
    ) {
        if received.len() > RECEIVED_BYTES_MAX || written.len() > WRITTEN_BYTES_MAX {
            return;
        }
        let place = &mut self.places[place_of(received, salt)];
        place.received.clear();
        place.received.extend_from_slice(received);
        place.written.clear();
        place.written.extend_from_slice(written);
        place.made_from = Some((key, result));
    }
}

/// By the length and by the end of the last line, behind which there are two line ends.
#[inline]
fn place_of(received: &[u8], salt: u64) -> usize {
    let end = received
        .last_chunk::<12>()
        .and_then(|end| end.first_chunk());
    let end = end.map_or(0, |end| u64::from_le_bytes(*end));
    let mixed = (end ^ salt ^ received.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> (u64::BITS - PLACES.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Goal: whatever is remembered in any order, what is found is what was last said of the same
        /// bytes and key, and the one remembered last is found unless it is too long.
        #[test]
        fn what_is_found_was_said_of_the_same(
            steps in proptest::collection::vec((0..6_usize, 0..3_u8, 0..2_usize), 0..80),
        ) {
            let heads = ["a", "aa", "the same length: 1\r\n\r\n", "the same length: 2\r\n\r\n"];
            let heads: Vec<String> = heads.iter().map(|&head| head.to_owned()).chain([
                "x".repeat(RECEIVED_BYTES_MAX),
                "x".repeat(RECEIVED_BYTES_MAX + 1),
            ]).collect();
            let mut memory = HeadMemory::<u8, usize>::new();
            let mut said: HashMap<(usize, u8), (String, usize)> = HashMap::new();
            for (number, (head, key, is_long)) in steps.into_iter().enumerate() {
                let received = heads[head].as_bytes();
                let written = format!("{number} {}", "w".repeat(is_long * WRITTEN_BYTES_MAX));
                let salt = u64::from(key);
                memory.remember((received, key, salt), written.as_bytes(), number);
                let is_short = received.len() <= RECEIVED_BYTES_MAX && is_long == 0;
                if is_short {
                    said.insert((head, key), (written, number));
                    prop_assert!(memory.find(received, |it| *it == key, salt).is_some());
                }
                for (index, head) in heads.iter().enumerate() {
                    for key in 0..3 {
                        let found = memory.find(head.as_bytes(), |it| *it == key, u64::from(key));
                        if let Some((written, number)) = found {
                            let expected = said.get(&(index, key));
                            prop_assert_eq!(
                                expected,
                                Some(&(String::from_utf8_lossy(written).into_owned(), number))
                            );
                        }
                    }
                }
            }
        }
    }
}

//! How much one socket may receive before it is the others' turn, the same for every driver.
//!
//! With few sockets ready a turn is a whole buffer, as large uploads like it. The more are ready, the
//! shorter it is: whoever sends without end delays the others by the length of his turns, not by what
//! he has to say.

use crate::pools::IO_BUFFER_BYTES;

/// What all turns of a tick may bring together: a fraction of a millisecond's work.
pub(super) const TURNS_BYTES: usize = 256 << 10;

/// The shortest turn. Most requests fit; shorter ones would cost more calls than they save time.
const TURN_BYTES_MIN: usize = 4 << 10;

/// The longest turn beside regulars (see `standing`) of who is none. Whatever of it is not served at
/// once is copied: a whole buffer of requests from a client that does not read took 35 us to receive
/// and 100 us to put by.
pub(super) const TURN_OF_OTHERS_BYTES: usize = 16 << 10;

/// The length of each turn when so many sockets want one.
#[inline]
pub(super) fn turn_bytes(ready: usize) -> usize {
    if ready * IO_BUFFER_BYTES <= TURNS_BYTES {
        return IO_BUFFER_BYTES;
    }
    (TURNS_BYTES / ready).clamp(TURN_BYTES_MIN, IO_BUFFER_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a turn is never longer than a buffer or shorter than a request, shrinks with the crowd,
    /// and all together keep within a tick's share as long as that is possible.
    #[test]
    fn turns_shrink_with_the_crowd() {
        assert_eq!(turn_bytes(0), IO_BUFFER_BYTES);
        assert_eq!(turn_bytes(1), IO_BUFFER_BYTES);
        for ready in 1..10_000 {
            let turn = turn_bytes(ready);
            assert!((TURN_BYTES_MIN..=IO_BUFFER_BYTES).contains(&turn));
            assert!(turn_bytes(ready + 1) <= turn);
            assert!(
                turn == TURN_BYTES_MIN || turn * ready <= TURNS_BYTES,
                "{ready}"
            );
        }
    }
}

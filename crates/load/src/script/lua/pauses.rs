//! Connections that wait before they ask again: for the script's `delay()`, or after its error.
//!
//! On the path: `worker` looks here before it lets a connection take a request. Absent on purpose:
//! the timer wheel of the shard. Its steps are coarser than the pacing that follows.
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Who waits until when.
#[derive(Debug)]
pub(super) struct Pauses {
    /// Per connection; 0: it does not wait.
    until_ns: Vec<u64>,
    ends: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Pauses {
    pub(super) fn new(connections: usize) -> Self {
        Self {
            until_ns: vec![0; connections],
            ends: BinaryHeap::with_capacity(connections),
        }
    }

    pub(super) fn begin(&mut self, index: u32, until_ns: u64) {
        self.until_ns[index as usize] = until_ns;
        self.ends.push(Reverse((until_ns, index)));
    }

    pub(super) fn is_paused(&self, index: u32) -> bool {
        self.until_ns[index as usize] != 0
    }

    /// When the next one ends.
    pub(super) fn next_end_ns(&self) -> Option<u64> {
        self.ends.peek().map(|&Reverse((until_ns, _))| until_ns)
    }

    /// A connection whose pause is over.
    pub(super) fn end(&mut self, now_ns: u64) -> Option<u32> {
        while self.next_end_ns()? <= now_ns {
            let Reverse((until_ns, index)) = self.ends.pop()?;
            // A pause that was replaced by a later one has not ended.
            let until = &mut self.until_ns[index as usize];
            if *until == until_ns {
                *until = 0;
                return Some(index);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_end_in_order_and_once() {
        let mut pauses = Pauses::new(3);
        assert_eq!((pauses.next_end_ns(), pauses.end(u64::MAX)), (None, None));
        pauses.begin(0, 30);
        pauses.begin(1, 10);
        pauses.begin(2, 20);
        pauses.begin(1, 40);
        assert!(pauses.is_paused(1));
        assert_eq!((pauses.end(5), pauses.next_end_ns()), (None, Some(10)));
        assert_eq!(pauses.end(30), Some(2));
        assert_eq!((pauses.end(30), pauses.end(30)), (Some(0), None));
        assert!(pauses.is_paused(1) && !pauses.is_paused(0));
        assert_eq!((pauses.end(40), pauses.end(40)), (Some(1), None));
    }
}

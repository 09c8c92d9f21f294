//! What is only to be closed any more, and waits for a tick of its own; the same for both drivers of
//! the kernel.
//!
//! A close takes the kernel some 30 us, and those of a crowd come together: three in a tick kept
//! everybody else waiting for 100 us. So beside regulars (see `standing`) one is closed before every
//! second tick, when the answers of the tick before have left, and the ticks between are for what else
//! the others want. Both in one keep a regular waiting for 110 us.

use super::standing::{Regulars, Turn};
use std::collections::VecDeque;

pub(super) struct Departures<T> {
    waiting: VecDeque<T>,
    had_this_tick: bool,
}

impl<T> Departures<T> {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::with_capacity(256),
            had_this_tick: false,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, departing: T) {
        self.waiting.push_back(departing);
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        self.waiting.pop_front()
    }

    /// How many are closed before this tick.
    #[inline]
    pub(super) fn begin_tick(&mut self, regulars: Regulars) -> usize {
        let had_last_tick = std::mem::take(&mut self.had_this_tick);
        if had_last_tick || self.waiting.is_empty() {
            return 0;
        }
        self.had_this_tick = regulars.are_about();
        self.waiting.len().min(regulars.ends_per_tick())
    }

    /// What the others have of this tick otherwise.
    #[inline]
    pub(super) fn turn_of_others(&self, regulars: &mut Regulars) -> Turn {
        match self.had_this_tick {
            true => regulars.turn_taken(),
            false => regulars.turn_of_others(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::standing::Standing;

    /// Goal: beside regulars closes and turns alternate, and without them nothing waits.
    #[test]
    fn closes_and_turns_alternate_beside_regulars() {
        let now_ns = 1_000_000_000_000;
        let mut regulars = Regulars::default();
        let mut departures = Departures::new();
        regulars.begin_tick(now_ns);
        regulars.is_first(Standing::Regular);
        (0..3).for_each(|number| departures.push(number));
        let mut course = Vec::new();
        for _ in 0..6 {
            regulars.begin_tick(now_ns);
            let count = departures.begin_tick(regulars);
            (0..count).for_each(|_| assert!(departures.pop().is_some()));
            let has_turn = departures.turn_of_others(&mut regulars).goes_on();
            course.push((count, has_turn));
        }
        let (close, turn) = ((1, false), (0, true));
        assert_eq!(course, [close, turn, close, turn, close, turn]);
        (0..3).for_each(|number| departures.push(number));
        assert_eq!(departures.begin_tick(Regulars::default()), 3);
        assert!(
            departures
                .turn_of_others(&mut Regulars::default())
                .goes_on()
        );
    }
}

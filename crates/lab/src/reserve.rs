//! Time that the plan keeps back for what cannot be planned: slices that the machine disturbed are repeated, and
//! what needs CPUs that are near each other waits for them.
//!
//! Each round adds its part. What a quiet round leaves serves a later one, or becomes more slices of it (`rounds`).
//! Without a bound a noisy hour would make a comparison of five minutes last ten.

use std::time::{Duration, Instant};

/// What is left of the time kept back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reserve {
    left: Duration,
}

impl Reserve {
    /// A round begins that keeps back `part`.
    pub(crate) fn add(&mut self, part: Duration) {
        self.left += part;
    }

    /// True if there is more than `kept`.
    pub(crate) fn exceeds(&self, kept: Duration) -> bool {
        self.left > kept
    }

    /// The time since `began` was not planned.
    pub(crate) fn spend_since(&mut self, began: Instant) {
        self.left = self.left.saturating_sub(began.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what one round leaves serves the next, and more than there is cannot be spent.
    #[test]
    fn rounds_add_up() {
        let second = Duration::from_secs(1);
        let mut reserve = Reserve::default();
        assert!(!reserve.exceeds(Duration::ZERO));
        reserve.add(second);
        reserve.add(second);
        assert!(reserve.exceeds(second) && !reserve.exceeds(2 * second));
        reserve.spend_since(Instant::now().checked_sub(60 * second).unwrap());
        assert!(!reserve.exceeds(Duration::ZERO));
    }
}

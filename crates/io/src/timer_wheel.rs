//! Deadlines.
/// Names one timer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

/// Deadlines.
pub struct TimerWheel {}

impl TimerWheel {
    /// Empty wheel.
    #[must_use]
    pub fn new(_now_ns: u64) -> Self {
        todo!()
    }
    /// A timer without a deadline; `user` comes back when it fires.
    pub fn create(&mut self, _user: u64) -> TimerId {
        todo!()
    }
    /// Sets or moves the deadline.
    pub fn set(&mut self, _timer: TimerId, _deadline_ns: u64) {
        todo!()
    }
    /// Takes the deadline away; the timer stays.
    pub fn clear(&mut self, _timer: TimerId) {
        todo!()
    }
    /// Ends the timer.
    pub fn remove(&mut self, _timer: TimerId) {
        todo!()
    }
    /// When to look again at the latest.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        todo!()
    }
    /// The next timer whose deadline passed; it is cleared, not removed.
    pub fn pop_expired(&mut self, _now_ns: u64) -> Option<(u64, TimerId)> {
        todo!()
    }
    /// Calls `expired` for each timer whose deadline passed.
    pub fn advance(&mut self, now_ns: u64, expired: &mut impl FnMut(u64, TimerId)) {
        while let Some((user, timer)) = self.pop_expired(now_ns) {
            expired(user, timer);
        }
    }
}

//! The stretch of a load run that its rate is of.
//!
//! A run that a count ends goes on until its last request is answered, and then a few stragglers decide how long
//! it took. The rate is therefore of the time in which there was still something to ask.

use serde::{Deserialize, Serialize};

/// What ended the window of the rate.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateWindowEnd {
    /// Its time was up, or the run was ended early.
    #[default]
    Time,
    /// Closed loop: a connection was free and found no request left to send.
    NoRequestLeft,
    /// Open loop: the moment at which the first request behind the last would have been due.
    LastArrival,
    /// The last request was answered: too few were before one of the above.
    LastAnswer,
}

impl RateWindowEnd {
    /// Behind "N answers in T, ".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Time => "until its time was up",
            Self::NoRequestLeft => "until a connection found no request left to send",
            Self::LastArrival => "the time that their arrivals take",
            Self::LastAnswer => "until the last one (too few came while all connections were busy)",
        }
    }
}

/// What the rate is of: `answers` over `duration_ns`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadRateWindow {
    /// Its length.
    pub duration_ns: u64,
    /// Right answers in it, whenever their requests left.
    pub answers: u64,
    /// Wrong answers in it; 0 in records of earlier versions.
    pub wrong_answers: u64,
    /// Of those, how many have a wrong status; 0 in records of earlier versions.
    pub wrong_statuses: u64,
    /// Bytes received in it, heads included.
    pub bytes_received: u64,
    /// What ended it.
    pub end: RateWindowEnd,
}

impl LoadRateWindow {
    /// Right answers per second.
    #[must_use]
    pub fn per_s(&self) -> f64 {
        self.rate_of(self.answers)
    }

    /// All answers in it, right and wrong.
    #[must_use]
    pub const fn all_answers(&self) -> u64 {
        self.answers + self.wrong_answers
    }

    /// `count` of something in it, per second.
    #[must_use]
    pub fn rate_of(&self, count: u64) -> f64 {
        match self.duration_ns {
            0 => 0.0,
            duration_ns => count as f64 * 1e9 / duration_ns as f64,
        }
    }

    /// Adds what others counted meanwhile: the longer window is both's.
    pub fn add_parallel(&mut self, other: &Self) {
        self.duration_ns = self.duration_ns.max(other.duration_ns);
        self.add_counts(other);
    }

    /// Adds what was counted before or afterwards.
    pub fn add_sequel(&mut self, other: &Self) {
        self.duration_ns += other.duration_ns;
        self.add_counts(other);
    }

    fn add_counts(&mut self, other: &Self) {
        self.answers += other.answers;
        self.wrong_answers += other.wrong_answers;
        self.wrong_statuses += other.wrong_statuses;
        self.bytes_received += other.bytes_received;
        self.end = self.end.max(other.end);
    }
}

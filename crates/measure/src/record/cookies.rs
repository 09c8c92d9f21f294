//! What came of the cookies that a server set.

use serde::{Deserialize, Serialize};

/// Set-Cookie fields of all answers, warm-up included, by what came of them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadCookies {
    /// A user had the cookie from then on.
    pub set: u64,
    /// A user lost it, as the server wished.
    pub deleted: u64,
    /// There was no room for it, so the requests lacked it.
    pub overflowed: u64,
    /// It was no cookie, or one for TLS alone on a connection in clear text.
    pub unusable: u64,
}

impl LoadCookies {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            set: self.set + other.set,
            deleted: self.deleted + other.deleted,
            overflowed: self.overflowed + other.overflowed,
            unusable: self.unusable + other.unusable,
        }
    }
}

//! The smallest memory limit that a candidate survives.

use serde::{Deserialize, Serialize};

use crate::units::{format_bytes, format_three_digits};

/// What a bisection found, as the memory that all processes of a server may hold together: page cache and kernel memory
/// included, as a container's limit counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FoundLimit {
    /// The smallest that was survived.
    pub limit_bytes: u64,
    /// The largest that was not.
    pub died_at_bytes: u64,
    /// The most that the group held without a limit.
    pub peak_bytes: u64,
    /// So often it was survived.
    pub needed: u32,
    /// Of so many trials at most.
    pub of: u32,
    /// Requests per second at that limit over those without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_ratio: Option<f64>,
}

impl FoundLimit {
    /// In one sentence, of the candidate of this name.
    #[must_use]
    pub fn sentence(&self, name: &str) -> String {
        let [limit, died, peak] = [self.limit_bytes, self.died_at_bytes, self.peak_bytes]
            .map(|bytes| format_bytes(bytes as f64));
        let cost = self.throughput_ratio.map_or_else(String::new, |ratio| {
            format!(
                "; throughput there is {}x what it is without a limit",
                format_three_digits(ratio)
            )
        });
        format!(
            "{name}: survives {limit} ({} of {} times) and not {died}; without a limit it held {peak}{cost}.",
            self.needed, self.of
        )
    }
}

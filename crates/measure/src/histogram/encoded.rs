//! A histogram as text: HdrHistogram's V2 encoding, compressed, in base64 (`HISTFAAA...`).
//!
//! Every tool of HdrHistogram reads it, and it holds every bin: what is decoded equals what was
//! encoded, so that runs can be merged exactly. Absent on purpose: histograms of another range. They
//! would have to be recorded anew, bin by bin, and would no longer be what was measured.

use super::{HIGHEST_NS, LOWEST_NS, LatencyHistogram, SIGNIFICANT_DIGITS};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

/// Why a text is no histogram of ours.
#[derive(Debug, thiserror::Error)]
pub enum EncodedError {
    /// Not base64.
    #[error("it is not base64: {0}")]
    Base64(#[from] base64::DecodeError),
    /// Base64, but of something else.
    #[error("it is no HdrHistogram of version 2: {0}")]
    Format(String),
    /// A histogram over another range, whose bins do not fall on ours.
    #[error(
        "it covers {low} to {high} with {digits} digits; only histograms of {LOWEST_NS} to \
         {HIGHEST_NS} ns with {SIGNIFICANT_DIGITS} digits can be merged exactly"
    )]
    Range {
        /// Smallest value.
        low: u64,
        /// Largest value.
        high: u64,
        /// Significant digits.
        digits: u8,
    },
}

impl LatencyHistogram {
    /// The text. Values are nanoseconds.
    #[must_use]
    pub fn to_v2(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.inner, &mut bytes)
            .expect("memory takes every byte, and no count is above what the format holds");
        STANDARD.encode(bytes)
    }

    /// The histogram of such a text.
    ///
    /// # Errors
    /// If it is something else, or a histogram whose bins are not ours.
    pub fn from_v2(text: &str) -> Result<Self, EncodedError> {
        let bytes = STANDARD.decode(text.trim())?;
        let inner: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| EncodedError::Format(error.to_string()))?;
        let (low, high, digits) = (inner.low(), inner.high(), inner.sigfig());
        if (low, high, digits) != (LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS) {
            return Err(EncodedError::Range { low, high, digits });
        }
        // Into one of our own: a decoded one grows, and has no more bins than it needs.
        let mut histogram = Self::new();
        for step in inner.iter_recorded() {
            histogram.record_many(step.value_iterated_to(), step.count_at_value());
        }
        Ok(histogram)
    }
}

/// In records: the text.
impl Serialize for LatencyHistogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_v2())
    }
}

impl<'de> Deserialize<'de> for LatencyHistogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_v2(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Goal: nothing is lost on the way through text, to the last bin.
        #[test]
        fn what_is_decoded_is_what_was_encoded(
            values in prop::collection::vec((0_u64..1 << 43, 1_u64..1 << 40), 0..200),
        ) {
            let mut histogram = LatencyHistogram::new();
            for &(value_ns, count) in &values {
                histogram.record_many(value_ns, count);
            }
            let again = LatencyHistogram::from_v2(&histogram.to_v2()).unwrap();
            prop_assert!(again.bins().eq(histogram.bins()));
            prop_assert_eq!(again.summary(), histogram.summary());
        }
    }

    /// Goal: tools know the text by its beginning.
    #[test]
    fn the_text_begins_as_everywhere() {
        assert!(LatencyHistogram::new().to_v2().starts_with("HISTFAAA"));
    }

    /// Goal: text that is cut, foreign or of another range is refused with the reason.
    #[test]
    fn foreign_text_is_refused() {
        let mut histogram = LatencyHistogram::new();
        histogram.record_many(1_000, 5);
        let text = histogram.to_v2();
        let refused = |text: &str| LatencyHistogram::from_v2(text).unwrap_err().to_string();
        assert!(refused("§").contains("base64"));
        assert!(refused("AAAA").contains("version 2"));
        assert!(!refused(&text[..text.len() / 8 * 4]).is_empty());
        let seconds = Histogram::<u64>::new_with_bounds(1, 3_600, 2).unwrap();
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&seconds, &mut bytes)
            .unwrap();
        assert!(refused(&STANDARD.encode(bytes)).contains("1 to 3600 with 2 digits"));
    }
}

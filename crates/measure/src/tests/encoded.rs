use super::*;
use proptest::prelude::*;

proptest! {
    /// Goal: nothing is lost in the text form, to the last bin.
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

/// Goal: tools recognise the text by its beginning.
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

use super::*;

/// Goal: percentages are read with and without their sign, and what is none, or less than the
/// smallest step, is refused.
#[test]
fn shares_are_read() {
    for (text, parts) in [
        ("5", 50_000),
        ("5%", 50_000),
        ("0.1%", 1_000),
        ("0.0001", 1),
        ("100%", 1_000_000),
    ] {
        let share: MirrorShare = text.parse().unwrap();
        assert_eq!(share.parts_per_million(), parts, "{text}");
        let again: MirrorShare = share.to_string().parse().unwrap();
        assert_eq!(again, share, "{text}");
    }
    for text in [
        "", "0", "-1", "100.1", "0.00001", "NaN", "inf", "five", "5 %",
    ] {
        assert!(text.parse::<MirrorShare>().is_err(), "{text}");
    }
}

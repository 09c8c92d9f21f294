use super::*;

/// Goal: written options parse back the same, whatever the options and their order.
#[test]
fn options_survive_being_written() {
    for guard_pages in [false, true] {
        for fail_at in [None, NonZeroU64::new(1), Some(NonZeroU64::MAX)] {
            let checks = Checks {
                guard_pages,
                fail_at,
            };
            assert_eq!(checks.to_string().parse(), Ok(checks), "{checks}");
        }
    }
    assert_eq!("fail=3,guard".parse(), "guard,fail=3".parse::<Checks>());
}

/// Goal: mistakes are refused by name, with what to write instead.
#[test]
fn mistakes_are_named() {
    for (text, expected) in [
        ("guards", "know no \"guards\""),
        ("guard,", "know no \"\""),
        ("fail=0", "fail=\"0\""),
        ("fail=", "from 1 on"),
        ("fail=-1", "from 1 on"),
        ("guard,guard", "guard is given twice"),
        ("fail=1,fail=2", "fail is given twice"),
    ] {
        let sentence = text.parse::<Checks>().unwrap_err().to_string();
        assert!(sentence.contains(expected), "{text}: {sentence}");
    }
}

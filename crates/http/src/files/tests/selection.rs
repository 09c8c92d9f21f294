use super::version_tests::version;
use super::*;
use proptest::prelude::*;
use std::time::{Duration, SystemTime};

const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const EXACT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
const MODIFIED_S: u64 = 784_111_777;

fn validators(size_bytes: u64) -> Validators {
    let file = version(size_bytes, MODIFIED_S as i64 * 1_000_000_000);
    Validators::new(
        &file,
        SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED_S + 9),
    )
}

fn selected(size_bytes: u64, is_get: bool, fields: &[(&str, &str)]) -> Selection {
    let validators = validators(size_bytes);
    let tag = String::from_utf8(validators.tag().to_vec()).unwrap();
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (*name, value.replace("TAG", &tag)))
        .collect();
    let fields = fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    select(fields, &validators, size_bytes, is_get, || MODIFIED_S + 9)
}

fn part(first: u64, last: u64) -> Selection {
    Selection::Part(ByteRange { first, last })
}

/// Goal: the table of RFC 9110 13.2.2: each condition alone, and which one wins.
#[test]
fn preconditions_are_evaluated_in_their_order() {
    use Selection::{NotModified, PreconditionFailed, Whole};
    let cases: &[(&[(&str, &str)], Selection)] = &[
        (&[], Whole),
        (&[("If-Match", "*")], Whole),
        (&[("If-Match", "TAG")], Whole),
        (&[("If-Match", "\"x\", TAG")], Whole),
        (&[("If-Match", "\"x\""), ("If-Match", "TAG")], Whole),
        (&[("If-Match", "W/TAG")], PreconditionFailed),
        (&[("If-Match", "\"x\"")], PreconditionFailed),
        (&[("If-Match", "")], PreconditionFailed),
        (
            &[("If-Match", "TAG"), ("If-Unmodified-Since", BEFORE)],
            Whole,
        ),
        (&[("If-Unmodified-Since", BEFORE)], PreconditionFailed),
        (&[("If-Unmodified-Since", EXACT)], Whole),
        (&[("If-Unmodified-Since", "yesterday")], Whole),
        (&[("If-None-Match", "*")], NotModified),
        (&[("if-none-match", "TAG")], NotModified),
        (&[("If-None-Match", "W/TAG")], NotModified),
        (&[("If-None-Match", "\"a\",\t\"b,c\" , TAG")], NotModified),
        (&[("If-None-Match", ",, TAG ,")], NotModified),
        (&[("If-None-Match", "\"a\" TAG")], Whole),
        (&[("If-None-Match", "a, TAG")], Whole),
        (&[("If-None-Match", "w/TAG")], Whole),
        (
            &[("If-None-Match", "\"x\""), ("If-Modified-Since", AFTER)],
            Whole,
        ),
        (&[("If-Modified-Since", EXACT)], NotModified),
        (&[("If-Modified-Since", AFTER)], NotModified),
        (&[("If-Modified-Since", BEFORE)], Whole),
        (
            &[("If-Modified-Since", "Sunday, 06-Nov-94 08:49:37 GMT")],
            NotModified,
        ),
        (&[("If-Modified-Since", "0")], Whole),
        (
            &[("If-Modified-Since", EXACT), ("If-Modified-Since", EXACT)],
            Whole,
        ),
        (
            &[("If-Match", "\"x\""), ("If-None-Match", "TAG")],
            PreconditionFailed,
        ),
        (
            &[("If-None-Match", "TAG"), ("Range", "bytes=0-1")],
            NotModified,
        ),
    ];
    for (fields, expected) in cases {
        for is_get in [true, false] {
            assert_eq!(selected(100, is_get, fields), *expected, "{fields:?}");
        }
    }
}

/// Goal: RFC 9110 14.1.2 and its examples; anything but one valid range of bytes is ignored.
#[test]
fn one_range_is_cut_and_the_rest_ignored() {
    use Selection::{Unsatisfiable, Whole};
    for (range, expected) in [
        ("bytes=0-0", part(0, 0)),
        ("bytes=0-499", part(0, 99)),
        ("bytes=10-", part(10, 99)),
        ("bytes=99-99", part(99, 99)),
        ("bytes=-1", part(99, 99)),
        ("bytes=-100", part(0, 99)),
        ("bytes=-500", part(0, 99)),
        ("BYTES=1-2", part(1, 2)),
        ("bytes= 1-2 ", part(1, 2)),
        ("bytes=0-99999999999999999999999999", part(0, 99)),
        ("bytes=100-", Unsatisfiable),
        ("bytes=100-200", Unsatisfiable),
        ("bytes=99999999999999999999999999-", Unsatisfiable),
        ("bytes=-0", Unsatisfiable),
        ("bytes=2-1", Whole),
        ("bytes=0-1,5-6", Whole),
        ("bytes=", Whole),
        ("bytes=-", Whole),
        ("bytes=--1", Whole),
        ("bytes=1", Whole),
        ("bytes=+1-2", Whole),
        ("bytes=1 -2", Whole),
        ("bytes=0x1-2", Whole),
        ("bytes 1-2", Whole),
        ("lines=1-2", Whole),
        ("", Whole),
    ] {
        assert_eq!(
            selected(100, true, &[("Range", range)]),
            expected,
            "{range}"
        );
        assert_eq!(
            selected(100, false, &[("Range", range)]),
            Whole,
            "HEAD {range}"
        );
    }
    assert_eq!(selected(0, true, &[("Range", "bytes=0-")]), Unsatisfiable);
    assert_eq!(selected(0, true, &[("Range", "bytes=-5")]), Whole);
    let twice = [("Range", "bytes=0-1"), ("Range", "bytes=0-1")];
    assert_eq!(selected(100, true, &twice), Whole);
}

/// Goal: a range of another state of the file is never sent.
#[test]
fn if_range_guards_the_range() {
    for (if_range, expected) in [
        ("TAG", part(0, 1)),
        (EXACT, part(0, 1)),
        ("W/TAG", Selection::Whole),
        ("\"x\"", Selection::Whole),
        (BEFORE, Selection::Whole),
        (AFTER, Selection::Whole),
        ("", Selection::Whole),
    ] {
        let fields = [("If-Range", if_range), ("Range", "bytes=0-1")];
        assert_eq!(selected(100, true, &fields), expected, "{if_range}");
    }
    let same_second = select(
        [
            (&b"range"[..], &b"bytes=0-1"[..]),
            (b"if-range", EXACT.as_bytes()),
        ]
        .into_iter(),
        &validators(100),
        100,
        true,
        || MODIFIED_S,
    );
    assert_eq!(same_second, Selection::Whole, "the second is not over yet");
}

proptest! {
    /// Goal: whatever is asked for, a part lies within the file.
    #[test]
    fn a_part_lies_within_the_file(range in "bytes=[0-9]{0,22}-[0-9]{0,22}", size_bytes: u64) {
        if let Selection::Part(range) = selected(size_bytes, true, &[("Range", &range)]) {
            prop_assert!(range.first <= range.last && range.last < size_bytes);
            prop_assert!(range.len_bytes() <= size_bytes);
        }
    }

    /// Goal: no field value panics.
    #[test]
    fn any_value_is_survived(value in proptest::collection::vec(any::<u8>(), 0..60)) {
        let names = ["range", "if-range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since"];
        for name in names {
            let fields = [(name.as_bytes(), &value[..]), (b"range", b"bytes=0-1")];
            select(fields.into_iter(), &validators(10), 10, true, || 0);
        }
    }
}

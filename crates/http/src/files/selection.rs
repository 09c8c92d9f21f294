//! Which part of a file a GET or HEAD is answered with, if any: preconditions first, then the range.
//!
//! RFC 9110 13.2.2 gives the order: `If-Match`, else `If-Unmodified-Since`; `If-None-Match`, else
//! `If-Modified-Since`; `Range` with `If-Range`. A field that says nothing valid is as if it were
//! not there, except `If-Match`, whose purpose is to refuse.
//!
//! Absent on purpose: several ranges in one answer. `Range` may be ignored (14.2), the whole file is
//! always right, and `multipart/byteranges` lets a short request ask for much more than the file.

use super::version::Validators;

/// What to answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Selection {
    /// 200
    Whole,
    /// 206
    Part(ByteRange),
    /// 304
    NotModified,
    /// 412
    PreconditionFailed,
    /// 416
    Unsatisfiable,
}

/// Some bytes of a file: at least one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ByteRange {
    pub(super) first: u64,
    /// The last one belongs to it.
    pub(super) last: u64,
}

impl ByteRange {
    pub(super) fn len_bytes(self) -> u64 {
        self.last - self.first + 1
    }
}

/// What a list of entity tags says about ours.
#[derive(Clone, Copy, Debug, Default)]
struct TagList {
    is_there: bool,
    /// `*`, or our tag is in it.
    matches: bool,
}

/// A field that makes sense once.
#[derive(Clone, Copy, Debug, Default)]
enum Single<'a> {
    #[default]
    Missing,
    Value(&'a [u8]),
    /// More than one line: not valid.
    Repeated,
}

impl<'a> Single<'a> {
    fn put(&mut self, value: &'a [u8]) {
        *self = match self {
            Self::Missing => Self::Value(value),
            Self::Value(_) | Self::Repeated => Self::Repeated,
        };
    }

    fn value(self) -> Option<&'a [u8]> {
        match self {
            Self::Value(value) => Some(value),
            Self::Missing | Self::Repeated => None,
        }
    }
}

/// Decides for a file with these validators and this size. `is_get`: ranges are GET's alone.
pub(super) fn select<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    validators: &Validators,
    size_bytes: u64,
    is_get: bool,
    now_s: impl FnOnce() -> u64,
) -> Selection {
    let tag = validators.tag();
    let (mut if_match, mut if_none_match) = (TagList::default(), TagList::default());
    let (mut if_modified, mut if_unmodified) = (Single::Missing, Single::Missing);
    let (mut range, mut if_range) = (Single::Missing, Single::Missing);
    for (name, value) in fields {
        // No name below is shorter; most fields of most requests are told apart by their first byte.
        match name {
            [b'i' | b'I', ..] if name.len() >= 8 => {
                if name.eq_ignore_ascii_case(b"if-none-match") {
                    if_none_match.is_there = true;
                    if_none_match.matches |= lists_tag(value, tag, true);
                } else if name.eq_ignore_ascii_case(b"if-modified-since") {
                    if_modified.put(value);
                } else if name.eq_ignore_ascii_case(b"if-range") {
                    if_range.put(value);
                } else if name.eq_ignore_ascii_case(b"if-match") {
                    if_match.is_there = true;
                    if_match.matches |= lists_tag(value, tag, false);
                } else if name.eq_ignore_ascii_case(b"if-unmodified-since") {
                    if_unmodified.put(value);
                }
            }
            [b'r' | b'R', ..] if name.eq_ignore_ascii_case(b"range") => range.put(value),
            _ => {}
        }
    }
    let modified_s = validators.modified_s;
    if if_match.is_there {
        if !if_match.matches {
            return Selection::PreconditionFailed;
        }
    } else if if_unmodified
        .value()
        .and_then(date_s)
        .is_some_and(|since_s| modified_s > since_s)
    {
        return Selection::PreconditionFailed;
    }
    if if_none_match.is_there {
        if if_none_match.matches {
            return Selection::NotModified;
        }
    } else if if_modified
        .value()
        .and_then(date_s)
        .is_some_and(|since_s| modified_s <= since_s)
    {
        return Selection::NotModified;
    }
    let Some(range) = range.value().filter(|_| is_get) else {
        return Selection::Whole;
    };
    let is_same_file = match if_range {
        Single::Missing => true,
        Single::Repeated => false,
        Single::Value(value) if value.ends_with(b"\"") => value == tag,
        // A date is a strong validator only when a second change within its second is past.
        Single::Value(value) => value == validators.date() && modified_s < now_s(),
    };
    match is_same_file {
        true => select_range(range, size_bytes),
        false => Selection::Whole,
    }
}

fn date_s(value: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    Some(super::version::seconds_since_epoch(date))
}

/// Whether a list of entity tags (RFC 9110 8.8.3) holds this one; what is malformed ends the list.
fn lists_tag(list: &[u8], tag: &[u8], is_weak_equal: bool) -> bool {
    if list == b"*" {
        return true;
    }
    let mut rest = list;
    loop {
        while let [b' ' | b'\t' | b',', after @ ..] = rest {
            rest = after;
        }
        let (is_weak, opaque) = match rest.strip_prefix(b"W/") {
            Some(opaque) => (true, opaque),
            None => (false, rest),
        };
        let [b'"', inner @ ..] = opaque else {
            return false;
        };
        let Some(quote) = memchr::memchr(b'"', inner) else {
            return false;
        };
        if opaque[..quote + 2] == *tag && (is_weak_equal || !is_weak) {
            return true;
        }
        rest = &inner[quote + 1..];
        // Behind a tag comes a comma, or nothing.
        while let [b' ' | b'\t', after @ ..] = rest {
            rest = after;
        }
        if !matches!(rest, [b',', ..]) {
            return false;
        }
    }
}

/// RFC 9110 14.1.2, for one range. Numbers larger than any file count as just that.
fn select_range(value: &[u8], size_bytes: u64) -> Selection {
    let Some((unit, spec)) = value.split_at_checked("bytes=".len()) else {
        return Selection::Whole;
    };
    let spec = spec.trim_ascii();
    let mut ends = spec.splitn(2, |&byte| byte == b'-');
    let (Some(first), Some(last)) = (ends.next(), ends.next()) else {
        return Selection::Whole;
    };
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return Selection::Whole;
    }
    match (number(first), number(last)) {
        (Some(first), _) if last.is_empty() => from_to(first, u64::MAX, size_bytes),
        (Some(first), Some(last)) if first <= last => from_to(first, last, size_bytes),
        (None, Some(suffix)) if first.is_empty() => match suffix {
            0 => Selection::Unsatisfiable,
            // The last bytes of nothing: satisfiable, but no Content-Range can say so.
            _ if size_bytes == 0 => Selection::Whole,
            _ => from_to(size_bytes.saturating_sub(suffix), u64::MAX, size_bytes),
        },
        _ => Selection::Whole,
    }
}

fn from_to(first: u64, last: u64, size_bytes: u64) -> Selection {
    if first >= size_bytes {
        return Selection::Unsatisfiable;
    }
    Selection::Part(ByteRange {
        first,
        last: last.min(size_bytes - 1),
    })
}

/// One digit or more; too many stay at the largest number.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::super::version::tests::version;
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

    /// Goal: RFC 9110 14.1.2 and its examples; what is not one valid range of bytes is ignored.
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
}

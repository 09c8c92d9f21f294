use super::*;

proptest::proptest! {
    /// Goal: a tag is what formatting writes, and is read as the version it was made of.
    #[test]
    fn tags_are_sixteen_digits(number in proptest::prelude::any::<u64>()) {
        let tag = tag(Version(number));
        let expected = format!("\"{number:016x}\"");
        proptest::prop_assert_eq!(std::str::from_utf8(&tag).unwrap(), expected);
        proptest::prop_assert_eq!(version_of(&tag[1..TAG_BYTES - 1]), Some(Version(number)));
    }
}

fn condition(if_match: Option<&str>, if_none_match: Option<&str>) -> Condition {
    let mut condition = Condition::default();
    for (is_match, value) in [(true, if_match), (false, if_none_match)] {
        if let Some(value) = value {
            condition.add_field(is_match, value.as_bytes()).unwrap();
        }
    }
    condition
}

fn text(version: u64) -> String {
    String::from_utf8(tag(Version(version)).to_vec()).unwrap()
}

/// Goal: every version's tag is its own and is read back.
#[test]
fn tags_round_trip() {
    for version in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
        let tag = tag(Version(version));
        assert_eq!(version_of(&tag[1..17]), Some(Version(version)));
    }
    assert_eq!(text(0xabc), "\"0000000000000abc\"");
    assert_eq!(
        version_of(b"0000000000000ABC"),
        None,
        "another tag than ours"
    );
    assert_eq!(version_of(b"+000000000000abc"), None);
}

/// Goal: the table of RFC 9110 13.1.1 and 13.1.2, for an entity that is there, is another, or
/// is not.
#[test]
fn writes_depend_on_what_is_there() {
    let (here, weak) = (text(7), format!("W/{}", text(7)));
    let list = format!(", \"x,y\" ,, {}, , {here} ,", text(9));
    for (if_match, if_none_match, on_same, on_other, on_none) in [
        (None, None, true, true, true),
        (Some("*"), None, true, true, false),
        (Some(&*here), None, true, false, false),
        (Some(&*list), None, true, false, false),
        (Some(&*weak), None, false, false, false),
        (Some(""), None, false, false, false),
        (None, Some("*"), false, false, true),
        (None, Some(&*here), false, true, true),
        (None, Some(&*weak), false, true, true),
        (Some("*"), Some(&*here), false, true, false),
    ] {
        let condition = condition(if_match, if_none_match);
        let allowed =
            [Some(7), Some(8), None].map(|current| condition.allows_write(current.map(Version)));
        assert_eq!(
            allowed,
            [on_same, on_other, on_none],
            "{if_match:?} {if_none_match:?}"
        );
    }
}

/// Goal: a read is spared when the client has it, and refused when it wanted another; If-Match
/// comes first.
#[test]
fn reads_depend_on_what_is_there() {
    let here = text(7);
    let of = |if_match, if_none_match| condition(if_match, if_none_match).of_read(Version(7));
    assert_eq!(of(None, None), ReadVerdict::Value);
    assert_eq!(of(None, Some(&here)), ReadVerdict::NotModified);
    assert_eq!(of(None, Some("*")), ReadVerdict::NotModified);
    assert_eq!(of(None, Some("\"other\"")), ReadVerdict::Value);
    assert_eq!(of(Some(&here), None), ReadVerdict::Value);
    assert_eq!(of(Some("\"other\""), Some(&here)), ReadVerdict::Failed);
}

/// A list of five tags was refused.
///
/// Goal: each tag of a list counts, however many there are and in however many fields they come; those on the heap are
/// counted.
#[test]
fn lists_may_be_long() {
    for count in [4, 5, 100, 800_u64] {
        let tags: Vec<String> = (1..=count).map(text).collect();
        let (first, second) = tags.split_at(tags.len() / 2);
        for is_match in [false, true] {
            let mut condition = Condition::default();
            for field in [first, second] {
                let field = field.join(", \"foreign\", ");
                condition.add_field(is_match, field.as_bytes()).unwrap();
            }
            for version in [1, count / 2, count / 2 + 1, count] {
                assert_eq!(condition.allows_write(Some(Version(version))), is_match);
            }
            assert_eq!(condition.allows_write(Some(Version(count + 1))), !is_match);
            let heap_bytes = condition.heap_bytes();
            assert_eq!(heap_bytes > 0, count > INLINE_TAGS as u64);
            assert!(heap_bytes <= 2 * size_of::<Version>() * tags.len());
        }
    }
}

/// Goal: a text that is not a list of tags is refused.
#[test]
fn bad_fields_are_refused() {
    let of = |value: &str| Condition::default().add_field(false, value.as_bytes());
    for bad in ["7", "\"", "\"a", "\"a\" \"b\"", "w/\"a\"", "*, \"a\"", ","] {
        assert_eq!(of(bad), Err(ConditionError::Malformed), "{bad}");
    }
}

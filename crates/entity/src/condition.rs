//! If-Match and If-None-Match: on which version of an entity a request depends.
//!
//! On the path: `api` reads the fields, `handler` asks about reads, and `commit` about writes: on the
//! writer thread, between what was committed before and the write itself, so that of two clients
//! who saw the same version one writes and the other is told.
//! Absent on purpose: dates (If-Modified-Since): entities have none.

use crate::record::Version;

/// So many tags of ours stand in a condition itself. More, which hardly any client sends, are on the heap: what bounds
/// those is the length of a request's head, and what waits for the store is counted with them.
pub const INLINE_TAGS: usize = 4;

/// A tag as it is sent: 16 hexadecimal digits in quotes.
pub const TAG_BYTES: usize = 18;

/// Why a condition was refused. The client's fault: 400.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConditionError {
    /// Neither `*` nor a list of tags.
    #[error("bad entity tags: write * or \"TAG\", \"TAG\"")]
    Malformed,
}

/// Those of our own form are kept; any other matches nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Tags {
    Any,
    Few {
        versions: [Version; INLINE_TAGS],
        count: usize,
    },
    Many(Vec<Version>),
}

impl Tags {
    const NONE: Self = Self::Few {
        versions: [Version(0); INLINE_TAGS],
        count: 0,
    };

    fn matches(&self, current: Option<Version>) -> bool {
        match (self, current) {
            (_, None) => false,
            (Self::Any, Some(_)) => true,
            (Self::Few { versions, count }, Some(current)) => versions[..*count].contains(&current),
            (Self::Many(versions), Some(current)) => versions.contains(&current),
        }
    }

    fn add(&mut self, version: Version) {
        match self {
            Self::Any => {}
            Self::Few { versions, count } => match versions.get_mut(*count) {
                Some(place) => {
                    *place = version;
                    *count += 1;
                }
                None => *self = Self::Many([&versions[..], &[version]].concat()),
            },
            Self::Many(versions) => versions.push(version),
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Any | Self::Few { .. } => 0,
            Self::Many(versions) => versions.capacity() * size_of::<Version>(),
        }
    }
}

/// Both fields of a request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Condition {
    if_match: Option<Tags>,
    if_none_match: Option<Tags>,
}

/// What a read is to be answered with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReadVerdict {
    /// The value.
    Value,
    /// 304: the client has it.
    NotModified,
    /// 412.
    Failed,
}

impl Condition {
    /// Adds a field's value; a field may come more than once.
    ///
    /// # Errors
    /// [`ConditionError`].
    pub fn add_field(&mut self, is_match: bool, value: &[u8]) -> Result<(), ConditionError> {
        let field = match is_match {
            true => &mut self.if_match,
            false => &mut self.if_none_match,
        };
        let tags = field.get_or_insert(Tags::NONE);
        if value.trim_ascii() == b"*" {
            *tags = Tags::Any;
            return Ok(());
        }
        let mut rest = skip_empty(value);
        if rest.is_empty() && !value.trim_ascii().is_empty() {
            return Err(ConditionError::Malformed);
        }
        while !rest.is_empty() {
            let (is_weak, quoted) = match rest.strip_prefix(b"W/") {
                Some(quoted) => (true, quoted),
                None => (false, rest),
            };
            let opaque = quoted
                .strip_prefix(b"\"")
                .ok_or(ConditionError::Malformed)?;
            let end = opaque.iter().position(|&byte| byte == b'"');
            let end = end.ok_or(ConditionError::Malformed)?;
            // If-Match compares strongly: a weak tag matches nothing there (RFC 9110 13.1.1).
            if let Some(version) = version_of(&opaque[..end])
                && !(is_weak && is_match)
            {
                tags.add(version);
            }
            rest = opaque[end + 1..].trim_ascii_start();
            if !rest.is_empty() && !rest.starts_with(b",") {
                return Err(ConditionError::Malformed);
            }
            rest = skip_empty(rest);
        }
        Ok(())
    }

    /// What it holds besides itself.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let fields = [&self.if_match, &self.if_none_match];
        fields.into_iter().flatten().map(Tags::heap_bytes).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.if_match.is_none() && self.if_none_match.is_none()
    }

    /// Whether a write may be done where `current` is there.
    #[must_use]
    pub fn allows_write(&self, current: Option<Version>) -> bool {
        let (if_match, if_none_match) = (&self.if_match, &self.if_none_match);
        if_match.as_ref().is_none_or(|tags| tags.matches(current))
            && !if_none_match
                .as_ref()
                .is_some_and(|tags| tags.matches(current))
    }

    /// How a read is to be answered where `current` was found.
    #[must_use]
    pub fn of_read(&self, current: Version) -> ReadVerdict {
        let current = Some(current);
        let (if_match, if_none_match) = (self.if_match.as_ref(), self.if_none_match.as_ref());
        if if_match.is_some_and(|tags| !tags.matches(current)) {
            return ReadVerdict::Failed;
        }
        if if_none_match.is_some_and(|tags| tags.matches(current)) {
            return ReadVerdict::NotModified;
        }
        ReadVerdict::Value
    }
}

/// The tag of a version.
#[must_use]
pub fn tag(version: Version) -> [u8; TAG_BYTES] {
    let mut tag = [b'"'; TAG_BYTES];
    tag[1..TAG_BYTES - 1].copy_from_slice(&hexadecimal(version.0));
    tag
}

/// All digits at once, one in each byte: every answer has a tag, and a loop took 480 instructions for it.
fn hexadecimal(number: u64) -> [u8; TAG_BYTES - 2] {
    const ONES: u128 = u128::MAX / 0xff;
    let mut digits = u128::from(number);
    // Halves move apart, until each digit has a byte: those of 32 bits, of 16, of 8 and of 4.
    digits = (digits | digits << 32) & (u128::MAX / 0xffff_ffff_ffff_ffff * 0xffff_ffff);
    digits = (digits | digits << 16) & (u128::MAX / 0xffff_ffff * 0xffff);
    digits = (digits | digits << 8) & (u128::MAX / 0xffff * 0xff);
    digits = (digits | digits << 4) & (ONES * 0xf);
    // Of 10 and more a letter: 6 more is 16 or more.
    let letters = (digits + ONES * 6) >> 4 & ONES;
    (digits + ONES * u128::from(b'0') + letters * u128::from(b'a' - b'9' - 1)).to_be_bytes()
}

/// Behind blanks and elements that are empty, which a list may have (RFC 9110 5.6.1.2).
fn skip_empty(mut rest: &[u8]) -> &[u8] {
    while let [b',' | b' ' | b'\t', behind @ ..] = rest {
        rest = behind;
    }
    rest.trim_ascii_end()
}

fn version_of(opaque: &[u8]) -> Option<Version> {
    let digits: &[u8; TAG_BYTES - 2] = opaque.try_into().ok()?;
    let is_ours = digits
        .iter()
        .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let text = std::str::from_utf8(digits).ok().filter(|_| is_ours)?;
    u64::from_str_radix(text, 16).ok().map(Version)
}

#[cfg(test)]
mod tests {
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
            let allowed = [Some(7), Some(8), None]
                .map(|current| condition.allows_write(current.map(Version)));
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

    /// Goal: what is no list of tags is refused.
    #[test]
    fn bad_fields_are_refused() {
        let of = |value: &str| Condition::default().add_field(false, value.as_bytes());
        for bad in ["7", "\"", "\"a", "\"a\" \"b\"", "w/\"a\"", "*, \"a\"", ","] {
            assert_eq!(of(bad), Err(ConditionError::Malformed), "{bad}");
        }
    }
}

//! Whether an answer is right. A fast wrong answer is an error, never a success.
//!
//! On the path: `session` feeds each answer through its check while it arrives; `outcome` counts
//! what comes out. Absent on purpose: hashing, unless a checksum is what the user knows. The first
//! answer's body is kept and later ones are compared with it in place, which is cheaper than a hash
//! and cannot collide.
mod checksum;
mod echo;
mod statuses;

pub use self::checksum::Checksum;
use self::checksum::Hasher;
pub(crate) use self::checksum::sha256_hex;
use self::echo::EchoSearch;
pub use self::statuses::StatusSet;
use crate::config::Workload;
use crate::workload::{Expected, KEY_BYTES_MAX};
use std::sync::OnceLock;

/// A first answer longer than this is compared by its first part and its length.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// How bodies are checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BodyCheck {
    /// Not at all: for pages that differ each time.
    Ignore,
    /// As long as the first answer (entity GET: as long as the value).
    Length,
    /// Byte for byte the first answer (entity GET: the value of the key).
    Exact,
}

/// Which answers are right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Validation {
    /// Which status codes.
    pub statuses: StatusSet,
    /// Which bodies.
    pub body: BodyCheck,
    /// How long bodies are; `None`: any length.
    pub length: Option<u64>,
    /// What bodies add up to; `None`: anything.
    pub checksum: Option<Checksum>,
    /// The key of the request must occur in the body.
    pub has_echo: bool,
}

impl Validation {
    /// Only statuses and bodies in comparison with others.
    pub const fn of(statuses: StatusSet, body: BodyCheck) -> Self {
        Self {
            statuses,
            body,
            length: None,
            checksum: None,
            has_echo: false,
        }
    }

    /// Whether the bytes of bodies matter, not only their number.
    const fn looks_at_bodies(&self) -> bool {
        matches!(self.body, BodyCheck::Exact) || self.checksum.is_some() || self.has_echo
    }

    /// 201 for entity PUT, 200 with the exact value for entity GET; below 400 with any body for
    /// other people's servers, as wrk judges.
    pub fn for_workload(workload: &Workload) -> Self {
        match workload {
            Workload::Static { .. } | Workload::StaticChunked { .. } | Workload::Mix(_) => {
                Self::of(StatusSet::range(200, 399), BodyCheck::Ignore)
            }
            Workload::EntityPut { .. } => Self::of(StatusSet::of(&[201]), BodyCheck::Exact),
            Workload::EntityGet { .. } => Self::of(StatusSet::of(&[200]), BodyCheck::Exact),
        }
    }
}

/// What became of one answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Judgement {
    /// Status and body are right.
    Right,
    /// A status outside the set; its body was not looked at.
    WrongStatus,
    /// The status is right, the body is not what was stored or what others got.
    WrongBody,
    /// The body has not the length it must have.
    WrongLength,
    /// The body has not the checksum it must have.
    WrongChecksum,
    /// The key is not in the body.
    NoEcho,
}

#[derive(Debug)]
struct FirstAnswer {
    status: u16,
    body_bytes: u64,
    /// At most [`KEPT_BYTES_MAX`] of the body; empty unless bodies are compared exactly.
    body: Vec<u8>,
}

/// The standard all answers of a run are held to; shared by its threads.
#[derive(Debug)]
pub(crate) struct Validator {
    validation: Validation,
    looks_at_bodies: bool,
    /// Nothing but the status matters: most runs.
    is_status_only: bool,
    first: OnceLock<FirstAnswer>,
}

impl Validator {
    /// Whether bodies are more than counted.
    #[inline]
    pub(crate) fn looks_at_bodies(&self) -> bool {
        self.looks_at_bodies
    }

    /// Whether nothing but the status matters.
    pub(crate) fn is_status_only(&self) -> bool {
        self.is_status_only
    }

    /// What an answer is of which nothing but this matters.
    #[inline]
    pub(crate) fn judge_status(&self, status: u16) -> Judgement {
        if self.validation.statuses.contains(status) {
            Judgement::Right
        } else {
            Judgement::WrongStatus
        }
    }

    pub(crate) fn new(validation: Validation) -> Self {
        Self {
            looks_at_bodies: validation.looks_at_bodies(),
            is_status_only: validation.body == BodyCheck::Ignore
                && validation.length.is_none()
                && !validation.looks_at_bodies(),
            validation,
            first: OnceLock::new(),
        }
    }
}

/// What a body is compared with that the user knows.
#[derive(Debug, Default)]
struct Known {
    hasher: Option<Hasher>,
    echo: EchoSearch,
}

/// One answer being checked while it arrives. Reused; allocates only until a first answer stands.
#[derive(Debug, Default)]
pub(crate) struct AnswerCheck {
    status: u16,
    received_bytes: u64,
    body_differs: bool,
    /// Made for the first body that needs it; most runs need none.
    known: Option<Box<Known>>,
    /// This session's candidate for the first answer.
    collected: Vec<u8>,
}

impl AnswerCheck {
    /// A head arrived.
    pub(crate) fn begin(&mut self, status: u16) {
        self.status = status;
        self.received_bytes = 0;
        self.body_differs = false;
        if let Some(known) = &mut self.known {
            known.hasher = None;
            known.echo.begin();
        }
        self.collected.clear();
    }

    /// The next bytes of a body arrived that nobody looks at.
    #[inline]
    pub(crate) fn skip(&mut self, part: &[u8]) {
        self.received_bytes += part.len() as u64;
    }

    /// The next bytes of the body arrived. `expected`: what is known of it beforehand.
    pub(crate) fn part(
        &mut self,
        validator: &Validator,
        expected: Option<&Expected<'_>>,
        part: &[u8],
    ) {
        let offset = self.received_bytes as usize;
        self.received_bytes += part.len() as u64;
        let validation = &validator.validation;
        if !validator.looks_at_bodies || !validation.statuses.contains(self.status) {
            return;
        }
        if let Some(checksum) = &validation.checksum {
            let hasher = &mut self.known.get_or_insert_default().hasher;
            hasher
                .get_or_insert_with(|| Hasher::of(checksum))
                .update(part);
        }
        if let Some(expected) = expected.filter(|_| validation.has_echo) {
            let echo = &mut self.known.get_or_insert_default().echo;
            echo.look(expected.key_id(&mut [0; KEY_BYTES_MAX]), part);
        }
        if validation.body == BodyCheck::Exact {
            self.compare(validator, expected, offset, part);
        }
    }

    fn compare(
        &mut self,
        validator: &Validator,
        expected: Option<&Expected<'_>>,
        offset: usize,
        part: &[u8],
    ) {
        if let Some((values, key)) = expected.and_then(Expected::value) {
            self.body_differs = self.body_differs || !values.matches(key, offset, part);
            return;
        }
        match validator.first.get() {
            Some(first) if first.status == self.status => {
                let kept = first.body.get(offset..).unwrap_or_default();
                let len = kept.len().min(part.len());
                // What lies beyond the kept part is judged by length alone.
                self.body_differs = self.body_differs || kept[..len] != part[..len];
            }
            Some(_) => {}
            None => {
                let room = KEPT_BYTES_MAX.saturating_sub(self.collected.len());
                self.collected
                    .extend_from_slice(&part[..part.len().min(room)]);
            }
        }
    }

    /// The answer is complete. Of several mistakes the first of this order is told: status, length,
    /// checksum, echo, content.
    pub(crate) fn finish(
        &mut self,
        validator: &Validator,
        expected: Option<&Expected<'_>>,
    ) -> Judgement {
        let validation = &validator.validation;
        if !validation.statuses.contains(self.status) {
            return Judgement::WrongStatus;
        }
        if validator.is_status_only {
            return Judgement::Right;
        }
        if validation
            .length
            .is_some_and(|length| length != self.received_bytes)
        {
            return Judgement::WrongLength;
        }
        if let Some(checksum) = &validation.checksum {
            let begun = self.known.as_mut().and_then(|known| known.hasher.take());
            let hasher = begun.unwrap_or_else(|| Hasher::of(checksum));
            if hasher.finish() != *checksum {
                return Judgement::WrongChecksum;
            }
        }
        if validation.has_echo
            && !self
                .known
                .as_ref()
                .is_some_and(|known| known.echo.is_found())
        {
            return Judgement::NoEcho;
        }
        let right = match (validation.body, expected.and_then(Expected::value)) {
            (BodyCheck::Ignore, _) => true,
            // A status that allows it, such as 404 of a deleted key, has a body of its own.
            (_, Some(_)) if self.status != 200 => true,
            (BodyCheck::Length | BodyCheck::Exact, Some((values, key))) => {
                !self.body_differs && self.received_bytes == values.len_of(key) as u64
            }
            (BodyCheck::Length | BodyCheck::Exact, None) => self.equals_first(validator),
        };
        if right {
            Judgement::Right
        } else {
            Judgement::WrongBody
        }
    }

    /// Whether the body is the first answer's; makes it the first answer if there is none. An
    /// answer with another status of the set is not comparable and passes.
    fn equals_first(&mut self, validator: &Validator) -> bool {
        let first = validator.first.get_or_init(|| FirstAnswer {
            status: self.status,
            body_bytes: self.received_bytes,
            body: std::mem::take(&mut self.collected),
        });
        if first.status != self.status {
            return true;
        }
        // Another session became first while this body was being collected: what was collected
        // before that has not been compared yet. (If this one became first, it is empty now.)
        let differs_from_rival = !first.body.starts_with(&self.collected);
        self.collected = Vec::new();
        first.body_bytes == self.received_bytes && !self.body_differs && !differs_from_rival
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::Values;
    use crate::workload::sources::Sources;

    fn validator(body: BodyCheck) -> Validator {
        Validator::new(Validation::of(StatusSet::of(&[200, 204]), body))
    }

    fn judge(validator: &Validator, status: u16, parts: &[&[u8]]) -> Judgement {
        let mut check = AnswerCheck::default();
        check.begin(status);
        parts
            .iter()
            .for_each(|part| check.part(validator, None, part));
        check.finish(validator, None)
    }

    #[test]
    fn status_sets_hold_what_they_were_given() {
        let set = StatusSet::range(200, 399);
        assert!(set.contains(200) && set.contains(399));
        assert!(!set.contains(199) && !set.contains(400) && !set.contains(65_535));
        assert!(!StatusSet::of(&[201]).contains(200));
    }

    /// Goal: the first answer sets the standard, whatever its split; any difference is caught.
    #[test]
    fn later_answers_must_equal_the_first() {
        let exact = validator(BodyCheck::Exact);
        assert_eq!(judge(&exact, 200, &[b"hello"]), Judgement::Right);
        assert_eq!(judge(&exact, 200, &[b"he", b"llo"]), Judgement::Right);
        for wrong in [&b"hellO"[..], b"hell", b"hello!", b""] {
            assert_eq!(
                judge(&exact, 200, &[wrong]),
                Judgement::WrongBody,
                "{wrong:?}"
            );
        }
        assert_eq!(judge(&exact, 204, &[]), Judgement::Right);
        assert_eq!(judge(&exact, 500, &[b"hello"]), Judgement::WrongStatus);
    }

    #[test]
    fn length_alone_is_checked_when_asked() {
        let length = validator(BodyCheck::Length);
        assert_eq!(judge(&length, 200, &[b"abc"]), Judgement::Right);
        assert_eq!(judge(&length, 200, &[b"xyz"]), Judgement::Right);
        assert_eq!(judge(&length, 200, &[b"abcd"]), Judgement::WrongBody);
        let ignore = validator(BodyCheck::Ignore);
        assert_eq!(judge(&ignore, 200, &[b"a"]), Judgement::Right);
        assert_eq!(judge(&ignore, 200, &[b"bc"]), Judgement::Right);
    }

    /// Goal: a wrong status never becomes the standard, even when it comes first.
    #[test]
    fn an_error_page_does_not_set_the_standard() {
        let exact = validator(BodyCheck::Exact);
        assert_eq!(judge(&exact, 503, &[b"busy"]), Judgement::WrongStatus);
        assert_eq!(judge(&exact, 200, &[b"hello"]), Judgement::Right);
        assert_eq!(judge(&exact, 200, &[b"busy"]), Judgement::WrongBody);
    }

    /// Goal: two sessions that answer at once cannot both be first with different bodies.
    #[test]
    fn the_loser_of_the_race_to_be_first_is_compared_too() {
        let exact = validator(BodyCheck::Exact);
        let (mut one, mut other) = (AnswerCheck::default(), AnswerCheck::default());
        one.begin(200);
        one.part(&exact, None, b"aaa");
        other.begin(200);
        other.part(&exact, None, b"b");
        assert_eq!(one.finish(&exact, None), Judgement::Right);
        other.part(&exact, None, b"aa");
        assert_eq!(other.finish(&exact, None), Judgement::WrongBody);
    }

    /// Goal: an entity answer is held to its own key's value, not to another's.
    #[test]
    fn entity_answers_are_held_to_their_key() {
        let exact = validator(BodyCheck::Exact);
        let sources = Sources::new("k", None, 10, Values::new(3, 100));
        let mut body = Vec::new();
        sources
            .values
            .write(5, |stretch| body.extend_from_slice(stretch));
        let judge = |key: u64, body: &[u8]| {
            let mut check = AnswerCheck::default();
            check.begin(200);
            body.chunks(33)
                .for_each(|part| check.part(&exact, Some(&sources.expected(key)), part));
            check.finish(&exact, Some(&sources.expected(key)))
        };
        assert_eq!(judge(5, &body), Judgement::Right);
        assert_eq!(judge(6, &body), Judgement::WrongBody);
        assert_eq!(judge(5, &body[..99]), Judgement::WrongBody);
        assert_eq!(judge(5, b""), Judgement::WrongBody);
    }

    /// Goal: length, checksum and echo are each found out, whatever the split, and told in order.
    #[test]
    fn what_a_user_knows_is_checked() {
        let sources = Sources::new("key", Some(4), 10_000, Values::new(1, 1));
        let judge = |validation: &Validation, body: &[u8], key: u64| {
            let validator = Validator::new(*validation);
            let expected = sources.expected(key);
            let results = [1, 2, 3, 7, 1_000].map(|size| {
                let mut check = AnswerCheck::default();
                check.begin(200);
                for part in body.chunks(size) {
                    check.part(&validator, Some(&expected), part);
                }
                check.finish(&validator, Some(&expected))
            });
            assert!(
                results.iter().all(|result| *result == results[0]),
                "{results:?}"
            );
            results[0]
        };
        let any = Validation::of(StatusSet::of(&[200]), BodyCheck::Ignore);
        let length = Validation {
            length: Some(3),
            ..any
        };
        assert_eq!(judge(&length, b"abc", 0), Judgement::Right);
        assert_eq!(judge(&length, b"abcd", 0), Judgement::WrongLength);
        assert_eq!(judge(&length, b"", 0), Judgement::WrongLength);
        // The check values of the two algorithms: CRC-32 of "123456789", SHA-256 of "abc".
        let crc32 = Some(Checksum::Crc32(0xcbf4_3926));
        let crc32 = Validation {
            checksum: crc32,
            ..any
        };
        assert_eq!(judge(&crc32, b"123456789", 0), Judgement::Right);
        assert_eq!(judge(&crc32, b"123456780", 0), Judgement::WrongChecksum);
        assert_eq!(judge(&crc32, b"", 0), Judgement::WrongChecksum);
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let sha256 = Some(Checksum::sha256(known).unwrap());
        let sha256 = Validation {
            checksum: sha256,
            ..any
        };
        assert_eq!(judge(&sha256, b"abc", 0), Judgement::Right);
        assert_eq!(judge(&sha256, b"abd", 0), Judgement::WrongChecksum);
        let echo = Validation {
            has_echo: true,
            ..any
        };
        assert_eq!(judge(&echo, b"<key0007>", 7), Judgement::Right);
        assert_eq!(judge(&echo, b"key0007", 7), Judgement::Right);
        assert_eq!(judge(&echo, b"kekey0007", 7), Judgement::Right);
        assert_eq!(judge(&echo, b"<key0008>", 7), Judgement::NoEcho);
        assert_eq!(judge(&echo, b"key000", 7), Judgement::NoEcho);
        assert_eq!(judge(&echo, b"", 7), Judgement::NoEcho);
    }
}

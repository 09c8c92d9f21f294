//! Whether an answer is right. A fast wrong answer is an error, never a success.
//!
//! On the path: `session` feeds each answer through its check while it arrives; `outcome` counts
//! what comes out. Absent on purpose: hashing. The first answer's body is kept and later ones are
//! compared with it in place, which is cheaper than a hash and cannot collide.
use crate::config::Workload;
use crate::values::Values;
use std::sync::OnceLock;

/// A first answer longer than this is compared by its first part and its length.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Status codes a set can hold: 0..640.
const STATUS_CODES: usize = 640;

/// Which status codes are right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StatusSet {
    words: [u64; STATUS_CODES / 64],
}

impl StatusSet {
    /// Exactly these.
    pub fn of(codes: &[u16]) -> Self {
        let mut set = Self {
            words: [0; STATUS_CODES / 64],
        };
        codes.iter().for_each(|&code| set.insert(code));
        set
    }

    /// All from `first` to `last`.
    pub fn range(first: u16, last: u16) -> Self {
        let mut set = Self::of(&[]);
        (first..=last).for_each(|code| set.insert(code));
        set
    }

    fn insert(&mut self, code: u16) {
        if let Some(word) = self.words.get_mut(usize::from(code) / 64) {
            *word |= 1 << (code % 64);
        }
    }

    /// Whether `code` is right.
    pub fn contains(&self, code: u16) -> bool {
        self.words
            .get(usize::from(code) / 64)
            .is_some_and(|word| word >> (code % 64) & 1 == 1)
    }
}

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
}

impl Validation {
    /// 201 for entity PUT, 200 with the exact value for entity GET; below 400 with any body for
    /// other people's servers, as wrk judges.
    pub fn for_workload(workload: &Workload) -> Self {
        match workload {
            Workload::Static { .. } | Workload::Mix(_) => Self {
                statuses: StatusSet::range(200, 399),
                body: BodyCheck::Ignore,
            },
            Workload::EntityPut { .. } => Self {
                statuses: StatusSet::of(&[201]),
                body: BodyCheck::Exact,
            },
            Workload::EntityGet { .. } => Self {
                statuses: StatusSet::of(&[200]),
                body: BodyCheck::Exact,
            },
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
    /// The status is right, the body is not.
    WrongBody,
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
    first: OnceLock<FirstAnswer>,
}

impl Validator {
    pub(crate) fn new(validation: Validation) -> Self {
        Self {
            validation,
            first: OnceLock::new(),
        }
    }
}

/// One answer being checked while it arrives. Reused; allocates only until a first answer stands.
#[derive(Debug, Default)]
pub(crate) struct AnswerCheck {
    status: u16,
    received_bytes: u64,
    body_differs: bool,
    /// This session's candidate for the first answer.
    collected: Vec<u8>,
}

impl AnswerCheck {
    /// A head arrived.
    pub(crate) fn begin(&mut self, status: u16) {
        self.status = status;
        self.received_bytes = 0;
        self.body_differs = false;
        self.collected.clear();
    }

    /// The next bytes of the body arrived. `value` is the value expected, if one is known.
    pub(crate) fn part(
        &mut self,
        validator: &Validator,
        value: Option<(&Values, u64)>,
        part: &[u8],
    ) {
        let offset = self.received_bytes as usize;
        self.received_bytes += part.len() as u64;
        let validation = &validator.validation;
        if validation.body != BodyCheck::Exact || !validation.statuses.contains(self.status) {
            return;
        }
        if let Some((values, key)) = value {
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

    /// The answer is complete.
    pub(crate) fn finish(
        &mut self,
        validator: &Validator,
        value: Option<(&Values, u64)>,
    ) -> Judgement {
        let validation = &validator.validation;
        if !validation.statuses.contains(self.status) {
            return Judgement::WrongStatus;
        }
        let right = match (validation.body, value) {
            (BodyCheck::Ignore, _) => true,
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

    fn validator(body: BodyCheck) -> Validator {
        Validator::new(Validation {
            statuses: StatusSet::of(&[200, 204]),
            body,
        })
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
        let values = Values::new(3, 100);
        let mut body = Vec::new();
        values.write(5, |stretch| body.extend_from_slice(stretch));
        let judge = |key: u64, body: &[u8]| {
            let mut check = AnswerCheck::default();
            check.begin(200);
            body.chunks(33)
                .for_each(|part| check.part(&exact, Some((&values, key)), part));
            check.finish(&exact, Some((&values, key)))
        };
        assert_eq!(judge(5, &body), Judgement::Right);
        assert_eq!(judge(6, &body), Judgement::WrongBody);
        assert_eq!(judge(5, &body[..99]), Judgement::WrongBody);
        assert_eq!(judge(5, b""), Judgement::WrongBody);
    }
}

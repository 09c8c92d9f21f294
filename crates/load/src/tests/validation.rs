use super::*;
use crate::request_plan::Values;
use crate::workload::Sources;

fn validator(body: BodyCheck) -> Validator {
    Validator::new(Validation::of(StatusSet::of(&[200, 204]), body))
}

fn judge(validator: &Validator, status: u16, parts: &[&[u8]]) -> Judgement {
    let mut check = ResponseCheck::default();
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

/// Goal: the first response sets the standard, whatever its split; any difference is caught.
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

/// Goal: two sessions with simultaneous responses cannot both be first with different bodies.
#[test]
fn the_loser_of_the_race_to_be_first_is_compared_too() {
    let exact = validator(BodyCheck::Exact);
    let (mut one, mut other) = (ResponseCheck::default(), ResponseCheck::default());
    one.begin(200);
    one.part(&exact, None, b"aaa");
    other.begin(200);
    other.part(&exact, None, b"b");
    assert_eq!(one.finish(&exact, None), Judgement::Right);
    other.part(&exact, None, b"aa");
    assert_eq!(other.finish(&exact, None), Judgement::WrongBody);
}

/// Goal: an entity response is held to its own key's value, not to another's.
#[test]
fn entity_answers_are_held_to_their_key() {
    let exact = validator(BodyCheck::Exact);
    let sources = Sources::new("k", None, 10, Values::new(3, 100));
    let mut body = Vec::new();
    sources
        .values
        .write(5, |stretch| body.extend_from_slice(stretch));
    let judge = |key: u64, body: &[u8]| {
        let mut check = ResponseCheck::default();
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

/// Goal: length, checksum and echo are each found out, whatever the split, and reported in order.
#[test]
fn what_a_user_knows_is_checked() {
    let sources = Sources::new("key", Some(4), 10_000, Values::new(1, 1));
    let judge = |validation: &Validation, body: &[u8], key: u64| {
        let validator = Validator::new(*validation);
        let expected = sources.expected(key);
        let results = [1, 2, 3, 7, 1_000].map(|size| {
            let mut check = ResponseCheck::default();
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

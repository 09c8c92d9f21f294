//! Every scanner against the reference, through the same questions.

#[cfg(target_arch = "x86_64")]
use super::avx2;
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::{LineEnds, Scalar, Scanner, TargetEnds, Text, is_target, is_token, portable};
use proptest::prelude::*;

/// All responses from one place on.
#[derive(Debug, Eq, PartialEq)]
struct Answers {
    token: usize,
    value: usize,
    line: LineEnds,
    target: TargetEnds,
}

fn answers<S: Scanner>(scanner: S, bytes: &[u8], at: usize) -> Option<Answers> {
    let text = Text::new(scanner, bytes)?;
    Some(Answers {
        token: text.token_end(at),
        value: text.value_end(at),
        line: scanner.line_ends(text, at),
        target: text.target_ends(at),
    })
}

/// Compares them all; the reference takes any text, the others what is long enough.
fn agree(bytes: &[u8], at: usize) {
    let reference = answers(Scalar, bytes, at).unwrap();
    let mut others = vec![("portable", answers(portable::SCANNER, bytes, at))];
    #[cfg(target_arch = "aarch64")]
    others.push(("neon", answers(neon::SCANNER, bytes, at)));
    #[cfg(target_arch = "x86_64")]
    {
        others.push(("sse2", answers(avx2::SCANNER, bytes, at)));
        if let Some(scanner) = avx2::Avx2::detect() {
            others.push(("avx2", answers(scanner, bytes, at)));
        }
    }
    for (name, found) in others {
        if let Some(found) = found {
            assert_eq!(found, reference, "{name} at {at}: {}", bytes.escape_ascii());
        }
    }
}

/// Lengths from nothing to past three of the widest blocks; few of them where each step is slow.
fn lengths() -> Box<dyn Iterator<Item = usize>> {
    if cfg!(miri) {
        return Box::new([0, 7, 8, 16, 17, 33].into_iter());
    }
    Box::new(0..100)
}

/// Every place, and every fourth where each step is slow.
const STEP: usize = if cfg!(miri) { 4 } else { 1 };

/// Goal: one odd byte of every value at every place of a text of every length is found from every
/// block that can hold it, wherever the text lies in memory.
#[test]
fn every_byte_at_every_place_is_judged_alike() {
    // Miri checks where bytes are read, not the result.
    let values: Vec<u8> = match cfg!(miri) {
        true => vec![b'\r'],
        false => (0..=255).collect(),
    };
    for length in lengths() {
        for place in (0..length).step_by(STEP) {
            // Texts begin at every alignment in turn.
            let offset = (length * 5 + place * 3) % 33;
            let mut memory = vec![b'a'; offset + length];
            for &value in &values {
                memory[offset + place] = value;
                let text = &memory[offset..];
                for at in [0, place.saturating_sub(33), place / 2, place, place + 1] {
                    agree(text, at);
                }
            }
        }
    }
}

/// Goal: no byte after the text is read: the results do not depend on it.
#[test]
fn what_lies_behind_the_text_does_not_matter() {
    for length in lengths() {
        for behind in [b'a', b'\r', b'?', 0x7f, 0xff] {
            let memory = [vec![b'a'; length], vec![behind; 64]].concat();
            for at in (0..=length).step_by(STEP) {
                agree(&memory[..length], at);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 4096 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Goal: the same on any bytes, where marks stand close together.
    #[test]
    fn random_bytes_are_judged_alike(
        text in proptest::collection::vec(any::<u8>(), 0..200), at in 0_usize..200,
    ) {
        agree(&text, at.min(text.len()));
    }

    /// Goal: and on what heads are made of, where runs are long.
    #[test]
    fn random_lines_are_judged_alike(text in "[a-zA-Z/?:=%;~ \\-]{0,120}[ -~\\t\\r\\n]{0,40}", at in 0_usize..160) {
        agree(text.as_bytes(), at.min(text.len()));
    }
}

/// Goal: the classes of the reference are those of the RFC, spelled out independently.
#[test]
fn classes_follow_the_grammar() {
    for byte in 0..=255_u8 {
        let separator = b"()<>@,;:\\\"/[]?={} \t".contains(&byte);
        assert_eq!(
            is_token(byte),
            byte.is_ascii_graphic() && !separator,
            "{byte:#x}"
        );
        let excluded = b"\"<>\\^`{|}#".contains(&byte);
        assert_eq!(
            is_target(byte),
            byte.is_ascii_graphic() && !excluded,
            "{byte:#x}"
        );
        let is_value = byte == b'\t' || byte == b' ' || byte.is_ascii_graphic() || byte >= 0x80;
        assert_eq!(super::is_field_value(byte), is_value, "{byte:#x}");
    }
}

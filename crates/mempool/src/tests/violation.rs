use super::*;
use std::fmt::Write;

/// Goal: each message names the pool, the address, the size and the place, has the remedy, and fits the line that is
/// written without memory, with the largest possible numbers.
#[test]
fn sentences_name_everything_and_fit_a_line() {
    const POOL: &str = "a pool with quite a long name";
    let (pool, address, size_bytes, allocation) = (POOL, usize::MAX, usize::MAX - 1, u64::MAX);
    let origin = Origin::Inside {
        address,
        size_bytes,
    };
    let all = [
        Violation::DoubleFree {
            pool,
            address,
            size_bytes,
            allocation,
        },
        Violation::UseAfterFree {
            pool,
            address,
            size_bytes,
            offset_bytes: isize::MIN,
            allocation: Some(allocation),
        },
        Violation::ForeignPointer {
            pool,
            address,
            origin,
        },
        Violation::Overrun {
            pool,
            address,
            size_bytes,
            offset_bytes: isize::MIN,
            allocation,
        },
        Violation::WrongSize {
            pool,
            address,
            size_bytes,
            freed_bytes: usize::MAX,
            allocation,
        },
    ];
    for violation in all {
        let mut line = Line::new();
        writeln!(line, "millpond: {violation}").unwrap();
        let sentence = std::str::from_utf8(line.bytes()).unwrap();
        for part in [POOL, "0xffffffffffffffff", "18446744073709551614", ": "] {
            assert!(sentence.contains(part), "{part} is missing: {sentence}");
        }
    }
}

/// Goal: damage is counted from 1 on either side, as a reader counts.
#[test]
fn distances_are_counted_from_one() {
    assert_eq!(beside(100, 100), ("overrun", 1, "behind"));
    assert_eq!(beside(107, 100), ("overrun", 8, "behind"));
    assert_eq!(beside(-1, 100), ("underrun", 1, "before"));
    assert_eq!(beside(-16, 100), ("underrun", 16, "before"));
}

/// Goal: a sentence too long for the line is cut, not lost, and never written out of bounds.
#[test]
fn long_sentence_is_cut() {
    let mut line = Line::new();
    assert!(write!(line, "{:600}", 'x').is_err());
    assert!(write!(line, "more").is_err());
    assert_eq!((line.len, line.bytes()[0]), (512, b'x'));
}

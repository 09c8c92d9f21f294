use super::*;
use std::num::NonZeroU64;

/// Goal: every mode is read back as it was written.
#[test]
fn modes_survive_being_written() {
    let mut modes = vec![PoolMode::On, PoolMode::ArenaOnly, PoolMode::Off];
    for guard_pages in [false, true] {
        for fail_at in [None, NonZeroU64::new(7)] {
            modes.push(PoolMode::Checked(Checks {
                guard_pages,
                fail_at,
            }));
        }
    }
    for mode in modes {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
}

/// Goal: an invalid mode is refused with a list of the valid ones.
#[test]
fn mistakes_are_named() {
    for (text, expected) in [
        ("yes", "\"yes\" is no mode"),
        ("", "write on, off, arena-only, or checked"),
        ("off,guard", "is no mode"),
        ("checked,", "know no \"\""),
        ("checked,fail=x", "from 1 on"),
        ("checkedguard", "is no mode"),
    ] {
        let sentence = text.parse::<PoolMode>().unwrap_err().to_string();
        assert!(sentence.contains(expected), "{text}: {sentence}");
    }
}

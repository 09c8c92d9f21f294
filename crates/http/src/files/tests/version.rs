use super::*;
use proptest::prelude::*;

pub(in crate::files) fn version(size_bytes: u64, modified_ns: i64) -> Version {
    Version {
        size_bytes,
        device: 1,
        inode: 0x2a,
        modified_ns,
        changed_ns: modified_ns,
    }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Goal: the RFC's example date, a tag of the three numbers, and no date from the future.
#[test]
fn validators_say_what_the_file_system_says() {
    let file = version(255, 784_111_777 * SECOND_NS + 5);
    let validators = Validators::new(&file, at(800_000_000));
    assert_eq!(validators.date(), b"Sun, 06 Nov 1994 08:49:37 GMT");
    let expected = format!("\"2a-ff-{:x}\"", 784_111_777 * SECOND_NS + 5);
    assert_eq!(validators.tag(), expected.as_bytes());
    let early = Validators::new(&file, at(1));
    assert_eq!(early.date(), b"Thu, 01 Jan 1970 00:00:01 GMT");
    assert_eq!(early.tag(), validators.tag());
}

/// Goal: a file that changed a moment ago, or in the future, is not settled.
#[test]
fn only_an_old_change_is_settled() {
    let file = version(1, 1000 * SECOND_NS);
    assert!(!file.is_settled(at(999)));
    assert!(!file.is_settled(at(1000) + Duration::from_millis(99)));
    assert!(file.is_settled(at(1000) + Duration::from_millis(100)));
    assert!(!version(1, -1).is_settled(at(1000)));
}

proptest! {
    /// Goal: no time or size on a disk makes a tag too long or a date that cannot be said.
    #[test]
    fn any_stat_has_validators(size_bytes: u64, inode: u64, modified_ns: i64, now_s in 0..u64::from(u32::MAX)) {
        let file = Version { inode, ..version(size_bytes, modified_ns) };
        let validators = Validators::new(&file, at(now_s));
        prop_assert!(validators.tag().starts_with(b"\"") && validators.tag().ends_with(b"\""));
        let date = std::str::from_utf8(validators.date()).unwrap();
        prop_assert_eq!(httpdate::parse_http_date(date).unwrap(), at(validators.modified_s));
    }
}

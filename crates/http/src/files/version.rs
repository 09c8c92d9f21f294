//! Which state of which file: what the kernel says of it, and the validators made from that.
//!
//! The entity tag is strong and made of inode, size and time of change in nanoseconds. It promises:
//! two answers with one tag carry the same bytes, as long as files are replaced by renaming, or
//! rewritten with a time of change that differs. A file overwritten in place, to the same length and
//! within one step of the file system's clock (4 ms, or a time set back by hand), keeps its tag.
//! Tags are those of one copy: another machine with the same files gives others.

use httpdate::HttpDate;
use rustix::fs::Stat;
use std::io::Write;
use std::time::{Duration, SystemTime};

const SECOND_NS: i64 = 1_000_000_000;

/// Two quotes, two hyphens and three numbers of up to 16 digits.
const TAG_BYTES_MAX: usize = 52;

const DATE_BYTES: usize = "Sun, 06 Nov 1994 08:49:37 GMT".len();

/// The last second that an HTTP date can say: the end of the year 9999.
const DATE_S_MAX: u64 = 253_402_300_799;

/// One state of one file. Two that are equal have the same bytes, with the reserve above and one
/// less: the time of the inode's change is part of it, which nobody sets by hand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Version {
    pub(super) size_bytes: u64,
    device: u64,
    inode: u64,
    modified_ns: i64,
    changed_ns: i64,
}

impl Version {
    #[expect(
        clippy::unnecessary_cast,
        reason = "the fields' types differ between architectures"
    )]
    pub(super) fn of(stat: &Stat) -> Self {
        // Times from a disk may be anything: they wrap, which at worst is one tag for two states.
        let ns = |seconds: i64, ns: i64| seconds.wrapping_mul(SECOND_NS).wrapping_add(ns);
        Self {
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            modified_ns: ns(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed_ns: ns(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }

    /// Whether the file has been left alone for so long that its next change will show: the clock of
    /// file systems stands still for some milliseconds at a time.
    pub(super) fn is_settled(&self, now: SystemTime) -> bool {
        const SETTLING: Duration = Duration::from_millis(100);
        let Ok(changed_ns) = u64::try_from(self.changed_ns) else {
            return false;
        };
        let changed = SystemTime::UNIX_EPOCH + Duration::from_nanos(changed_ns);
        now.duration_since(changed).is_ok_and(|age| age >= SETTLING)
    }
}

/// What a client may compare: as text, made once for each opening of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validators {
    tag: [u8; TAG_BYTES_MAX],
    tag_bytes: u8,
    date: [u8; DATE_BYTES],
    /// The second that `date` says.
    pub(super) modified_s: u64,
}

impl Validators {
    /// `now` caps the date: one in the future would never expire (RFC 9110 8.8.2.1).
    pub(super) fn new(version: &Version, now: SystemTime) -> Self {
        let mut tag = [0; TAG_BYTES_MAX];
        let mut rest = &mut tag[..];
        let (inode, size_bytes) = (version.inode, version.size_bytes);
        // Cannot fail: the array holds the longest numbers.
        let written = write!(
            rest,
            "\"{inode:x}-{size_bytes:x}-{:x}\"",
            version.modified_ns
        );
        debug_assert!(written.is_ok());
        let tag_bytes = (TAG_BYTES_MAX - rest.len()) as u8;
        let now_s = seconds_since_epoch(now);
        let modified_s = u64::try_from(version.modified_ns.div_euclid(SECOND_NS))
            .unwrap_or(0)
            .min(now_s)
            .min(DATE_S_MAX);
        let http_date = HttpDate::from(SystemTime::UNIX_EPOCH + Duration::from_secs(modified_s));
        let mut date = [0; DATE_BYTES];
        let mut rest = &mut date[..];
        // Cannot fail: an HTTP date has one length.
        let written = write!(rest, "{http_date}");
        debug_assert!(written.is_ok() && rest.is_empty());
        Self {
            tag,
            tag_bytes,
            date,
            modified_s,
        }
    }

    /// The entity tag, quotes included.
    pub(super) fn tag(&self) -> &[u8] {
        &self.tag[..usize::from(self.tag_bytes)]
    }

    /// `Last-Modified`.
    pub(super) fn date(&self) -> &[u8] {
        &self.date
    }
}

/// Zero for a clock that stands before 1970.
pub(super) fn seconds_since_epoch(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
pub(super) mod tests {
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
}

use super::*;

const KIB: u64 = 1024;

const ROLLUP: &str = "555629510000-7ffc6f0ce000 ---p 00000000 00:00 0    [rollup]\n\
    Rss:                1696 kB\nPss:                 354 kB\nPss_Dirty:           112 kB\n\
    Pss_Anon:            112 kB\nPss_File:            222 kB\nPss_Shmem:            20 kB\n\
    Shared_Clean:       1540 kB\nShared_Dirty:          0 kB\nPrivate_Clean:        44 kB\n\
    Private_Dirty:       112 kB\nReferenced:         1696 kB\nAnonymous:           112 kB\n\
    LazyFree:              8 kB\nAnonHugePages:         0 kB\nPrivate_Hugetlb:    2048 kB\n\
    Swap:                  9 kB\nSwapPss:               5 kB\nLocked:                0 kB\n";

/// Goal: private memory is the sum of its parts and none of the files; each field is the one it is called.
#[test]
fn a_rollup_is_read() {
    let sample = MemorySample::parse(ROLLUP).unwrap();
    assert_eq!(sample.private_bytes(), Some((112 + 20 + 5 + 2048) * KIB));
    assert_eq!(sample.rss_bytes, 1696 * KIB);
    assert_eq!(sample.uss_bytes, Some(156 * KIB));
    assert_eq!(sample.file_bytes, Some(222 * KIB));
    assert_eq!(sample.lazy_free_bytes, Some(8 * KIB));
    assert_eq!(sample.missing_line(), None);
    assert_eq!(MemorySample::parse(""), None);
}

/// Goal: mapped data on tmpfs move from shared memory to files, and never more than there is.
#[test]
fn data_are_files() {
    let sample = MemorySample::parse(ROLLUP).unwrap();
    let without = sample.without_data(15 * KIB);
    assert_eq!(without.shared_bytes, Some(5 * KIB));
    assert_eq!(without.file_bytes, Some(237 * KIB));
    assert_eq!(sample.without_data(1 << 30).shared_bytes, Some(0));
}

/// Goal: an old kernel, and a server that may not be examined, give a reason and RSS, and no wrong sum.
#[test]
fn what_is_missing_is_told() {
    let old = ROLLUP.replace("Pss_", "Other_");
    let old = MemorySample::parse(&old).unwrap();
    assert_eq!(old.private_bytes(), None);
    assert_eq!(old.anonymous_bytes, Some(112 * KIB));
    assert!(
        old.missing_line()
            .is_some_and(|line| line.contains("Linux 5.3"))
    );
    let refused = MemorySample {
        rss_bytes: 7,
        ..MemorySample::default()
    };
    assert!(
        refused
            .missing_line()
            .is_some_and(|line| line.contains("run as root"))
    );
    let both = refused.plus(&MemorySample::parse(ROLLUP).unwrap());
    assert_eq!(
        (both.rss_bytes, both.private_bytes()),
        (7 + 1696 * KIB, None)
    );
}

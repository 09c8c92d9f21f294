use super::*;
use proptest::prelude::*;

proptest! {
    /// Goal: a written record is read back, whatever it is; every cut within the head is refused.
    #[test]
    fn records_round_trip(
        version: u64,
        expires_ms: u64,
        content_type in proptest::collection::vec(1..=u8::MAX, 0..=190),
        content_encoding in proptest::collection::vec(1..=u8::MAX, 0..=64),
        value in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let (content_type, content_encoding) = (&*content_type, &*content_encoding);
        let head = Head { version: Version(version), expires_ms, content_type, content_encoding };
        prop_assert!(head.fits());
        let record = encode(&head, &value);
        prop_assert_eq!(Head::split(&record), Ok((head, Value::Whole(&value[..]))));
        for len in 0..record.len() - value.len() {
            let is_cut = matches!(Head::split(&record[..len]), Err(RecordError::Cut { .. }));
            prop_assert!(is_cut);
        }
    }
}

/// Goal: bytes of another format are refused by name.
#[test]
fn other_formats_are_refused() {
    assert_eq!(
        Head::split(&[3; 40]),
        Err(RecordError::UnknownFormat { found: 3 })
    );
}

/// Goal: the stored form of a value in parts has its length, and no other record is taken for one.
#[test]
fn extents_round_trip() {
    let head = Head {
        version: Version(7),
        expires_ms: 0,
        content_type: b"text/plain",
        content_encoding: b"",
    };
    let extent = Extent {
        value_bytes: 1_000_001,
        part_bytes: 1000,
    };
    assert_eq!(extent.parts(), 1001);
    let mut room = [0; PARTED_BYTES_MAX];
    let len = head.write_parted(extent, &mut room);
    let stored = &room[..len];
    assert_eq!(Head::split(stored), Ok((head, Value::Parted(extent))));
    let record = |extent: &[u8]| [&stored[..len - EXTENT_BYTES], extent].concat();
    let bad = RecordError::BadExtent { found_bytes: 12 };
    assert_eq!(Head::split(&record(&[0; 12])), Err(bad));
    for found_bytes in [0, 11, 13] {
        let bad = RecordError::BadExtent { found_bytes };
        assert_eq!(Head::split(&record(&vec![1; found_bytes])), Err(bad));
    }
}

/// Goal: an end in the past has come, one in the future has not, and 0 is none.
#[test]
fn expiry_is_by_the_clock() {
    let ends = |expires_ms| {
        let head = Head {
            version: Version(1),
            expires_ms,
            content_type: b"",
            content_encoding: b"",
        };
        head.is_expired()
    };
    assert!(ends(1) && ends(now_ms()));
    assert!(!ends(0) && !ends(now_ms() + 3_600_000));
}

/// Goal: within a microsecond and across shards no version comes twice.
#[test]
fn versions_are_unique() {
    let mut shards = [Versions::new(0), Versions::new(1), Versions::new(2047)];
    let mut seen = std::collections::HashSet::new();
    for _ in 0..10_000 {
        for shard in &mut shards {
            assert!(seen.insert(shard.unused()));
        }
    }
}

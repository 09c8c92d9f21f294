use super::*;

/// Goal: the engine's own MANIFEST is read: which log is needed, and how far its tables go.
#[test]
fn the_engines_manifest_is_read() {
    let data = tempfile::tempdir().unwrap();
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    let db = rocksdb::DB::open(&options, data.path()).unwrap();
    let read_current = || {
        let name = current(data.path()).unwrap().unwrap();
        read(data.path(), &name).unwrap().unwrap()
    };
    let before = read_current();
    assert_eq!(before.scan, FileScan::default());
    for key in 0..200_u8 {
        db.put([key], [key; 100]).unwrap();
    }
    db.flush().unwrap();
    let after = read_current();
    assert!(after.log_number > before.log_number, "{after:?}");
    assert_eq!(after.last_sequence, 200);
    let logs: Vec<u64> = fs::read_dir(data.path())
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name();
            name.to_str()?.strip_suffix(".log")?.parse().ok()
        })
        .collect();
    assert!(logs.contains(&after.log_number), "{logs:?} {after:?}");
    assert_eq!(
        newest(data.path()).unwrap(),
        Some(data.path().join(&after.name))
    );
    assert_eq!(read(data.path(), "MANIFEST-999999").unwrap(), None);
}

proptest::proptest! {
    /// Goal: no edit makes reading fail.
    #[test]
    fn any_edit_is_survived(edit in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100)) {
        read_edit(&edit, &mut 0, &mut 0);
    }
}

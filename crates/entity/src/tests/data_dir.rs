use super::*;

/// Goal: a new directory is made once, marked, and accepted again.
#[test]
fn directory_is_created_and_recognised() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("data");
    assert_eq!(prepare(&path).unwrap(), Found::New);
    assert_eq!(prepare(&path).unwrap(), Found::New);
    mark_current(&path).unwrap();
    assert_eq!(prepare(&path).unwrap(), Found::Current);
    let marker = fs::read_to_string(path.join(MARKER)).unwrap();
    assert_eq!(marker, "millpond entity data, format 3\n");
    fs::write(path.join(MARKER), "millpond entity data, format 2\n").unwrap();
    assert_eq!(prepare(&path).unwrap(), Found::Format2);
}

/// Goal: the older format, and an upgrade that was cut off, are distinguished from this one.
#[test]
fn older_format_is_recognised() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path();
    fs::write(path.join(MARKER), "millpond entity data, format 1\n").unwrap();
    assert_eq!(prepare(path).unwrap(), Found::Format1);
    mark_upgrading(path).unwrap();
    assert_eq!(prepare(path).unwrap(), Found::Upgrading);
    mark_current(path).unwrap();
    assert_eq!(prepare(path).unwrap(), Found::Current);
}

/// Goal: a fresh mount point, and a first start that died before the rename, are both empty.
#[test]
fn mount_point_and_half_made_marker_count_as_empty() {
    let data = tempfile::tempdir().unwrap();
    fs::create_dir(data.path().join("lost+found")).unwrap();
    fs::write(data.path().join("MILLPOND.tmp"), "millpond en").unwrap();
    prepare(data.path()).unwrap();
}

/// Goal: each wrong directory is refused for its own reason and left as it was.
#[test]
fn wrong_directories_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    let missing = parent.path().join("no/data");
    let error = prepare(&missing).unwrap_err();
    assert!(
        matches!(error, DataDirError::MissingParent { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("/no does not exist"), "{error}");

    let file = parent.path().join("file");
    fs::write(&file, "text").unwrap();
    assert!(matches!(
        prepare(&file).unwrap_err(),
        DataDirError::NotADirectory { .. }
    ));
    let below = prepare(&file.join("data")).unwrap_err();
    assert!(
        matches!(below, DataDirError::MissingParent { .. }),
        "{below}"
    );

    let foreign = parent.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("precious.txt"), "text").unwrap();
    assert!(matches!(
        prepare(&foreign).unwrap_err(),
        DataDirError::Foreign { .. }
    ));
    assert!(!foreign.join(MARKER).exists());

    // A file under the name of ours that does not begin as ours does is not written over.
    let alike = parent.path().join("alike");
    fs::create_dir(&alike).unwrap();
    fs::write(alike.join("MILLPOND.tmp"), "notes on mills").unwrap();
    assert!(matches!(
        prepare(&alike).unwrap_err(),
        DataDirError::Foreign { .. }
    ));
    let kept = fs::read_to_string(alike.join("MILLPOND.tmp")).unwrap();
    assert_eq!(kept, "notes on mills");

    let newer = parent.path().join("newer");
    fs::create_dir(&newer).unwrap();
    fs::write(newer.join(MARKER), "millpond entity data, format 4\n").unwrap();
    let error = prepare(&newer).unwrap_err();
    assert!(matches!(error, DataDirError::NewerFormat { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("format 4, newer than this build's format 3")
    );
}

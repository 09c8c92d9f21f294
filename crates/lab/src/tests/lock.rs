use super::*;

/// Goal: the second is refused with the first one's number, and let in when the first has ended.
#[test]
fn one_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lock");
    let first = MachineLock::take(&path).unwrap().unwrap();
    let refused = MachineLock::take(&path).unwrap_err();
    let own = std::process::id();
    assert!(
        matches!(&refused, LabError::AnotherComparison { who: Some(pid), .. } if *pid == own),
        "{refused:?}"
    );
    let sentence = refused.to_string();
    assert!(sentence.contains(&format!("process {own}")), "{sentence}");
    assert!(sentence.contains(LOCK_VARIABLE), "{sentence}");
    drop(first);
    MachineLock::take(&path).unwrap().unwrap();
}

/// Goal: a foreign link is not followed, and a directory that is not writable prevents no
/// comparison.
#[test]
fn what_cannot_be_locked_is_done_without() {
    let directory = tempfile::tempdir().unwrap();
    let (path, victim) = (
        directory.path().join("lock"),
        directory.path().join("victim"),
    );
    std::fs::write(&victim, "mine").unwrap();
    std::os::unix::fs::symlink(&victim, &path).unwrap();
    assert!(MachineLock::take(&path).unwrap().is_err());
    assert_eq!(std::fs::read(&victim).unwrap(), b"mine");
    assert!(
        MachineLock::take(Path::new("/nowhere/lock"))
            .unwrap()
            .is_err()
    );
}

use super::*;

/// Goal: what is the same is left alone, what differs is replaced and not written into: the old
/// file's contents stay for processes that have it mapped.
#[test]
fn an_object_is_replaced_never_overwritten() {
    use std::io::Read;
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (
        directory.path().join("a"),
        directory.path().join("sub/b.so"),
    );
    fs::write(&from, "first").unwrap();
    put(&from, &to).unwrap();
    let mut held = fs::File::open(&to).unwrap();
    let made = fs::metadata(&to).unwrap().modified().unwrap();
    put(&from, &to).unwrap();
    assert_eq!(fs::metadata(&to).unwrap().modified().unwrap(), made);
    fs::write(&from, "second").unwrap();
    put(&from, &to).unwrap();
    assert_eq!(fs::read_to_string(&to).unwrap(), "second");
    let mut text = String::new();
    held.read_to_string(&mut text).unwrap();
    assert_eq!(text, "first");
    assert_eq!(fs::read_dir(to.parent().unwrap()).unwrap().count(), 1);
    assert!(
        put(&directory.path().join("none"), &to)
            .unwrap_err()
            .contains("none")
    );
}

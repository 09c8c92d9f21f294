use super::*;
use crate::embedded;

/// Goal: a program in a target directory searches there and beside itself, any other program only
/// beside itself: directories further up may belong to another user.
#[test]
fn a_program_looks_at_home_only() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let program = root.join("target/debug/deps/lab");
    assert_eq!(
        around(&program),
        [root.join("target/debug/deps/allocators")]
    );
    fs::create_dir_all(root.join("target")).unwrap();
    fs::write(root.join("target").join(TARGET_MARK), "").unwrap();
    assert_eq!(
        around(&program),
        [
            root.join("target/debug/deps/allocators"),
            root.join("target/allocators")
        ]
    );
    let deeper = root.join("target/a/b/c/d/e/lab");
    assert_eq!(around(&deeper), [root.join("target/a/b/c/d/e/allocators")]);
}

/// Goal: an object is found by its name and version; what cannot be malloc is passed over.
#[test]
fn objects_are_found_with_their_version() {
    let directory = tempfile::tempdir().unwrap();
    let path = fs::canonicalize(directory.path()).unwrap();
    assert_eq!(find_in(&path, "mimalloc3"), None);
    let object = path.join("libmillpond-mimalloc3.so");
    fs::write(&object, "not an object").unwrap();
    assert_eq!(find_in(&path, "mimalloc3"), None);
    fs::rename(embedded::TRACE.write_into(&path).unwrap(), &object).unwrap();
    assert_eq!(find_in(&path, "mimalloc3"), Some(object.clone()));
    assert_eq!(version(&object), None);
    let origin = r#"{"name": "mimalloc3", "version": "3.3.2", "flags": []}"#;
    fs::write(object.with_extension("json"), origin).unwrap();
    assert_eq!(version(&object).as_deref(), Some("3.3.2"));
}

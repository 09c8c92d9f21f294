use super::*;

/// Goal: a pattern finds what a shell would find, and versions are ordered as numbers.
#[test]
fn patterns_match_directories() {
    let directory = tempfile::tempdir().unwrap();
    for version in ["llvm-9", "llvm-14", "other-20"] {
        let place = directory.path().join(version).join("lib");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("x.so"), "").unwrap();
    }
    let mut found = matches(directory.path(), "llvm-*/lib/x.so");
    found.sort_by_key(|path| version_order(path));
    let expected = ["llvm-9/lib/x.so", "llvm-14/lib/x.so"];
    assert_eq!(found, expected.map(|path| directory.path().join(path)));
    assert!(matches(directory.path(), "llvm-*/no.so").is_empty());
}

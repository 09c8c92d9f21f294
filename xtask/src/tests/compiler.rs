use super::*;

/// Goal: a compiler that is not there, and one that does not work, are distinguished.
#[test]
fn a_missing_compiler_is_a_reason() {
    let why = ask(&"/nowhere/c++".into()).unwrap_err();
    assert!(why.starts_with("cannot be run"), "{why}");
    let why = ask(&"false".into()).unwrap_err();
    assert!(why.starts_with("does not work"), "{why}");
    assert!(ask(&"env cc".into()).unwrap().contains("cc"));
}

use super::*;

/// Goal: a program's libraries are found, this one's among them.
#[test]
fn libraries_are_those_of_the_linker() {
    let own = std::env::current_exe().unwrap();
    let libraries = libraries_of(&own).unwrap();
    assert!(libraries.contains(&"libc.so.6".to_owned()), "{libraries:?}");
    assert!(install_text(&libraries).contains("libc.so.6"));
}

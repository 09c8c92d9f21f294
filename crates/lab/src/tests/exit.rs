use super::*;

/// Goal: an end is reported with the name of the signal, where it has one.
#[test]
fn ends_are_told() {
    let told = |words| Exit::parse(words).map(|exit| exit.to_string());
    assert_eq!(told("code 3").as_deref(), Some("exit status 3"));
    assert_eq!(
        told("signal 11").as_deref(),
        Some("killed by signal 11, SIGSEGV")
    );
    assert_eq!(told("signal 40").as_deref(), Some("killed by signal 40"));
    assert_eq!(told("code x"), None);
    assert!(Exit::Status(0).is_well() && !Exit::Signal(15).is_well());
}

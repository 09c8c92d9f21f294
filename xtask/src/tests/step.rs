use super::*;

/// Goal: a cargo of ours has the environment of one that was called by hand.
#[test]
fn nothing_of_this_package_is_passed_on() {
    let cargo = cargo();
    let removed: Vec<_> = cargo
        .get_envs()
        .filter(|(_, value)| value.is_none())
        .map(|(name, _)| name)
        .collect();
    for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
        assert!(std::env::var_os(name).is_some(), "cargo test sets {name}");
        assert!(removed.contains(&std::ffi::OsStr::new(name)), "{name}");
    }
}

/// Goal: a step whose command cannot be found has failed, and says which.
#[test]
fn a_missing_program_fails_its_step() {
    let outcome = run_step("missing", |tests| {
        run_command(&mut Command::new("/nowhere/at-all"), tests)
    });
    assert!(!outcome.ok);
    let complaint = outcome.complaint.unwrap_or_default();
    assert!(complaint.contains("/nowhere/at-all"), "{complaint}");
}

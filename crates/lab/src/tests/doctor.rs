use super::*;

/// Goal: this very machine can be examined; what works here (tests run) is not called missing.
#[test]
fn this_machine_is_examined() {
    let findings = examine(&Machine::this(), &Attempts::make());
    for name in [
        "io_uring",
        "loopback",
        "open files",
        "allocators",
        "page size",
    ] {
        let finding = findings.iter().find(|one| one.name == name);
        let finding = finding.unwrap_or_else(|| panic!("{name} in {findings:?}"));
        assert_ne!(finding.state, FindingState::Missing, "{finding:?}");
    }
    for finding in &findings {
        assert!(!finding.found.is_empty(), "{finding:?}");
        assert!(
            finding.state == FindingState::Ok || finding.remedy.is_some(),
            "{finding:?}"
        );
    }
}

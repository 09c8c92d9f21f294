use super::FindingState;
use super::machine::tests::planted;
use super::*;

/// Goal: a machine with nothing but the C library still compares, and the output says what to install.
#[test]
fn two_allocators_are_a_comparison_but_a_small_one() {
    let mut attempts = Attempts::well();
    assert_eq!(allocators(&attempts).state, FindingState::Ok);
    for entry in &mut attempts.allocators[2..] {
        entry.place = None;
    }
    let finding = allocators(&attempts);
    assert_eq!(finding.state, FindingState::Weak);
    assert_eq!(
        finding.found,
        "glibc, mempool; not here: jemalloc, tcmalloc"
    );
    assert!(finding.remedy.unwrap().contains("libjemalloc2"));
}

/// Goal: a temporary directory that nothing can be loaded from is essential, and says where to go.
#[test]
fn nothing_can_be_preloaded_from_noexec() {
    let (_root, machine) = planted(&[("proc/self/mounts", "a / b rw 0 0\nt /tmp t rw,noexec 0 0")]);
    let finding = shared_objects(&machine, &Attempts::well());
    assert_eq!(finding.state, FindingState::Missing);
    assert!(finding.remedy.unwrap().contains("TMPDIR"));
    let (_root, machine) = planted(&[("proc/self/mounts", "a / b rw 0 0")]);
    assert_eq!(
        shared_objects(&machine, &Attempts::well()).state,
        FindingState::Ok
    );
    let mut attempts = Attempts::well();
    attempts.temporary = Err("read-only".to_owned());
    let finding = shared_objects(&machine, &attempts);
    assert_eq!(finding.state, FindingState::Missing);
    assert!(finding.found.contains("read-only"));
}

/// Goal: tools that are absent cost something that is named.
#[test]
fn absent_tools_are_named() {
    let (_root, machine) = planted(&[]);
    let mut attempts = Attempts::well();
    attempts.control_group = Err("no".to_owned());
    let weak: Vec<&str> = findings(&machine, &attempts)
        .into_iter()
        .filter(|one| one.state == FindingState::Weak)
        .map(|one| one.name)
        .collect();
    assert_eq!(weak, ["control groups", "perf", "dpkg-query"]);
}

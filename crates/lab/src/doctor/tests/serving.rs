use super::super::machine::tests::planted;
use super::*;
use millpond_io::Errno;

fn limits(soft: u64, hard: u64) -> String {
    format!("Max open files            {soft}                 {hard}               files     ")
}

fn named<'a>(findings: &'a [Finding], name: &str) -> &'a Finding {
    findings
        .iter()
        .find(|one| one.name == name)
        .unwrap_or_else(|| panic!("{name}: {findings:?}"))
}

/// Goal: a machine that has everything gets no advice.
#[test]
fn a_good_machine_is_left_alone() {
    let (_root, machine) = planted(&[
        ("proc/self/limits", &limits(65_536, 65_536)),
        ("proc/sys/net/core/somaxconn", "4096"),
        ("proc/meminfo", "MemAvailable: 4194304 kB"),
    ]);
    let findings = findings(&machine, &Attempts::well());
    assert_eq!(findings.len(), 7, "{findings:?}");
    for finding in findings {
        assert_eq!(
            (finding.state, &finding.remedy),
            (FindingState::Ok, &None),
            "{finding:?}"
        );
    }
}

/// Goal: each planted shortage is found, with its real severity and a remedy.
#[test]
fn shortages_are_found_with_their_remedies() {
    for (files, name, state, part) in [
        (
            ("proc/self/limits", limits(1024, 524_288)),
            "open files",
            FindingState::Weak,
            "ulimit -n 16500",
        ),
        (
            ("proc/self/limits", limits(1024, 4096)),
            "open files",
            FindingState::Weak,
            "limits.conf",
        ),
        (
            ("proc/self/limits", limits(16, 16)),
            "open files",
            FindingState::Missing,
            "as root",
        ),
        (
            ("proc/sys/net/core/somaxconn", "128".to_owned()),
            "somaxconn",
            FindingState::Weak,
            "net.core.somaxconn=4096",
        ),
        (
            ("sys/fs/cgroup/cpu.max", "150000 100000".to_owned()),
            "CPUs",
            FindingState::Weak,
            "--cpuset-cpus",
        ),
        (
            ("sys/fs/cgroup/memory.max", "67108864".to_owned()),
            "memory",
            FindingState::Weak,
            "--memory",
        ),
    ] {
        let (_root, machine) = planted(&[(files.0, &files.1)]);
        let findings = findings(&machine, &Attempts::well());
        let finding = named(&findings, name);
        assert_eq!(finding.state, state, "{finding:?}");
        assert!(
            finding.remedy.as_deref().unwrap().contains(part),
            "{finding:?}"
        );
    }
    let (_root, machine) = planted(&[("sys/fs/cgroup/cpu.max", "max 100000")]);
    assert_eq!(cpus(&machine).state, FindingState::Ok);
}

/// Goal: without io_uring there is epoll; without both nothing can be served; each cause has its own
/// remedy.
#[test]
fn one_driver_is_enough() {
    let error = Errno::PERM;
    for (why, part) in [
        (
            UringUnavailable::Disabled { value: 2 },
            "kernel.io_uring_disabled=0",
        ),
        (UringUnavailable::Forbidden { error }, "seccomp"),
        (UringUnavailable::Absent, "Linux 6.0"),
        (UringUnavailable::OutOfResources { error }, "ulimit -l"),
    ] {
        let mut attempts = Attempts::well();
        attempts.uring = Err(IoError::UringUnavailable(why));
        let uring = drivers(&attempts).remove(0);
        assert_eq!(uring.state, FindingState::Weak);
        assert!(uring.remedy.unwrap().contains(part), "{why:?}");
        assert!(
            uring.found.contains("epoll by themselves"),
            "{}",
            uring.found
        );
        attempts.epoll = Err("no".to_owned());
        assert!(
            drivers(&attempts)
                .iter()
                .all(|one| one.state == FindingState::Missing)
        );
    }
    let mut attempts = Attempts::well();
    attempts.loopback = Err("unreachable".to_owned());
    assert_eq!(loopback(&attempts).state, FindingState::Missing);
}

/// Goal: missing features of an older kernel are named.
#[test]
fn lacking_features_are_named() {
    let Ok(features) = Attempts::well().uring else {
        unreachable!()
    };
    let words = features_in_words(features.without(DriverFeature::IncrementalBuffers));
    assert!(words.ends_with("lacks incremental-buffers"), "{words}");
    assert!(!features_in_words(features).contains("lacks"));
}

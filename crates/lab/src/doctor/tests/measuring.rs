use super::super::FindingState;
use super::tests::planted;
use super::*;

/// Goal: each planted setting that disturbs is found, with the command that changes it; the good one
/// is not.
#[test]
fn settings_that_disturb_are_found() {
    const GOVERNOR: &str = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    const PAGES: &str = "sys/kernel/mm/transparent_hugepage/enabled";
    const NO_TURBO: &str = "sys/devices/system/cpu/intel_pstate/no_turbo";
    const BOOST: &str = "sys/devices/system/cpu/cpufreq/boost";
    const PORTS: &str = "proc/sys/net/ipv4/ip_local_port_range";
    for (file, bad, good, name, part) in [
        (
            GOVERNOR,
            "powersave",
            "performance",
            "CPU frequency",
            "cpupower",
        ),
        (
            PAGES,
            "[always] madvise never",
            "always [madvise] never",
            "huge pages",
            "echo madvise > /sys",
        ),
        (NO_TURBO, "0", "1", "turbo", "echo 1 > /sys"),
        (BOOST, "1", "0", "turbo", "echo 0 > /sys"),
        (
            PORTS,
            "1024\t2047",
            "32768\t60999",
            "local ports",
            "ip_local_port_range",
        ),
        (
            "proc/loadavg",
            "2.10 1 1 1/1 1",
            "1.90 1 1 1/1 1",
            "other programs",
            "top",
        ),
    ] {
        for (text, state) in [(bad, FindingState::Weak), (good, FindingState::Ok)] {
            let (_root, machine) = planted(&[(file, text)]);
            let findings = findings(&machine, &Attempts::well());
            let finding = findings.iter().find(|one| one.name == name).unwrap();
            assert_eq!(finding.state, state, "{finding:?}");
            let has_part = finding.remedy.as_ref().is_some_and(|it| it.contains(part));
            assert_eq!(has_part, state == FindingState::Weak, "{finding:?}");
        }
    }
}

/// Goal: counters that are forbidden and counters that do not exist have different remedies; root
/// gets no advice to become root.
#[test]
fn missing_counters_say_what_helps() {
    const FILE: &str = "proc/sys/kernel/perf_event_paranoid";
    for (paranoid, instructions, is_root, part) in [
        ("2", true, false, "perf_event_paranoid=1 (it is 2)"),
        ("3", false, false, "perf_event_paranoid=1 (it is 3)"),
        ("2", false, false, "hypervisor"),
        ("3", false, true, "hypervisor"),
        ("-1", true, true, "perf_event_open"),
    ] {
        let mut attempts = Attempts::well();
        attempts.is_root = is_root;
        attempts.counters.kernel_instructions = false;
        attempts.counters.instructions = instructions;
        let (_root, machine) = planted(&[(FILE, paranoid)]);
        let finding = counters(&machine, &attempts);
        assert!(
            finding.remedy.as_ref().unwrap().contains(part),
            "{finding:?}"
        );
    }
}

/// Goal: without counters valgrind is suggested, installed or not.
#[test]
fn valgrind_stands_in_for_counters() {
    let (_root, machine) = planted(&[]);
    let mut attempts = Attempts::well();
    attempts.counters.kernel_instructions = false;
    let remedy = |attempts: &Attempts| counters(&machine, attempts).remedy.unwrap();
    assert!(!remedy(&attempts).contains("valgrind"));
    attempts.counters.instructions = false;
    assert!(remedy(&attempts).contains("until then compare counts"));
    attempts.has_valgrind = false;
    assert!(remedy(&attempts).contains("the package valgrind"));
}

/// Goal: idle CPUs that sleep and cannot be kept awake are said; those of a machine that has no driver
/// for them are not.
#[test]
fn sleep_that_cannot_be_kept_off_is_said() {
    const DRIVER: &str = "sys/devices/system/cpu/cpuidle/current_driver";
    let mut attempts = Attempts::well();
    let state = |driver, attempts: &Attempts| {
        let (_root, machine) = planted(&[(DRIVER, driver)]);
        idle_cpus(&machine, attempts).map(|finding| finding.state)
    };
    assert_eq!(state("haltpoll", &attempts), Some(FindingState::Ok));
    assert_eq!(state("none", &attempts), None);
    attempts.awake = Err("Permission denied".to_owned());
    assert_eq!(state("haltpoll", &attempts), Some(FindingState::Weak));
    assert_eq!(state("none", &attempts), None);
}

/// Goal: a priority that cannot be raised is said, with what helps.
#[test]
fn a_priority_that_is_forbidden_is_said() {
    let mut attempts = Attempts::well();
    assert_eq!(priority(&attempts).state, FindingState::Ok);
    attempts.may_raise_priority = false;
    let finding = priority(&attempts);
    assert_eq!(finding.state, FindingState::Weak);
    assert!(finding.remedy.is_some_and(|line| line.contains("root")));
}

/// Goal: a kernel without exact counts and a single CPU are said; a machine with neither is not
/// troubled with them.
#[test]
fn exact_counts_and_single_cpus() {
    let (_root, mut machine) = planted(&[("proc/self/limits", "x")]);
    assert_eq!(exact_memory(&machine).unwrap().state, FindingState::Weak);
    assert_eq!(one_cpu(&machine), None);
    machine.cpus = 1;
    assert_eq!(one_cpu(&machine).unwrap().state, FindingState::Weak);
    let (_root, machine) = planted(&[
        ("proc/self/limits", "x"),
        ("proc/self/smaps_rollup", "Pss_Anon: 4 kB"),
    ]);
    assert_eq!(exact_memory(&machine).unwrap().state, FindingState::Ok);
}

//! What changes the numbers of `load`, `bench` and `compare`.

use millpond_measure::environment::bracketed;

use super::{Attempts, Finding, Machine, Section};

/// Ports that connections which were just closed keep from being used again for a minute.
const PORTS_MIN: i64 = 20_000;
/// Load per CPU from which on others are in the way.
const LOAD_PER_CPU_MAX: f64 = 0.5;

pub(super) fn findings(machine: &Machine, attempts: &Attempts) -> Vec<Finding> {
    let mut findings = vec![counters(machine, attempts)];
    findings.extend(exact_memory(machine));
    findings.push(governor(machine));
    findings.extend(turbo(machine));
    findings.extend(idle_cpus(machine, attempts));
    findings.extend(huge_pages(machine));
    findings.extend(ports(machine));
    findings.extend(neighbours(machine));
    findings.push(priority(attempts));
    findings.extend(one_cpu(machine));
    findings
}

fn ok(name: &'static str, found: impl Into<String>) -> Finding {
    Finding::ok(Section::Measuring, name, found)
}

fn weak(name: &'static str, found: impl Into<String>) -> Finding {
    Finding::weak(Section::Measuring, name, found)
}

fn counters(machine: &Machine, attempts: &Attempts) -> Finding {
    const NAME: &str = "counters";
    let counters = &attempts.counters;
    let found = counters.lines.join("; ");
    if counters.instructions && counters.kernel_instructions {
        return ok(NAME, found);
    }
    let paranoid = machine
        .number("proc/sys/kernel/perf_event_paranoid")
        .unwrap_or_default();
    // From 2 on the kernel's side is for root, from 3 on (as Debian has it) all of it.
    let is_forbidden = !attempts.is_root && paranoid >= if counters.instructions { 2 } else { 3 };
    let remedy = match is_forbidden {
        true => {
            format!("sysctl -w kernel.perf_event_paranoid=1 (it is {paranoid}), or run as root")
        }
        false => "a machine without a hypervisor, or one that shows its guests a PMU (KVM: -cpu \
                  host,pmu=on); in a container allow perf_event_open"
            .to_owned(),
    };
    let meanwhile = match (counters.instructions, attempts.has_valgrind) {
        (true, _) => "",
        (false, true) => "; until then compare counts instructions under valgrind",
        (false, false) => {
            "; or the package valgrind, under which compare counts instructions instead"
        }
    };
    weak(NAME, found).remedy(format!("{remedy}{meanwhile}"))
}

fn exact_memory(machine: &Machine) -> Option<Finding> {
    // Without /proc there is nothing to say; every kernel has the other file.
    machine.text("proc/self/limits")?;
    Some(match machine.text("proc/self/smaps_rollup") {
        Some(text) if text.contains("Pss_Anon:") => ok(
            "memory counts",
            "exact, shared pages told apart (smaps_rollup)",
        ),
        Some(_) => weak(
            "memory counts",
            "RSS only: this kernel does not tell a program's memory from its mapped files",
        )
        .remedy("Linux 5.3 or newer"),
        None => weak(
            "memory counts",
            "RSS only: this kernel shows no smaps_rollup",
        )
        .remedy("a kernel with CONFIG_PROC_PAGE_MONITOR"),
    })
}

fn governor(machine: &Machine) -> Finding {
    const NAME: &str = "CPU frequency";
    let governor = machine.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    match governor.as_deref() {
        None => ok(NAME, "not under our control, as in most virtual machines"),
        Some("performance") => ok(NAME, "governor performance"),
        Some(other) => weak(
            NAME,
            format!("governor {other}: a server that is not busy runs slower than one that is"),
        )
        .remedy("cpupower frequency-set -g performance"),
    }
}

fn turbo(machine: &Machine) -> Option<Finding> {
    const INTEL: &str = "sys/devices/system/cpu/intel_pstate/no_turbo";
    const OTHERS: &str = "sys/devices/system/cpu/cpufreq/boost";
    let (is_on, remedy) = match machine.number(INTEL) {
        Some(no_turbo) => (no_turbo == 0, format!("echo 1 > /{INTEL}")),
        None => (machine.number(OTHERS)? == 1, format!("echo 0 > /{OTHERS}")),
    };
    Some(match is_on {
        false => ok("turbo", "off"),
        true => weak(
            "turbo",
            "on: how fast a CPU is depends on its heat and on the others",
        )
        .remedy(remedy),
    })
}

/// Said only where they sleep: without a driver they spin or halt as they always did.
fn idle_cpus(machine: &Machine, attempts: &Attempts) -> Option<Finding> {
    const NAME: &str = "idle CPUs";
    let driver = machine.text("sys/devices/system/cpu/cpuidle/current_driver")?;
    Some(match &attempts.awake {
        _ if driver == "none" => return None,
        Ok(()) => ok(
            NAME,
            format!("sleep ({driver}); compare and profile can keep them awake (--idle-cpus)"),
        ),
        Err(error) => weak(
            NAME,
            format!(
                "sleep ({driver}), and cannot be kept awake (/dev/cpu_dma_latency: {error}): in a virtual \
                 machine latencies are the host's at rates below the most"
            ),
        )
        .remedy("run as root"),
    })
}

fn huge_pages(machine: &Machine) -> Option<Finding> {
    const FILE: &str = "sys/kernel/mm/transparent_hugepage/enabled";
    let text = machine.text(FILE)?;
    Some(match bracketed(&text)? {
        "always" => weak(
            "huge pages",
            "always: the memory of allocators is counted in steps of 2 MiB, and the kernel moves it at \
             times of its own",
        )
        .remedy(format!("echo madvise > /{FILE}")),
        mode => ok("huge pages", mode),
    })
}

fn ports(machine: &Machine) -> Option<Finding> {
    let text = machine.text("proc/sys/net/ipv4/ip_local_port_range")?;
    let mut ends = text.split_whitespace().map(str::parse::<i64>);
    let (Some(Ok(first)), Some(Ok(last))) = (ends.next(), ends.next()) else {
        return None;
    };
    let count = last - first + 1;
    Some(match count >= PORTS_MIN {
        true => ok("local ports", format!("{count}")),
        false => weak(
            "local ports",
            format!("{count}: a load that opens a connection for each request runs out of them"),
        )
        .remedy(
            "sysctl -w net.ipv4.ip_local_port_range='32768 60999', or load --source 127.0.0.2..127.0.0.9",
        ),
    })
}

fn neighbours(machine: &Machine) -> Option<Finding> {
    let text = machine.text("proc/loadavg")?;
    let load: f64 = text.split(' ').next()?.parse().ok()?;
    Some(match load <= LOAD_PER_CPU_MAX * machine.cpus as f64 {
        true => ok("other programs", format!("load average {load:.2}")),
        false => weak(
            "other programs",
            format!("load average {load:.2}: somebody else uses the CPUs that are measured"),
        )
        .remedy("stop what runs besides; `top` names it"),
    })
}

fn priority(attempts: &Attempts) -> Finding {
    const NAME: &str = "priority";
    match attempts.may_raise_priority {
        true => ok(NAME, "compare runs server and generator before other programs (nice -20)"),
        false => weak(
            NAME,
            "cannot be raised: another program that wakes on a measured CPU keeps it for up to 4 ms, which p99 shows",
        )
        .remedy("run as root, or allow nice -20 (limits.conf)"),
    }
}

/// Said only where it is so: more than one is not worth a line of its own.
fn one_cpu(machine: &Machine) -> Option<Finding> {
    (machine.cpus == 1).then(|| {
        weak(
            "one CPU",
            "the load generator and the server take it from each other; neither can be told by itself",
        )
        .remedy("two CPUs or more")
    })
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::super::machine::tests::planted;
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
            for (text, state) in [(bad, State::Weak), (good, State::Ok)] {
                let (_root, machine) = planted(&[(file, text)]);
                let findings = findings(&machine, &Attempts::well());
                let finding = findings.iter().find(|one| one.name == name).unwrap();
                assert_eq!(finding.state, state, "{finding:?}");
                let has_part = finding.remedy.as_ref().is_some_and(|it| it.contains(part));
                assert_eq!(has_part, state == State::Weak, "{finding:?}");
            }
        }
    }

    /// Goal: counters that are forbidden and counters that do not exist have different remedies; who is
    /// root is not told to become it.
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

    /// Goal: who has no counters is told of valgrind, here or not.
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
        assert_eq!(state("haltpoll", &attempts), Some(State::Ok));
        assert_eq!(state("none", &attempts), None);
        attempts.awake = Err("Permission denied".to_owned());
        assert_eq!(state("haltpoll", &attempts), Some(State::Weak));
        assert_eq!(state("none", &attempts), None);
    }

    /// Goal: a priority that cannot be raised is said, with what helps.
    #[test]
    fn a_priority_that_is_forbidden_is_said() {
        let mut attempts = Attempts::well();
        assert_eq!(priority(&attempts).state, State::Ok);
        attempts.may_raise_priority = false;
        let finding = priority(&attempts);
        assert_eq!(finding.state, State::Weak);
        assert!(finding.remedy.is_some_and(|line| line.contains("root")));
    }

    /// Goal: a kernel without exact counts and a single CPU are said; a machine with neither is not
    /// troubled with them.
    #[test]
    fn exact_counts_and_single_cpus() {
        let (_root, mut machine) = planted(&[("proc/self/limits", "x")]);
        assert_eq!(exact_memory(&machine).unwrap().state, State::Weak);
        assert_eq!(one_cpu(&machine), None);
        machine.cpus = 1;
        assert_eq!(one_cpu(&machine).unwrap().state, State::Weak);
        let (_root, machine) = planted(&[
            ("proc/self/limits", "x"),
            ("proc/self/smaps_rollup", "Pss_Anon: 4 kB"),
        ]);
        assert_eq!(exact_memory(&machine).unwrap().state, State::Ok);
    }
}

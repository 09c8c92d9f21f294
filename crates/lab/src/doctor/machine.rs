//! The machine as the kernel shows it in files, below a root that tests plant.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use millpond_measure::environment::bracketed;

use super::{Attempts, Finding, Section};

/// A machine to be examined.
#[derive(Clone, Debug)]
pub struct Machine {
    /// `/`, or what stands for it.
    pub root: PathBuf,
    /// Directories that are searched for programs, as in `PATH`.
    pub programs: OsString,
    /// Where our shared objects are written for targets to load.
    pub temporary: PathBuf,
    /// CPUs this process may run on.
    pub cpus: usize,
}

/// A limit of this process: what holds, and what it may raise that to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limit {
    /// The current limit.
    pub soft: u64,
    /// The limit that is possible without being root.
    pub hard: u64,
}

impl Machine {
    /// The one this runs on.
    #[must_use]
    pub fn this() -> Self {
        Self {
            root: PathBuf::from("/"),
            programs: std::env::var_os("PATH").unwrap_or_default(),
            temporary: std::env::temp_dir(),
            cpus: millpond_io::allowed_cpus().map_or(1, |cpus| cpus.len()),
        }
    }

    /// The text of a file, named from the root on without a slash in front, blanks cut off.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    pub(super) fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// How many files this process may have open.
    #[must_use]
    pub fn open_files(&self) -> Option<Limit> {
        self.limit("Max open files")
    }

    /// A line of `/proc/self/limits`.
    pub(super) fn limit(&self, name: &str) -> Option<Limit> {
        let limits = self.text("proc/self/limits")?;
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        let mut words = line.split_whitespace().map(|word| match word {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        });
        Some(Limit {
            soft: words.next()??,
            hard: words.next()??,
        })
    }

    /// Memory that programs can have without swapping, as the kernel guesses.
    pub(crate) fn available_bytes(&self) -> Option<u64> {
        self.memory_bytes("MemAvailable")
    }

    /// A value of `/proc/meminfo`.
    pub(super) fn memory_bytes(&self, name: &str) -> Option<u64> {
        let table = self.text("proc/meminfo")?;
        let line = table.lines().find_map(|line| line.strip_prefix(name))?;
        let kib = line.strip_prefix(':')?.trim().strip_suffix(" kB")?;
        Some(kib.trim().parse::<u64>().ok()? * 1024)
    }

    /// Whether a program can be started by its name.
    pub(super) fn has_program(&self, name: &str) -> bool {
        use std::os::unix::fs::PermissionsExt as _;
        std::env::split_paths(&self.programs).any(|directory| {
            let file = fs::metadata(directory.join(name));
            file.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        })
    }

    /// The mount options of what `path` lies on.
    pub(super) fn mount_options(&self, path: &Path) -> Option<String> {
        let mounts = self.text("proc/self/mounts")?;
        let mut found: Option<(usize, &str)> = None;
        for line in mounts.lines() {
            let mut words = line.split(' ').skip(1);
            let (Some(place), Some(options)) = (words.next(), words.nth(1)) else {
                continue;
            };
            // Of two on the same place the later one covers the other.
            let is_deeper = found.is_none_or(|(length, _)| place.len() >= length);
            if is_deeper && path.starts_with(place) {
                found = Some((place.len(), options));
            }
        }
        found.map(|(_, options)| options.to_owned())
    }

    /// The values of the file `name` in the control groups (version 2) from ours up to the root, ours first.
    pub(super) fn control_group_texts(&self, name: &str) -> Vec<String> {
        let own = self.text("proc/self/cgroup").unwrap_or_default();
        let path = own.lines().find_map(|line| line.strip_prefix("0::/"));
        let mut directory = Path::new(path.unwrap_or_default());
        let mut texts = Vec::new();
        loop {
            let file = Path::new("sys/fs/cgroup").join(directory).join(name);
            texts.extend(self.text(&file.display().to_string()));
            match directory.parent() {
                Some(parent) => directory = parent,
                None => return texts,
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A machine made of these files.
    pub(in crate::doctor) fn planted(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine {
            root: root.path().to_owned(),
            programs: root.path().join("bin").into_os_string(),
            temporary: PathBuf::from("/tmp"),
            cpus: 4,
        };
        (root, machine)
    }

    /// Goal: limits, sizes and groups are read as the kernel writes them, and nonsense is nothing.
    #[test]
    fn files_of_the_kernel_are_read() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max locked memory         8388608              unlimited            bytes     \n\
                      Max open files            1024                 524288               files     \n";
        let (_root, machine) = planted(&[
            ("proc/self/limits", limits),
            (
                "proc/meminfo",
                "MemTotal:  8 kB\nMemAvailable:    2048 kB\nX: many\n",
            ),
            (
                "proc/self/cgroup",
                "1:name=systemd:/x\n0::/a.slice/b.scope\n",
            ),
            ("sys/fs/cgroup/a.slice/b.scope/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a.slice/cpu.max", "150000 100000\n"),
            (
                "proc/self/mounts",
                "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw,noexec 0 0\ntmpfs /tmpx tmpfs ro 0 0\n",
            ),
            ("proc/sys/a", "12\n"),
            ("proc/sys/b", "many\n"),
        ]);
        let files = Limit {
            soft: 1024,
            hard: 524_288,
        };
        assert_eq!(machine.open_files(), Some(files));
        assert_eq!(machine.limit("Max locked memory").unwrap().hard, u64::MAX);
        assert_eq!(machine.limit("Max fun"), None);
        assert_eq!(machine.memory_bytes("MemAvailable"), Some(2 << 20));
        assert_eq!(machine.memory_bytes("X"), None);
        let quotas = machine.control_group_texts("cpu.max");
        assert_eq!(quotas, ["max 100000", "150000 100000"]);
        let options = machine.mount_options(Path::new("/tmp/x"));
        assert_eq!(options.as_deref(), Some("rw,noexec"));
        assert_eq!(
            machine.mount_options(Path::new("/home")).as_deref(),
            Some("rw")
        );
        assert_eq!(
            (machine.number("proc/sys/a"), machine.number("proc/sys/b")),
            (Some(12), None)
        );
    }

    /// Goal: a program is a file that may be executed, in one of the directories.
    #[test]
    fn programs_are_files_that_may_be_executed() {
        use std::os::unix::fs::PermissionsExt as _;
        let (root, machine) = planted(&[("bin/perf", ""), ("bin/notes", "")]);
        let perf = root.path().join("bin/perf");
        fs::set_permissions(perf, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(machine.has_program("perf"));
        assert!(!machine.has_program("notes") && !machine.has_program("absent"));
    }
}

// Influences on the numbers of `load`, `bench` and `compare`.

/// Ports that connections which were just closed keep from being used again for a minute.
const PORTS_MIN: i64 = 20_000;
/// Load per CPU from which on others disturb.
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
            "exact, shared pages distinguished (smaps_rollup)",
        ),
        Some(_) => weak(
            "memory counts",
            "RSS only: this kernel does not distinguish a program's memory from its mapped files",
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
            format!("load average {load:.2}: other programs use the CPUs that are measured"),
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
            "the load generator and the server take it from each other; neither can be measured by itself",
        )
        .remedy("two CPUs or more")
    })
}

#[cfg(test)]
#[path = "tests/measuring.rs"]
mod measuring_tests;

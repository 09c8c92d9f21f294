//! What the kernel shows of a machine in files, below a root that tests plant.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// A machine to be examined.
#[derive(Clone, Debug)]
pub struct Machine {
    /// `/`, or what stands for it.
    pub root: PathBuf,
    /// Where programs are looked for, as in `PATH`.
    pub programs: OsString,
    /// Where our shared objects are written for targets to load.
    pub temporary: PathBuf,
    /// CPUs this process may run on.
    pub cpus: usize,
}

/// A limit of this process: what holds, and what it may raise that to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limit {
    /// What holds.
    pub soft: u64,
    /// What it may be raised to without being root.
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

    /// What the control groups (version 2) from ours up to the root say in the file `name`, ours first.
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

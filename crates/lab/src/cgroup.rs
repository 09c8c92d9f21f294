//! A control group (version 2) for a target: the kernel's own account of all its processes.
//!
//! On the path: `session` makes one for each run where it can; the second stage of the launcher joins
//! it before the target begins; `edge` reads it. It counts what the sum over processes misses: those
//! that have ended, the page cache of the target's own files, memory of the kernel.
//! Absent on purpose: limits, and version 1, whose hierarchies belong to the machine's owner.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// How often and how long an emptied group is waited for.
const REMOVE_TRIES: u32 = 50;
const REMOVE_INTERVAL: Duration = Duration::from_millis(2);

/// The directory of a group of ours, of either version; removed when dropped, once its processes are gone.
#[derive(Debug)]
pub(crate) struct GroupDirectory {
    pub(crate) path: PathBuf,
}

impl GroupDirectory {
    /// A new one below `parent`, under a name that no other has.
    pub(crate) fn create_below(parent: &Path) -> io::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        Self::create(parent.join(format!("millpond-{}-{number}", std::process::id())))
    }

    /// A group in this one.
    pub(crate) fn create_child(&self, name: &str) -> io::Result<Self> {
        Self::create(self.path.join(name))
    }

    fn create(path: PathBuf) -> io::Result<Self> {
        fs::create_dir(&path)?;
        Ok(Self { path })
    }

    /// What a process writes its id to, to be in it.
    pub(crate) fn procs(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// One of its files.
    pub(crate) fn read(&self, file: &str) -> io::Result<String> {
        fs::read_to_string(self.path.join(file))
    }

    /// Sets one of its files.
    pub(crate) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.path.join(file), text)
    }
}

impl Drop for GroupDirectory {
    fn drop(&mut self) {
        // A process that was collected may be in its group for another moment.
        for _ in 0..REMOVE_TRIES {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    thread::sleep(REMOVE_INTERVAL);
                }
                // An empty group that stays behind harms nobody.
                _ => return,
            }
        }
    }
}

/// Where groups of targets can be made.
#[derive(Debug)]
pub(crate) struct CgroupRoot {
    directory: GroupDirectory,
    has_memory: bool,
}

/// What a group has used.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct CgroupSample {
    /// CPU time of all processes that ever were in it.
    pub(crate) cpu_ns: Option<u64>,
    /// Of that, in user mode.
    pub(crate) user_cpu_ns: Option<u64>,
    /// Of that, in the kernel.
    pub(crate) system_cpu_ns: Option<u64>,
    /// Most memory at any moment, page cache and kernel memory included.
    pub(crate) memory_peak_bytes: Option<u64>,
}

/// What a group that counts memory holds now.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct GroupMemory {
    /// Everything that counts against its limit, without the pages of files that were not used lately: what Kubernetes
    /// calls the working set. Lazily freed pages are not in it: the kernel keeps them among those pages.
    pub(crate) working_set_bytes: Option<u64>,
    /// What the kernel holds for it.
    pub(crate) kernel_bytes: Option<u64>,
}

impl GroupMemory {
    /// From what counts against the limit, and from `memory.stat`, where pages of files are `inactive_file`.
    pub(crate) fn new(
        usage: Option<u64>,
        stat: &str,
        inactive_file: &str,
        kernel_bytes: Option<u64>,
    ) -> Self {
        let inactive = value_of(stat, inactive_file);
        let working_set = usage.zip(inactive);
        Self {
            working_set_bytes: working_set.map(|(all, inactive)| all.saturating_sub(inactive)),
            kernel_bytes,
        }
    }

    /// From the files of version 2.
    fn of_version_2(current: Option<u64>, stat: &str) -> Self {
        // Kernels before 5.18 have the parts only.
        let parts = ["kernel_stack", "pagetables", "percpu", "slab"];
        let parts = parts.map(|name| value_of(stat, name));
        let parts = parts.into_iter().flatten().reduce(|sum, part| sum + part);
        let sockets = value_of(stat, "sock").unwrap_or(0);
        let kernel = value_of(stat, "kernel").or(parts);
        let kernel_bytes = kernel.map(|bytes| bytes + sockets);
        Self::new(current, stat, "inactive_file", kernel_bytes)
    }
}

impl CgroupRoot {
    /// Looks for a place; `Err` is the reason why there is none, for the report.
    pub(crate) fn find() -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let (mount, path) = place(&mounts, &own).ok_or("this system has no cgroup version 2")?;
        let own = Path::new(&mount).join(path.trim_start_matches('/'));
        // The lab's own group holds the lab, so controllers cannot be handed on there; a group beside
        // it can be had by root, or where the directory above was given to this user.
        let parent = if path == "/" {
            own.as_path()
        } else {
            own.parent().unwrap_or(&own)
        };
        let directory = GroupDirectory::create_below(parent).map_err(|error| {
            format!("no cgroup can be made below {}: {error}", parent.display())
        })?;
        // If the memory controller cannot be handed on, the group counts CPU time all the same.
        let _ = directory.write("cgroup.subtree_control", "+memory");
        let controllers = directory.read("cgroup.subtree_control").unwrap_or_default();
        Ok(Self {
            directory,
            has_memory: controllers.split_whitespace().any(|name| name == "memory"),
        })
    }

    /// Whether its groups count memory.
    pub(crate) const fn has_memory(&self) -> bool {
        self.has_memory
    }

    /// One line for the report.
    pub(crate) fn describe(&self) -> String {
        if self.has_memory {
            return "cgroup version 2: CPU time and peak memory of all processes".to_owned();
        }
        "cgroup version 2 without its memory controller: CPU time of all processes".to_owned()
    }

    /// A new group.
    pub(crate) fn create(&self, name: &str) -> io::Result<Cgroup> {
        self.directory
            .create_child(name)
            .map(|directory| Cgroup { directory })
    }
}

/// The group of one run.
#[derive(Debug)]
pub(crate) struct Cgroup {
    directory: GroupDirectory,
}

impl Cgroup {
    /// What a process writes its id to, to be in it.
    pub(crate) fn procs(&self) -> PathBuf {
        self.directory.procs()
    }

    /// Its processes.
    pub(crate) fn members(&self) -> io::Result<Vec<u32>> {
        let text = self.directory.read("cgroup.procs")?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Limits the memory of all its processes together, swap included.
    pub(crate) fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        self.directory.write("memory.max", &bytes.to_string())?;
        match self.directory.write("memory.swap.max", "0") {
            // A kernel without swap accounts has no such file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            written => written,
        }
    }

    /// Asks the kernel to stop its processes, or to let them run; [`Self::is_frozen`] says when it has.
    pub(crate) fn set_frozen(&self, is_frozen: bool) -> io::Result<()> {
        let word = if is_frozen { "1" } else { "0" };
        self.directory.write("cgroup.freeze", word)
    }

    /// Whether all of its processes stand still.
    pub(crate) fn is_frozen(&self) -> io::Result<bool> {
        let events = self.directory.read("cgroup.events")?;
        Ok(events.lines().any(|line| line == "frozen 1"))
    }

    /// How many of its processes the kernel killed for want of memory; `None` where it does not count them.
    pub(crate) fn killed_for_memory(&self) -> Option<u64> {
        let events = self.directory.read("memory.events").ok()?;
        killed(&events)
    }

    /// What it holds now; takes longer than [`Self::sample`], for the kernel sums up all CPUs.
    pub(crate) fn memory(&self) -> GroupMemory {
        let read = |file: &str| self.directory.read(file).ok();
        let current = read("memory.current").and_then(|text| text.trim().parse().ok());
        let stat = read("memory.stat").unwrap_or_default();
        GroupMemory::of_version_2(current, &stat)
    }

    /// Reads its accounts. What is not counted is absent.
    pub(crate) fn sample(&self) -> CgroupSample {
        let read = |file: &str| self.directory.read(file).ok();
        let cpu = read("cpu.stat").unwrap_or_default();
        CgroupSample {
            cpu_ns: nanoseconds(&cpu, "usage_usec"),
            user_cpu_ns: nanoseconds(&cpu, "user_usec"),
            system_cpu_ns: nanoseconds(&cpu, "system_usec"),
            memory_peak_bytes: read("memory.peak").and_then(|text| text.trim().parse().ok()),
        }
    }
}

/// The mount of version 2, and this process's group in it.
fn place(mounts: &str, own: &str) -> Option<(String, String)> {
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let mount = fields.nth(1)?;
        (fields.next() == Some("cgroup2")).then(|| mount.to_owned())
    })?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some((mount, path.to_owned()))
}

/// The number in `memory.events`, and in `memory.oom_control` of version 1.
pub(crate) fn killed(events: &str) -> Option<u64> {
    let mut lines = events.lines();
    let count = lines.find_map(|line| line.strip_prefix("oom_kill "))?;
    count.trim().parse().ok()
}

fn nanoseconds(stat: &str, name: &str) -> Option<u64> {
    value_of(stat, name)?.checked_mul(1_000)
}

/// The number behind a name.
fn value_of(stat: &str, name: &str) -> Option<u64> {
    let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = lines.find(|(key, _)| *key == name)?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the hierarchy of version 2 is found beside those of version 1.
    #[test]
    fn version_2_is_found() {
        let mounts = "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let own = "4:memory:/a\n0::/user.slice/x.scope\n";
        assert_eq!(
            place(mounts, own),
            Some((
                "/sys/fs/cgroup/unified".to_owned(),
                "/user.slice/x.scope".to_owned()
            ))
        );
        assert_eq!(place("cgroup /x cgroup rw 0 0\n", own), None);
        assert_eq!(place(mounts, "4:memory:/a\n"), None);
        let stat = "usage_usec 12\nuser_usec 10\nsystem_usec 2\n";
        assert_eq!(nanoseconds(stat, "usage_usec"), Some(12_000));
        assert_eq!(nanoseconds(stat, "system_usec"), Some(2_000));
        assert_eq!(nanoseconds("nothing", "usage_usec"), None);
        let events = "low 0\noom 5\noom_kill 2\noom_group_kill 1\n";
        assert_eq!((killed(events), killed("oom 5\n")), (Some(2), None));
    }

    /// Goal: the working set is what Kubernetes computes, the kernel's part has sockets and is summed up where the kernel
    /// does not do so; what is not told is absent.
    #[test]
    fn memory_has_parts() {
        let stat =
            "anon 700\nkernel 90\nkernel_stack 16\nsock 4\ninactive_file 150\nactive_file 50\n";
        let found = GroupMemory::of_version_2(Some(1_000), stat);
        assert_eq!(found.working_set_bytes, Some(850));
        assert_eq!(found.kernel_bytes, Some(94));
        let older = "kernel_stack 16\npagetables 20\nslab 8\ninactive_file 150\n";
        let found = GroupMemory::of_version_2(None, older);
        assert_eq!(
            (found.working_set_bytes, found.kernel_bytes),
            (None, Some(44))
        );
        assert_eq!(
            GroupMemory::of_version_2(Some(1), ""),
            GroupMemory::default()
        );
    }

    /// Goal: a group counts what its process did, also after that has ended, and goes with it. Where
    /// no group can be made there is a reason.
    #[test]
    fn a_group_counts_its_processes() {
        let root = match CgroupRoot::find() {
            Ok(root) => root,
            Err(reason) => {
                assert!(!reason.is_empty());
                eprintln!("skipped: {reason}");
                return;
            }
        };
        assert!(root.describe().starts_with("cgroup version 2"));
        let group = root.create("test").unwrap();
        let script = "echo $$ > \"$0\"; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        let mut shell = std::process::Command::new("/bin/sh");
        assert!(
            shell
                .args(["-c", script])
                .arg(group.procs())
                .status()
                .unwrap()
                .success()
        );
        assert!(
            group
                .sample()
                .cpu_ns
                .is_some_and(|cpu_ns| cpu_ns > 1_000_000)
        );
        let (directory, above) = (group.directory.path.clone(), root.directory.path.clone());
        drop(group);
        drop(root);
        assert!(!directory.exists() && !above.exists());
    }
}

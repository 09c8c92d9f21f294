//! A control group (version 2) for a target: the kernel's own account of all its processes.
//!
//! `started_candidate` makes one for each run where it can; the second stage of the launcher joins it before
//! the target begins; `usage` reads it. It counts what the sum over processes misses: those that
//! have ended, the page cache of the target's own files, memory of the kernel.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{fs, io, thread};

use rustix::process::{Resource, getrlimit};

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

    /// The file to which a process writes its id to join.
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
                // An empty group that stays behind is harmless.
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

/// The use of a group.
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

/// The current memory of a group that counts memory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct GroupMemory {
    /// Everything that counts against its limit, without the pages of files that were not used lately: what Kubernetes
    /// calls the working set. Lazily freed pages are not in it: the kernel keeps them among those pages.
    pub(crate) working_set_bytes: Option<u64>,
    /// The kernel's memory for it.
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
    /// Searches for a place; `Err` is the reason why there is none, for the report.
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
        // If the memory controller cannot be delegated, the group still counts CPU time.
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
    /// The file to which a process writes its id to join.
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

    /// How many of its processes the kernel killed for lack of memory; `None` where it does not count them.
    pub(crate) fn killed_for_memory(&self) -> Option<u64> {
        let events = self.directory.read("memory.events").ok()?;
        killed(&events)
    }

    /// Its current memory; takes longer than [`Self::sample`], for the kernel sums up all CPUs.
    pub(crate) fn memory(&self) -> GroupMemory {
        let read = |file: &str| self.directory.read(file).ok();
        let current = read("memory.current").and_then(|text| text.trim().parse().ok());
        let stat = read("memory.stat").unwrap_or_default();
        GroupMemory::of_version_2(current, &stat)
    }

    /// Reads its accounts. Uncounted values are absent.
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

// A control group of version 1 for a target, which counts memory where version 2 does not have the controller.
//
// `started_candidate` makes one for each run; the target joins it before it begins, and `usage` reads the most that
// it held at any moment: of all its processes, those that have ended included. Groups are made below the lab's own,
// whose limits go on to hold.
// It uses no other controller; `cgroup`, or signals, freeze processes.

/// Where groups of targets can be made.
#[derive(Debug)]
pub(crate) struct MemoryGroupRoot {
    directory: GroupDirectory,
}

impl MemoryGroupRoot {
    /// Searches for a place; `None` where this user can make none.
    pub(crate) fn find() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let (mount, path) = memory_group_place(&mounts, &own)?;
        let own = Path::new(&mount).join(path.trim_start_matches('/'));
        // In a container the path may be one of the host, and the mount its own group.
        let parent = if own.is_dir() { own } else { mount.into() };
        let directory = GroupDirectory::create_below(&parent).ok()?;
        peak_bytes(&directory).map(|_| Self { directory })
    }

    /// A new group.
    pub(crate) fn create(&self, name: &str) -> io::Result<MemoryGroup> {
        self.directory
            .create_child(name)
            .map(|directory| MemoryGroup { directory })
    }
}

/// The group of one run.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    directory: GroupDirectory,
}

impl MemoryGroup {
    /// The file to which a process writes its id to join.
    pub(crate) fn procs(&self) -> PathBuf {
        self.directory.procs()
    }

    /// Most memory at any moment, page cache and kernel memory included.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        peak_bytes(&self.directory)
    }

    /// Its current memory.
    pub(crate) fn memory(&self) -> GroupMemory {
        let number = |file: &str| self.directory.read(file).ok()?.trim().parse().ok();
        let stat = self.directory.read("memory.stat").unwrap_or_default();
        GroupMemory::new(
            number("memory.usage_in_bytes"),
            &stat,
            "total_inactive_file",
            number("memory.kmem.usage_in_bytes"),
        )
    }

    /// Limits the memory of all its processes together, swap included.
    pub(crate) fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        let text = bytes.to_string();
        self.directory.write("memory.limit_in_bytes", &text)?;
        // With swap; it may not be below the other. A kernel without swap accounts has no such file.
        match self.directory.write("memory.memsw.limit_in_bytes", &text) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // No process of the group is there yet, so swappiness is all that matters where the file cannot be set.
            Err(_) => self.directory.write("memory.swappiness", "0"),
            Ok(()) => Ok(()),
        }
    }

    /// How many of its processes the kernel killed for lack of memory; `None` where it does not count them.
    pub(crate) fn killed_for_memory(&self) -> Option<u64> {
        let events = self.directory.read("memory.oom_control").ok()?;
        killed(&events)
    }
}

fn peak_bytes(directory: &GroupDirectory) -> Option<u64> {
    let text = directory.read("memory.max_usage_in_bytes").ok()?;
    text.trim().parse().ok()
}

/// The mount of the memory controller of version 1, and this process's group in it.
fn memory_group_place(mounts: &str, own: &str) -> Option<(String, String)> {
    let has = |list: &str, name: &str| list.split(',').any(|word| word == name);
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let mount = fields.nth(1)?;
        let is_version_1 = fields.next()? == "cgroup";
        let options = fields.next()?;
        // A new group of cpusets accepts no process before it has CPUs.
        (is_version_1 && has(options, "memory") && !has(options, "cpuset"))
            .then(|| mount.to_owned())
    })?;
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        let path = fields.next()?;
        has(controllers, "memory").then(|| path.to_owned())
    })?;
    Some((mount, path))
}

// Limits of this process that a target inherits: memory of its control groups, and address space.

/// Version 1 of control groups writes a number like this where there is no limit.
const UNLIMITED_MIN: u64 = 1 << 60;

/// The address space that a process may have (`ulimit -v`); `None`: as much as there is.
pub(crate) fn address_space_bytes() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// The same of process `pid`, which may have set one for itself; `None` too if it has ended.
pub(crate) fn address_space_bytes_of(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    address_space_in(&text)
}

/// The soft limit in `/proc/PID/limits`.
fn address_space_in(limits: &str) -> Option<u64> {
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The lowest limit of memory of our control group and of those above it; `None`: there is none that can be seen.
pub(crate) fn memory_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    memory_bytes_below(Path::new("/"), &groups)
}

/// The same with the files of the control groups below `root`.
fn memory_bytes_below(root: &Path, groups: &str) -> Option<u64> {
    let limits = memory_limits_below(root, groups);
    limits.into_iter().map(|limit| limit.bytes).min()
}

/// A limit of memory of a control group.
pub(crate) struct GroupLimit {
    /// Its directory.
    pub(crate) group: PathBuf,
    pub(crate) bytes: u64,
    /// The file with what counts against it.
    usage: &'static str,
}

impl GroupLimit {
    /// The memory of all processes of the group, page cache included.
    pub(crate) fn used_bytes(&self) -> Option<u64> {
        number_in(&self.group.join(self.usage))
    }
}

/// The limits of a process's control groups and of those above them; `groups` is its `/proc/PID/cgroup`.
pub(crate) fn memory_limits_below(root: &Path, groups: &str) -> Vec<GroupLimit> {
    let limits = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let is_memory = controllers.split(',').any(|name| name == "memory");
        let (mount, limit, usage) = match (controllers.is_empty(), is_memory) {
            (true, _) => ("sys/fs/cgroup", "memory.max", "memory.current"),
            (_, true) => (
                "sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            ),
            _ => return None,
        };
        let groups = Path::new(group.trim_start_matches('/')).ancestors();
        let mount = root.join(mount);
        let limits = groups.filter_map(move |group| {
            let group = mount.join(group);
            let bytes = number_in(&group.join(limit)).filter(|&bytes| bytes < UNLIMITED_MIN)?;
            Some(GroupLimit {
                group,
                bytes,
                usage,
            })
        });
        Some(limits)
    });
    limits.flatten().collect()
}

fn number_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
#[path = "tests/cgroup.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/memory_group.rs"]
mod memory_group_tests;

#[cfg(test)]
#[path = "tests/limits.rs"]
mod limits_tests;

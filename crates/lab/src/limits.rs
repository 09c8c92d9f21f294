//! Limits of this process that a target inherits: memory of its control groups, and address space.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

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
    /// What all processes of the group have, page cache included.
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
mod tests {
    use super::*;

    /// Goal: the limit of a process is read where it has one.
    #[test]
    fn the_address_space_of_a_process_is_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max address space         2048000000           unlimited            bytes\n";
        assert_eq!(address_space_in(text), Some(2_048_000_000));
        assert_eq!(
            address_space_in("Max address space  unlimited  unlimited  bytes\n"),
            None
        );
        assert_eq!(
            address_space_bytes_of(std::process::id()),
            address_space_bytes()
        );
    }

    /// Goal: the lowest limit on the way up counts, in both versions of control groups; `max` is none.
    #[test]
    fn the_lowest_limit_counts() {
        let root = tempfile::tempdir().unwrap();
        let plant = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let found = |groups| memory_bytes_below(root.path(), groups);
        assert_eq!(found("0::/a/b\n"), None);
        plant("sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(found("0::/a/b\n"), None);
        plant("sys/fs/cgroup/a/memory.max", "2000\n");
        assert_eq!(found("0::/a/b\n"), Some(2000));
        plant("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "1000\n");
        plant(
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        let both = "5:cpu,cpuacct:/c\n4:memory:/c\n0::/a/b\n";
        assert_eq!(found(both), Some(1000));
        assert_eq!(found("nonsense"), None);
    }
}

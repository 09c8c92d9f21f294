//! Limits of this process that a target inherits: memory of its control groups, and address space.

use std::fs;
use std::path::Path;

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
    let limits = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let is_memory = controllers.split(',').any(|name| name == "memory");
        let (mount, file) = match (controllers.is_empty(), is_memory) {
            (true, _) => ("sys/fs/cgroup", "memory.max"),
            (_, true) => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return None,
        };
        lowest(&root.join(mount), group, file)
    });
    limits.min()
}

/// The lowest number in the files of this name from `group` up to the mount.
fn lowest(mount: &Path, group: &str, file: &str) -> Option<u64> {
    let groups = Path::new(group.trim_start_matches('/')).ancestors();
    let limits = groups.filter_map(|group| {
        let text = fs::read_to_string(mount.join(group).join(file)).ok()?;
        text.trim().parse::<u64>().ok()
    });
    limits.filter(|&bytes| bytes < UNLIMITED_MIN).min()
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

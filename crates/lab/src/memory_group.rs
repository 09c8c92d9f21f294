//! A control group of version 1 for a target, which counts memory where version 2 does not have the controller.
//!
//! `session` makes one for each run; the target joins it before it begins, and `usage` reads the most that
//! it held at any moment: of all its processes, those that have ended included. Groups are made below the lab's own,
//! whose limits go on to hold.
//! It uses no other controller; `cgroup`, or signals, freeze processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cgroup::{self, GroupDirectory, GroupMemory};

/// Where groups of targets can be made.
#[derive(Debug)]
pub(crate) struct MemoryGroupRoot {
    directory: GroupDirectory,
}

impl MemoryGroupRoot {
    /// Looks for a place; `None` where this user can make none.
    pub(crate) fn find() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let (mount, path) = place(&mounts, &own)?;
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
    /// What a process writes its id to, to be in it.
    pub(crate) fn procs(&self) -> PathBuf {
        self.directory.procs()
    }

    /// Most memory at any moment, page cache and kernel memory included.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        peak_bytes(&self.directory)
    }

    /// What it holds now.
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

    /// How many of its processes the kernel killed for want of memory; `None` where it does not count them.
    pub(crate) fn killed_for_memory(&self) -> Option<u64> {
        let events = self.directory.read("memory.oom_control").ok()?;
        cgroup::killed(&events)
    }
}

fn peak_bytes(directory: &GroupDirectory) -> Option<u64> {
    let text = directory.read("memory.max_usage_in_bytes").ok()?;
    text.trim().parse().ok()
}

/// The mount of the memory controller of version 1, and this process's group in it.
fn place(mounts: &str, own: &str) -> Option<(String, String)> {
    let has = |list: &str, name: &str| list.split(',').any(|word| word == name);
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let mount = fields.nth(1)?;
        let is_version_1 = fields.next()? == "cgroup";
        let options = fields.next()?;
        // A new group of cpusets admits nobody before it has CPUs.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the hierarchy of memory is found among the others, and none where there is none, or only one that cannot
    /// be joined.
    #[test]
    fn version_1_is_found() {
        let mounts = "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
                      cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let own = "5:cpuset:/b\n4:memory:/a/b:c\n0::/user.slice/x.scope\n";
        let expected = ("/sys/fs/cgroup/memory".to_owned(), "/a/b:c".to_owned());
        assert_eq!(place(mounts, own), Some(expected));
        assert_eq!(place("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", own), None);
        let joint = "cgroup /sys/fs/cgroup/all cgroup rw,cpuset,memory 0 0\n";
        assert_eq!(place(joint, own), None);
        assert_eq!(place(mounts, "0::/x\n"), None);
    }

    /// Goal: what a process held is still told after it has ended, and the group goes.
    #[test]
    fn ended_processes_are_in_the_peak() {
        let Some(root) = MemoryGroupRoot::find() else {
            eprintln!("skipped: no group of version 1 that counts memory can be made");
            return;
        };
        let group = root.create("test").unwrap();
        let script = "echo $$ > \"$0\"; head -c 64M /dev/zero | tail | wc -c";
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", script]).arg(group.procs());
        assert_eq!(shell.output().unwrap().stdout.trim_ascii_end(), b"67108864");
        let peak_bytes = group.peak_bytes().unwrap();
        let memory = group.memory();
        assert!(memory.kernel_bytes.is_some() && memory.working_set_bytes.unwrap() < peak_bytes);
        assert!((48 << 20..256 << 20).contains(&peak_bytes), "{peak_bytes}");
        let (directory, above) = (group.directory.path.clone(), root.directory.path.clone());
        drop(group);
        drop(root);
        assert!(!directory.exists() && !above.exists());
    }
}

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
    assert_eq!(memory_group_place(mounts, own), Some(expected));
    assert_eq!(
        memory_group_place("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", own),
        None
    );
    let joint = "cgroup /sys/fs/cgroup/all cgroup rw,cpuset,memory 0 0\n";
    assert_eq!(memory_group_place(joint, own), None);
    assert_eq!(memory_group_place(mounts, "0::/x\n"), None);
}

/// Goal: what a process held is still reported after it has ended, and the group is removed.
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

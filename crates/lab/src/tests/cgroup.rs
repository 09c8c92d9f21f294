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
/// does not do so; unreported values are absent.
#[test]
fn memory_has_parts() {
    let stat = "anon 700\nkernel 90\nkernel_stack 16\nsock 4\ninactive_file 150\nactive_file 50\n";
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

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

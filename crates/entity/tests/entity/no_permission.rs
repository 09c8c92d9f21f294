//! A data directory the process may not write to. Alone in its process: the threads that the
//! engine starts inherit the rights taken away here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use millpond_entity::{DataDirError, EntityConfig, open};

fn refusal(path: &Path) -> DataDirError {
    open(&EntityConfig::new(path.to_owned()))
        .err()
        .expect("no permission")
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Goal: not creatable, not readable and not writable are each named; root tests it as the user `nobody`.
#[test]
fn missing_permission_is_named() {
    let parent = tempfile::tempdir().unwrap();
    let data = parent.path().join("data");
    let hidden = parent.path().join("hidden");
    drop(open(&EntityConfig::new(data.clone())).unwrap());
    fs::create_dir(&hidden).unwrap();
    set_mode(&hidden, 0);
    set_mode(&data, 0o555);
    set_mode(parent.path(), 0o555);

    let new = parent.path().join("new");
    let refusals = std::thread::spawn({
        let (data, hidden) = (data.clone(), hidden.clone());
        move || {
            if rustix::process::geteuid().is_root() {
                // Only this thread: the raw system call knows nothing of processes.
                let nobody = rustix::thread::Uid::from_raw(65_534);
                rustix::thread::set_thread_uid(nobody).unwrap();
            }
            [refusal(&new), refusal(&data), refusal(&hidden)]
        }
    });
    let refusals = refusals.join().unwrap();
    for path in [parent.path(), &data, &hidden] {
        set_mode(path, 0o755);
    }
    let operations = refusals.map(|error| match error {
        DataDirError::PermissionDenied { operation, .. } => operation,
        other => panic!("{other}"),
    });
    assert_eq!(operations, ["create", "write to", "read"]);
}

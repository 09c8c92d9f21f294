//! A machine without the resources that opening the engine needs. A test limits its own process, in which it is alone.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use crate::support::process::is_alone;
use millpond_entity::{DataDirError, EntityConfig, abort_note, open};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

fn refusal(path: &Path) -> Option<DataDirError> {
    open(&EntityConfig::new(path.to_owned())).err()
}

fn limit(resource: Resource, current: u64) -> Rlimit {
    let before = getrlimit(resource);
    let current = Some(current);
    setrlimit(resource, Rlimit { current, ..before }).unwrap();
    before
}

/// The engine's exception for a thread that it cannot start aborted the process.
///
/// Goal: it is an error value that names the directory, what is refused, and the limit.
#[test]
fn refused_threads_are_named() {
    if !is_alone("shortage::refused_threads_are_named") {
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let data = parent.path().join("data");
    let opening = std::thread::spawn(move || {
        if rustix::process::geteuid().is_root() {
            // Only this thread, which no limit binds otherwise.
            let nobody = rustix::thread::Uid::from_raw(65_534);
            rustix::thread::set_thread_uid(nobody).unwrap();
        }
        limit(Resource::Nproc, 0);
        let error = refusal(&data).unwrap();
        assert!(matches!(error, DataDirError::Threads { .. }), "{error}");
        let sentence = error.to_string();
        for words in [
            &*data.display().to_string(),
            "temporarily unavailable",
            "ulimit -u",
        ] {
            assert!(sentence.contains(words), "{sentence}");
        }
    });
    opening.join().unwrap();
}

/// The engine calls it "Direct I/O is not supported" where a probe of its own finds no descriptor. Servers of tests in
/// the same process had no more descriptors either, and waited for them without success.
///
/// Goal: with however few descriptors, what is missing is named.
#[test]
fn missing_descriptors_are_named() {
    if !is_alone("shortage::missing_descriptors_are_named") {
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let open_now = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let before = getrlimit(Resource::Nofile);
    let mut refused = 0;
    for more in 0..24 {
        let data = parent.path().join(more.to_string());
        limit(Resource::Nofile, open_now + more);
        let error = refusal(&data);
        setrlimit(Resource::Nofile, before).unwrap();
        let Some(error) = error else {
            continue;
        };
        refused += 1;
        let sentence = error.to_string().to_lowercase();
        assert!(sentence.contains("too many open files"), "{sentence}");
    }
    assert!(refused > 3, "{refused}");
    assert!(File::open("/dev/null").is_ok());
}

const ABORTED: &str = "MILLPOND_TEST_ABORTED";

/// Goal: whatever aborts the process, stderr says on which store it worked, and SIGABRT still ends it.
#[test]
fn an_abort_says_which_store() {
    if std::env::var_os(ABORTED).is_some() {
        abort_note::install(Path::new("/data of mine")).unwrap();
        std::process::abort();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "shortage::an_abort_says_which_store",
            "--nocapture",
        ])
        .env(ABORTED, "")
        .output()
        .unwrap();
    assert_eq!(output.status.signal(), Some(Signal::ABORT.as_raw()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("on the store in /data of mine;"), "{said}");
}

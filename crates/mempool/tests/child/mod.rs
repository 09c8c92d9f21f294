//! Faults that end a process, in a child of their own. Shared with the unit tests by its path.
use std::process::{Command, ExitStatus};

pub(crate) const SIGABRT: i32 = 6;
pub(crate) const SIGSEGV: i32 = 11;

/// Result and output of a child process that runs only the test of this full name and does `fault`.
pub(crate) fn in_child(test: &str, fault: fn()) -> (ExitStatus, String) {
    const MARK: &str = "MILLPOND_TEST_CHILD";
    if std::env::var(MARK).is_ok_and(|name| name == test) {
        fault();
        println!("the fault went unseen");
        std::process::exit(0);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(MARK, test)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status, String::from_utf8_lossy(&said).into_owned())
}

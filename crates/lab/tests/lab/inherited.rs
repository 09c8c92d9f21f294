//! Things that a target must not inherit from the lab, or from the shell that the lab was started in.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::{launcher, spec};

/// Goal: a target without an allocator runs without one, even if the lab's user preloads something.
#[test]
fn a_preload_of_the_user_does_not_reach_the_target() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(directory.path(), &["/bin/sh", "-c", "env"]);
    // The last stage by itself: between the stages each variable is passed on.
    let mut stage = Command::new(launcher().program)
        .args(["launch", "exec"])
        .args(spec.to_arguments())
        .env("LD_PRELOAD", "/nowhere/of-the-user.so")
        .env("MARK", "of the user")
        .stdin(Stdio::piped())
        // The dynamic linker complains here.
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    stage.stdin.take().unwrap().write_all(b"g").unwrap();
    assert!(stage.wait().unwrap().success());
    let log = fs::read_to_string(&spec.log).unwrap();
    assert!(log.contains("MARK=of the user\n"), "{log}");
    assert!(!log.contains("LD_PRELOAD"), "{log}");
}

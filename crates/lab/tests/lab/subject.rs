//! Real processes: started, watched, stopped, and never left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::common::{
    eventually, free_address, has_program, is_taken, launcher, probe, python_server, redis_server,
    spec, start,
};
use millpond_lab::process_tree::{self, is_alive};
use millpond_lab::subject::{Subject, SubjectError};

/// Only a hang takes so long.
const BOUND: Duration = Duration::from_secs(300);
static RUNNING: AtomicBool = AtomicBool::new(false);

fn script(directory: &Path, text: &str) -> String {
    let path = directory.join("script.sh");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("write script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
    path.to_str().expect("a plain path").to_owned()
}

/// Goal: a server is found ready, serves from its own process, and ends at the first request.
#[test]
fn a_server_starts_serves_and_stops() {
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let command = python_server(address);
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut subject = start(&spec(directory.path(), &words));
    subject
        .wait_ready(&probe(address), BOUND, &RUNNING)
        .unwrap();
    subject.ensure_alive().unwrap();
    let serving = subject.serving(address.port());
    assert_eq!(serving.len(), 1);
    assert!(is_taken(address));
    let report = subject.stop(BOUND).unwrap();
    assert!(!report.forced);
    assert!(!is_alive(serving[0]));
    assert!(!is_taken(address));
}

/// Goal: until released, the process exists but the target has not begun.
#[test]
fn target_waits_before_its_first_instruction() {
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("mark");
    let command = script(
        directory.path(),
        &format!("touch {}; exec sleep 60", mark.display()),
    );
    let mut subject =
        Subject::prepare(&launcher(), &spec(directory.path(), &[&command]), "it").unwrap();
    let pid = subject.pid();
    assert!(is_alive(pid));
    assert!(!mark.exists());
    subject.go().unwrap();
    eventually("the mark", || mark.exists());
    assert_eq!(subject.pid(), pid);
    drop(subject);
    assert!(!is_alive(pid));
}

/// Goal: a target dropped before `go` leaves nothing either.
#[test]
fn dropped_before_go() {
    let directory = tempfile::tempdir().unwrap();
    let subject =
        Subject::prepare(&launcher(), &spec(directory.path(), &["sleep", "60"]), "it").unwrap();
    let pid = subject.pid();
    drop(subject);
    assert!(!is_alive(pid));
}

/// Goal: SIGTERM is tried first, and refusing it does not help.
#[test]
fn stubborn_target_is_killed_with_its_children() {
    let directory = tempfile::tempdir().unwrap();
    let ready = directory.path().join("ready");
    let text = format!(
        "trap '' TERM\nsleep 60 &\ntouch {}\nwhile :; do sleep 60; done",
        ready.display()
    );
    let subject = start(&spec(directory.path(), &[&script(directory.path(), &text)]));
    eventually("the trap", || ready.exists());
    let tree = process_tree::tree_of(subject.pid());
    assert!(tree.len() >= 2, "{tree:?}");
    let report = subject.stop(Duration::from_millis(50)).unwrap();
    assert!(report.forced);
    assert!(tree.iter().all(|&pid| !is_alive(pid)));
}

/// Goal: a process that left group and session is still ended with its target.
#[test]
fn runaway_child_is_ended_too() {
    let directory = tempfile::tempdir().unwrap();
    let note = directory.path().join("pid");
    let text = format!(
        "setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 60' &\nwait",
        note.display()
    );
    let subject = start(&spec(directory.path(), &[&script(directory.path(), &text)]));
    eventually("the runaway", || note.exists());
    let runaway: i32 = fs::read_to_string(&note).unwrap().trim().parse().unwrap();
    assert!(is_alive(runaway));
    subject.stop(BOUND).unwrap();
    assert!(!is_alive(runaway));
}

/// Goal: going into the background is named as such, with the remedy, and cleaned up.
#[test]
fn daemon_is_told_to_stay() {
    let directory = tempfile::tempdir().unwrap();
    let note = directory.path().join("pid");
    let text = format!(
        "setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 60' &\n\
         while [ ! -e {0} ]; do sleep 0.01; done\nexit 0",
        note.display()
    );
    let mut subject = start(&spec(directory.path(), &[&script(directory.path(), &text)]));
    let error = subject
        .wait_ready(&probe(free_address()), BOUND, &RUNNING)
        .unwrap_err();
    let daemon: i32 = fs::read_to_string(&note).unwrap().trim().parse().unwrap();
    assert!(
        matches!(error, SubjectError::LeftForeground { pid, .. } if pid == daemon),
        "{error}"
    );
    assert!(error.to_string().contains("daemon off"), "{error}");
    drop(subject);
    assert!(!is_alive(daemon));
}

/// Goal: a command that cannot be run, or ends at once, is reported with its status and last output.
#[test]
fn early_end_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let ready = |command: &[&str]| {
        let mut subject = start(&spec(directory.path(), command));
        subject
            .wait_ready(&probe(free_address()), BOUND, &RUNNING)
            .unwrap_err()
            .to_string()
    };
    let sentence = ready(&["/nowhere/server", "--flag"]);
    assert!(
        sentence.contains("ended before it served (exit status 127)"),
        "{sentence}"
    );
    assert!(
        sentence.contains("cannot run /nowhere/server: No such file"),
        "{sentence}"
    );
    let sentence = ready(&[&script(
        directory.path(),
        "echo port 80 is taken >&2; exit 3",
    )]);
    assert!(sentence.contains("exit status 3"), "{sentence}");
    assert!(sentence.contains("port 80 is taken"), "{sentence}");
    let sentence = ready(&[&script(directory.path(), "kill -SEGV $$")]);
    assert!(sentence.contains("killed by signal 11"), "{sentence}");
}

/// Goal: a program that runs but never responds does not block the lab forever.
#[test]
fn silence_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let mut subject = start(&spec(directory.path(), &["sleep", "60"]));
    let pid = subject.pid();
    let bound = Duration::from_millis(50);
    let error = subject
        .wait_ready(&probe(free_address()), bound, &RUNNING)
        .unwrap_err();
    assert!(matches!(&error, SubjectError::NeverReady { .. }), "{error}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
    let stop = AtomicBool::new(true);
    let error = subject
        .wait_ready(&probe(free_address()), BOUND, &stop)
        .unwrap_err();
    assert!(matches!(error, SubjectError::Interrupted), "{error}");
    drop(subject);
    assert!(!is_alive(pid));
}

/// Goal: a death in the middle of a run is noticed, whatever its cause.
#[test]
fn death_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let mut subject = start(&spec(directory.path(), &["sleep", "60"]));
    subject.ensure_alive().unwrap();
    let pid = rustix::process::Pid::from_raw(subject.pid()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let mut sentence = String::new();
    eventually("its end", || match subject.ensure_alive() {
        Ok(()) => false,
        Err(error) => {
            sentence = error.to_string();
            true
        }
    });
    assert!(
        sentence.contains("died while it was measured (killed by signal 9, SIGKILL)"),
        "{sentence}"
    );
}

/// Goal: only the target gets the preloaded objects and variables; CPUs are as asked.
#[test]
fn environment_is_the_targets_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(
        directory.path(),
        &[
            "/bin/sh",
            "-c",
            "env; grep Cpus_allowed_list /proc/self/status",
        ],
    );
    spec.preload = vec!["/nowhere/a.so".into(), "/nowhere/b.so".into()];
    spec.environment = vec![("MARK".into(), "two words".into())];
    spec.cpus = vec![0];
    let mut subject = start(&spec);
    eventually("its end", || subject.ensure_alive().is_err());
    let log = fs::read_to_string(&spec.log).unwrap();
    assert!(
        log.contains("\nLD_PRELOAD=/nowhere/a.so:/nowhere/b.so\n"),
        "{log}"
    );
    assert!(log.contains("\nMARK=two words\n"), "{log}");
    assert!(log.contains("Cpus_allowed_list:\t0\n"), "{log}");
}

/// Goal: even a lab killed with SIGKILL leaves no process of a target, wherever it hid.
#[test]
fn killed_lab_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let note = directory.path().join("pid");
    let text = format!(
        "trap '' TERM\nsetsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 60' &\nwait\nwait",
        note.display()
    );
    let spec = spec(directory.path(), &[&script(directory.path(), &text)]);
    // A stand-in for the lab: it holds the supervisor's stdin, and is then killed.
    let mut supervisor = Command::new(&launcher().program);
    supervisor
        .args(["launch", "supervise"])
        .args(spec.to_arguments());
    let mut supervisor = supervisor
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = supervisor.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"go\n").unwrap();
    eventually("the runaway", || note.exists());
    let runaway: i32 = fs::read_to_string(&note).unwrap().trim().parse().unwrap();
    let own = i32::try_from(supervisor.id()).unwrap();
    let tree = process_tree::tree_of(own);
    assert!(tree.len() >= 3 && is_alive(runaway), "{tree:?}");
    drop(stdin);
    supervisor.wait().unwrap();
    assert!(!is_alive(runaway));
    assert!(tree.iter().all(|&pid| !is_alive(pid)), "{tree:?}");
}

/// Goal: a server of another protocol is not waited for, and its response is shown.
#[test]
fn redis_is_not_http() {
    if !has_program("redis-server") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let redis = redis_server(address);
    let words: Vec<&str> = redis.iter().map(String::as_str).collect();
    let mut subject = start(&spec(directory.path(), &words));
    let error = subject
        .wait_ready(&probe(address), Duration::from_secs(600), &RUNNING)
        .unwrap_err()
        .to_string();
    assert!(error.contains("does not answer in HTTP"), "{error}");
    subject.stop(BOUND).unwrap();
}

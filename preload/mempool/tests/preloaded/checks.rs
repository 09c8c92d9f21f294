//! `MEMPOOL_CHECKS`: planted faults are found, and programs without faults run as before.

use crate::exercise::{exercise_with, program};
use crate::harness::{find_program, is_ours, preloaded, run};

/// Runs a part that must not survive; returns how it ended and what it said.
#[track_caller]
fn fault(part: &str, checks: &str) -> (String, String) {
    let program = program().expect("asked for by the caller");
    let finished = run(preloaded(&program).arg(part).env("MEMPOOL_CHECKS", checks));
    assert!(!finished.ok, "{part} went unnoticed under {checks}");
    (finished.status, finished.stderr)
}

/// Goal: each kind of misuse aborts with a sentence that names it and the block.
#[test]
fn planted_faults_are_named() {
    if !is_ours() || program().is_none() {
        return;
    }
    let rows = [
        (
            "double free",
            "double free in pool malloc: the block of 100 bytes",
        ),
        ("foreign", "foreign pointer in pool malloc: 0x"),
        ("inside", "lies inside the block of 100 bytes"),
        (
            "overrun",
            "overrun in pool malloc: byte 1 behind the block of 100 bytes",
        ),
        (
            "write after free",
            "use after free in pool malloc: byte 50 of the block of 100 bytes",
        ),
        (
            "stale",
            "double free in pool malloc: the block of 100 bytes",
        ),
    ];
    for (part, sentence) in rows {
        let (status, stderr) = fault(part, "1");
        assert!(status.contains("signal: 6"), "{part}: {status}");
        assert!(stderr.contains(sentence), "{part}: {stderr}");
    }
}

/// Goal: with guard pages the stray access itself faults.
#[test]
fn guard_pages_stop_the_access_itself() {
    if !is_ours() || program().is_none() {
        return;
    }
    let (status, _) = fault("write after free", "guard");
    assert!(status.contains("signal: 11"), "{status}");
}

/// Goal: a program without faults is not affected by the checks, nor are its threads and children.
#[test]
fn sound_programs_run_checked() {
    if !is_ours() {
        return;
    }
    for part in ["edges", "realloc", "storm", "ends", "fork", "loader"] {
        exercise_with(part, &[("MEMPOOL_CHECKS", "1")]);
    }
    let Some(python) = find_program("python3") else {
        return;
    };
    let script = "import json, subprocess, sys, threading\n\
        def work(): assert json.loads(json.dumps([{'n': n} for n in range(2000)]))[7] == {'n': 7}\n\
        threads = [threading.Thread(target=work) for _ in range(4)]\n\
        [t.start() for t in threads]; [t.join() for t in threads]\n\
        subprocess.run(['/bin/sh', '-c', 'exit 0'], check=True); print('done')\n";
    let output = run(preloaded(&python)
        .args(["-c", script])
        .env("PYTHONMALLOC", "malloc")
        .env("MEMPOOL_CHECKS", "1"))
    .expect_ok();
    assert_eq!(output, "done\n");
}

/// Goal: one refused allocation is a null pointer to the program, and the others are not.
#[test]
fn one_allocation_can_be_refused() {
    let Some(program) = program().filter(|_| is_ours()) else {
        return;
    };
    let finished = run(preloaded(&program)
        .arg("edges")
        .env("MEMPOOL_CHECKS", "fail=2"));
    assert!(finished.stderr.contains("broken:"), "{}", finished.stderr);
    let finished = run(preloaded(&program)
        .arg("edges")
        .env("MEMPOOL_CHECKS", "fail=100000000"));
    assert_eq!(finished.expect_ok(), "ok edges\n");
}

/// Goal: an unknown word in the variable ends the program before it starts.
#[test]
fn unknown_checks_are_refused() {
    let Some(program) = program().filter(|_| is_ours()) else {
        return;
    };
    let finished = run(preloaded(&program)
        .arg("edges")
        .env("MEMPOOL_CHECKS", "gaurd"));
    assert!(!finished.ok && finished.stdout.is_empty());
    assert!(
        finished.stderr.contains("MEMPOOL_CHECKS is 1, guard"),
        "{}",
        finished.stderr
    );
}

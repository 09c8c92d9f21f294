//! Real processes seen from outside: memory grows where it should, workers count, ended processes
//! are gone and not zero.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use millpond_measure::process::{ProcessError, ProcessSample, ProcessTree, maps, resident_bytes};

/// A shell that prints a line when it is ready and then waits for the end of its input.
fn shell(script: &str) -> Child {
    let mut child = Command::new("sh")
        .args(["-c", &format!("{script}\necho ready; cat")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "ready\n");
    child
}

fn finish(mut child: Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// Goal: touching 32 MiB shows in every figure of memory and faults, to within 10 %.
#[test]
fn own_memory_is_seen() {
    let pid = std::process::id();
    let before = ProcessSample::read(pid).unwrap();
    let mut block = vec![0_u8; 32 << 20];
    block.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    let after = ProcessSample::read(pid).unwrap();
    let quick = resident_bytes(pid).unwrap();
    assert!(block.contains(&1));
    let grown = after.memory.rss_bytes - before.memory.rss_bytes;
    // Other tests of this file run in the same process.
    assert!((28 << 20..48 << 20).contains(&grown), "{grown}");
    assert!(after.peak_rss_bytes >= after.memory.rss_bytes);
    assert!(
        quick.abs_diff(after.memory.rss_bytes) < 16 << 20,
        "{quick} against {}",
        after.memory.rss_bytes
    );
    let memory = after.memory;
    if let (Some(pss), Some(uss)) = (memory.pss_bytes, memory.uss_bytes) {
        assert!(uss <= pss && pss <= memory.rss_bytes, "{after:?}");
    }
    if let (Some(before), Some(anonymous)) = (before.memory.anonymous_bytes, memory.anonymous_bytes)
    {
        assert!(
            (28 << 20..48 << 20).contains(&(anonymous - before)),
            "{after:?}"
        );
        assert!(
            memory
                .huge_page_bytes
                .is_none_or(|huge| huge <= memory.rss_bytes)
        );
    }
    // A 32 MiB block may be backed by huge pages: then there are few faults, but some.
    assert!(after.since(&before).minor_faults > 0);
    assert!(after.threads >= 1);
}

/// Goal: huge pages are seen as far as the kernel gives them when asked; where it has none to give, the
/// figure is 0 and not absent.
#[test]
fn huge_pages_are_seen() {
    let script = "import mmap,sys\nblock = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                  block.madvise(mmap.MADV_HUGEPAGE)\n\
                  for at in range(0, 32 << 20, 4096): block[at] = 1\n\
                  print('ready', flush=True)\nsys.stdin.read()";
    let started = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        eprintln!("skipped: no python3");
        return;
    };
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.as_mut().unwrap());
    output.read_line(&mut line).unwrap();
    // The kernel may gather more of them meanwhile.
    let least = huge_bytes_of(child.id());
    let sample = ProcessSample::read(child.id());
    let most = huge_bytes_of(child.id());
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(line, "ready\n");
    let Some(huge_bytes) = sample.unwrap().memory.huge_page_bytes else {
        eprintln!("skipped: smaps_rollup cannot be read");
        return;
    };
    assert!((least..=most).contains(&huge_bytes), "{huge_bytes}");
    assert!(huge_bytes <= 40 << 20, "{huge_bytes}");
}

/// As the kernel says it of each mapping.
fn huge_bytes_of(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("AnonHugePages:"));
    let kib = lines.map(|rest| rest.trim_end_matches("kB").trim().parse::<u64>().unwrap());
    kib.sum::<u64>() << 10
}

/// Goal: CPU time grows when work is done, and sums only grow.
#[test]
fn cpu_time_is_seen() {
    let pid = std::process::id();
    let before = ProcessSample::read(pid).unwrap();
    let mut value = 1_u64;
    // As much work as it takes: the clock has steps of 10 ms.
    let after = loop {
        for _ in 0..2_000_000 {
            value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005) ^ 1);
        }
        let now = ProcessSample::read(pid).unwrap();
        if now.cpu_ns() > before.cpu_ns() {
            break now;
        }
    };
    let delta = after.since(&before);
    assert!(delta.cpu_ns() > 0);
    assert_eq!(delta.memory, after.memory);
}

/// Goal: a worker process counts, is listed after the root, and leaves when it ends.
#[test]
fn workers_belong_to_the_tree() {
    let child = shell("sleep 1000 & worker=$!; trap 'kill $worker' EXIT");
    let root = child.id();
    let tree = ProcessTree::new(root);
    let members = tree.members();
    assert_eq!(members[0], root);
    assert!(members.len() >= 2, "{members:?}");
    let sample = tree.sample().unwrap();
    let own = ProcessSample::read(root).unwrap();
    assert!(sample.total.memory.rss_bytes > own.memory.rss_bytes);
    assert!(sample.total.threads >= 2);
    assert!(sample.processes.contains_key(&root));
    let (memory, count) = tree.memory_of(&members).unwrap();
    assert!(memory.rss_bytes > 0 && count == members.len());
    finish(child);
    // The worker was killed by the shell's trap; the kernel removes it later.
    let error = loop {
        match tree.sample() {
            Ok(_) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ProcessError::Gone { pid } if pid == root));
    assert_eq!(tree.memory_of(&members), None);
}

/// Goal: the work of a worker is not lost when it ends. A server with a process for each connection once had fewer page
/// faults after a phase than before it, which was reported as none.
#[test]
fn ended_workers_still_count() {
    let workers = 40;
    let script = format!(
        "echo ready; read go; i=0; while [ $i -lt {workers} ]; do /bin/true; i=$((i+1)); done; \
         echo done; cat"
    );
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let (root, tree) = (child.id(), ProcessTree::new(child.id()));
    let look = || {
        (
            tree.sample().unwrap().total,
            ProcessSample::read(root).unwrap(),
        )
    };
    let before = look();
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\ndone\n");
    let after = look();
    let (all, own) = (after.0.since(&before.0), after.1.since(&before.1));
    let of_workers = all.minor_faults - own.minor_faults;
    // A program that is loaded faults in more pages than twenty.
    assert!(of_workers > workers * 20, "{of_workers}: {all:?}");
    finish(child);
}

/// Goal: a zombie, and a process that never existed, are gone; never a sample full of zeros.
#[test]
fn the_dead_are_gone() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    // Not waited for yet: it becomes a zombie as soon as it ends.
    loop {
        match ProcessSample::read(pid) {
            Ok(sample) => assert!(sample.memory.rss_bytes > 0),
            Err(ProcessError::Gone { pid: gone }) => {
                assert_eq!(gone, pid);
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    child.wait().unwrap();
    let error = ProcessSample::read(pid).unwrap_err();
    assert_eq!(error.to_string(), format!("process {pid} is gone"));
    assert!(matches!(maps(pid), Err(ProcessError::Gone { .. })));
    assert!(matches!(
        resident_bytes(pid),
        Err(ProcessError::Gone { .. })
    ));
    assert!(ProcessTree::new(pid).members().is_empty());
}

/// Goal: processes that end while a tree is read never make it fail or panic. Found once on a busy
/// machine: a root that was just replacing itself (`sh` by its last command) was called gone.
#[test]
fn vanishing_workers_are_survived() {
    let child = shell("(i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done) &");
    let tree = ProcessTree::new(child.id());
    for _ in 0..200 {
        let sample = tree.sample().unwrap();
        assert!(sample.total.memory.rss_bytes > 0);
        assert!(
            sample
                .processes
                .values()
                .all(|one| one.memory.rss_bytes > 0),
            "{sample:?}"
        );
    }
    finish(child);
}

/// Goal: the maps name the C library of a running program, each file once.
#[test]
fn maps_name_the_libraries() {
    let child = shell("");
    let files = maps(child.id()).unwrap();
    assert!(files.iter().any(|file| file.contains("libc")), "{files:?}");
    let mut unique = files.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), files.len());
    finish(child);
}

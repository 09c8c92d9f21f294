//! strace(1), which makes calls fail: around a server from its start, or attached to one that serves.

use super::kind::{KINDS, Kind};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for strace to attach to all threads, or to leave them.
const ATTACH_MAX: Duration = Duration::from_secs(20);

/// Whether strace is there and may trace.
pub(super) fn is_usable() -> bool {
    let tried = Command::new("strace")
        .args([
            "-f",
            "-D",
            "-qq",
            "--seccomp-bpf",
            "-e",
            "trace=openat",
            "true",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// The words before a command whose calls are to be counted.
pub(super) fn counting(log: &Path) -> Vec<String> {
    let calls: Vec<&str> = KINDS.iter().map(|kind| kind.call).collect();
    around(log, &calls.join(","), None)
}

/// The words before a command in which the `number`-th such call of each thread fails: strace counts for each of
/// them apart.
pub(super) fn failing_once(log: &Path, kind: &Kind, number: u64) -> Vec<String> {
    let inject = format!("inject={}:error={}:when={number}", kind.call, kind.error);
    around(log, kind.call, Some(inject))
}

/// The server stays our own child: strace is what is started beside it.
fn around(log: &Path, calls: &str, inject: Option<String>) -> Vec<String> {
    let words = ["strace", "-f", "-D", "-qq", "--seccomp-bpf", "-o"];
    let mut words: Vec<String> = words.map(str::to_owned).to_vec();
    words.push(log.display().to_string());
    words.extend(["-e".to_owned(), format!("trace={calls}")]);
    words.extend(
        inject
            .into_iter()
            .flat_map(|inject| ["-e".to_owned(), inject]),
    );
    words
}

/// The most calls of each kind that one thread made.
pub(super) fn calls_of_a_thread(log: &str) -> BTreeMap<&str, u64> {
    let mut by_thread: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for line in log.lines() {
        let Some((thread, rest)) = line.split_once(' ') else {
            continue;
        };
        if let Some((call, _)) = rest.trim_start().split_once('(')
            && super::kind::named(call).is_some()
        {
            *by_thread.entry((thread, call)).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((_, call), count) in by_thread {
        let entry = most.entry(call).or_default();
        *entry = count.max(*entry);
    }
    most
}

/// strace on a running server: each call of a kind fails until this is finished.
pub(super) struct Failing {
    strace: Child,
    pid: u32,
}

impl Failing {
    pub(super) fn start(pid: u32, kind: &Kind, log: &Path) -> Result<Self, String> {
        let mut command = Command::new("strace");
        command
            .args(["-f", "-qq", "-p", &pid.to_string(), "-o"])
            .arg(log);
        command.args(["-e", &format!("trace={}", kind.call)]);
        command.args(["-e", &format!("inject={}:error={}", kind.call, kind.error)]);
        let strace = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("strace cannot be run: {error}"))?;
        let failing = Self { strace, pid };
        failing.wait_traced(true)?;
        Ok(failing)
    }

    /// Calls work again from here on.
    pub(super) fn finish(mut self) -> Result<(), String> {
        self.interrupt();
        let _ = self.strace.wait();
        self.wait_traced(false)
    }

    /// strace detaches before it ends.
    fn interrupt(&self) {
        use rustix::process::{Pid, Signal, kill_process};
        if let Some(pid) = Pid::from_raw(self.strace.id().cast_signed()) {
            let _ = kill_process(pid, Signal::INT);
        }
    }

    /// A server that has ended is not traced, and has no threads.
    fn wait_traced(&self, is_traced: bool) -> Result<(), String> {
        let begun = Instant::now();
        while !all_traced(self.pid, is_traced) {
            if begun.elapsed() > ATTACH_MAX {
                let what = if is_traced { "attach to" } else { "leave" };
                return Err(format!("strace does not {what} the server"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        self.interrupt();
        let _ = self.strace.wait();
    }
}

fn all_traced(pid: u32, is_traced: bool) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    tasks.flatten().all(|task| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let tracer = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"));
        // A thread that has just ended is neither.
        tracer.is_none_or(|tracer| (tracer.trim() != "0") == is_traced)
    })
}

/// Goal: calls are counted for each thread apart, what is resumed not twice, and other calls not at all.
#[test]
fn calls_are_counted_by_thread() {
    let log = "7 openat(AT_FDCWD, \"a\") = 3\n7 openat(AT_FDCWD, \"b\" <unfinished ...>\n\
               8 mmap(NULL, 1) = 0x1\n7 <... openat resumed>) = 4\n8  openat(x) = 5\n8 nanosleep(1) = 0\n";
    let counts = calls_of_a_thread(log);
    assert_eq!(counts, BTreeMap::from([("openat", 2), ("mmap", 1)]));
}

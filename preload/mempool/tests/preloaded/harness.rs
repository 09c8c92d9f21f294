//! Starts programs with the object under test preloaded, bounds their lives, and proves that the
//! object serves them.
//!
//! `MEMPOOL_TEST_OBJECT=/path/to/other.so` tests another allocator instead: a test that fails under
//! an established allocator too is wrong itself.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Ends a program that hangs; nothing is judged by it. The longest takes 10 s where nothing else runs.
pub(crate) const BOUND: Duration = Duration::from_secs(600);

/// The shared object under test. Cargo puts it beside the test program.
pub(crate) fn object() -> PathBuf {
    if let Some(other) = env::var_os("MEMPOOL_TEST_OBJECT") {
        return other.into();
    }
    let test_program = env::current_exe().expect("a test program has a path");
    let object = test_program.with_file_name("libmillpond_mempool_malloc.so");
    assert!(object.is_file(), "cargo built no {}", object.display());
    object
}

/// True for our own object, whose reports a test may read.
pub(crate) fn is_ours() -> bool {
    env::var_os("MEMPOOL_TEST_OBJECT").is_none()
}

/// The program's full path, or none after a line that says what is skipped. Continuous integration
/// installs everything, so there a missing program is an error.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|directory| directory.join(name))
        .find(|program| program.is_file());
    if found.is_none() {
        eprintln!("skipped: {name} is not installed; scripts/setup test installs it");
        assert!(
            env::var_os("CI").is_none(),
            "{name} must be there in continuous integration"
        );
    }
    found
}

/// A command whose process, and every process it starts, has the object preloaded.
pub(crate) fn preloaded(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", object())
        .stdin(Stdio::null())
        .env_remove("MEMPOOL_STATS")
        .env_remove("MEMPOOL_CHECKS");
    command
}

/// The output of a program.
pub(crate) struct Finished {
    pub(crate) ok: bool,
    pub(crate) status: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// The standard output of a program that must have ended well.
    #[track_caller]
    pub(crate) fn expect_ok(self) -> String {
        let Self {
            status,
            stdout,
            stderr,
            ..
        } = &self;
        assert!(
            self.ok,
            "{status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
        );
        self.stdout
    }
}

/// Runs a program to its end.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Finished {
    let mut stdout = tempfile::tempfile().expect("a temporary file");
    let mut stderr = tempfile::tempfile().expect("a temporary file");
    let clone = |file: &File| file.try_clone().expect("a second descriptor");
    let child = command
        .stdout(clone(&stdout))
        .stderr(clone(&stderr))
        .spawn()
        .expect("the program starts");
    let mut running = Running(child);
    let deadline = Instant::now() + BOUND;
    let status = loop {
        if let Some(status) = running.0.try_wait().expect("wait for our own child") {
            break status.to_string();
        }
        if Instant::now() > deadline {
            break "killed: it did not end by itself".to_owned();
        }
        thread::sleep(Duration::from_millis(2));
    };
    let ok = matches!(running.0.try_wait(), Ok(Some(status)) if status.success());
    drop(running);
    let text = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind().expect("rewind");
        file.read_to_end(&mut bytes).expect("read back");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Finished {
        ok,
        status,
        stdout: text(&mut stdout),
        stderr: text(&mut stderr),
    }
}

/// A running program, ended by its process id at the end of the test.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Waits for a program that was asked to end, and demands success.
    #[track_caller]
    pub(crate) fn expect_end(mut self) {
        let mut ended = None;
        eventually("the program ends", || {
            ended = self.0.try_wait().expect("wait for our own child");
            ended.is_some()
        });
        assert!(
            ended.is_some_and(|status| status.success()),
            "it ended with {ended:?}"
        );
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal)
            .expect("the program lives");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for something that must happen; the bound only ends a broken test.
#[track_caller]
pub(crate) fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !happened() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A port that could be bound just now, below those that the kernel gives to outgoing connections: a client of another
/// test cannot take it before the server does.
pub(crate) fn free_port() -> u16 {
    let first = (std::process::id() % 20_000) as u16;
    (0..20_000)
        .map(|offset| 10_000 + (first + offset) % 20_000)
        .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .expect("a free port")
}

/// Demands that the object's code is mapped in a process.
#[track_caller]
pub(crate) fn demand_mapped(pid: u32) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process lives");
    let object = fs::canonicalize(object()).expect("the object is there");
    let object = object.to_str().expect("a plain path");
    assert!(
        maps.lines()
            .any(|line| line.contains(" r-xp ") && line.ends_with(object)),
        "{object} is not mapped in process {pid}:\n{maps}"
    );
}

/// Demands that the program's own calls of `malloc` and `free` are bound to the object, by the
/// dynamic linker's own report. This distinguishes an interposed library from one that is only
/// mapped: Debian's redis-server, for one, links jemalloc.
#[track_caller]
pub(crate) fn demand_bound(program: &Path, arguments: &[&str]) {
    let finished = run(preloaded(program)
        .args(arguments)
        .env("LD_DEBUG", "bindings")
        .env("LD_BIND_NOW", "1"));
    let object = object();
    let program = program.to_str().expect("a plain path");
    for function in ["malloc", "free"] {
        let symbol = format!("symbol `{function}'");
        let binding = finished
            .stderr
            .lines()
            .find(|line| {
                line.contains(&format!("binding file {program} ")) && line.contains(&symbol)
            })
            .unwrap_or_else(|| panic!("{program} never binds {function}"));
        assert!(
            binding.contains(object.to_str().expect("a plain path")),
            "{binding}"
        );
    }
}

/// The direct children of a process.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

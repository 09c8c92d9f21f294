//! A fault matrix: everything that a server acquires at run time fails, once at each point and for a while altogether.
//!
//! strace injects the failures; see `Kind` for the calls. A scenario is fixed: a start, writes, reads, a range, a memtable
//! that is written to a table, a stop or a kill, and another start. First it runs without failures and is counted.
//! Then it runs with the n-th call of each thread failing, for every n up to the largest count of any thread: strace counts
//! for each thread apart, so a run may fail one call in each of several threads. Last, a server that serves meets
//! nothing but failures of a kind while it is asked, and has to serve again once they are over.
//!
//! Allowed is: to go on, with refusals (5xx, a closed connection) as long as calls fail; or to end, or not to start, with a
//! status other than 0 and a sentence that names what failed. Never: a wrong response, a hang, a panic, an acknowledged
//! write that is not there, also after `kill -9`. Excluded are io_uring's own operations (accept, connect and so on in
//! the ring are no calls; the simulator fails those), syncs, reads and writes of files (`cargo bench-suite crash` fails
//! each of those), and brk, whose failure cannot be injected. Where the dynamic loader, Rust's runtime or RocksDB end the
//! process in their own way, that is counted apart, with the reason, and RocksDB's end needs our sentence beside
//! its own; see `excluded`.

mod scenario;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use scenario::Program;
use scenario::{Course, RunContext};

use crate::bench;
use crate::bench::Bench;
use crate::hostile::resources::server::Upstream;

/// Of the points of a call, one of so many is tried by the slow tier.
const SMOKE_STEP: u64 = 5;

/// Every point, or one in some for a quick check; of all servers and calls, or of the named ones.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let is_smoke = words.contains(&"--smoke");
    let names: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| *word != "--smoke")
        .collect();
    check_names(&names)?;
    if !is_usable() {
        println!("not run: strace is missing, or may not trace; scripts/setup verify installs it");
        return Ok(());
    }
    // The development build: what it asserts besides is welcome here.
    let bench = bench::prepare(bench::Plan::smoke(), true)?;
    let upstream = Upstream::start()?;
    let mut failures = Vec::new();
    for program in Program::ALL {
        for driver in ["uring", "epoll"] {
            let words = [program.name(), driver];
            if !is_chosen(&names, &words[..1], &Program::ALL.map(Program::name)) {
                continue;
            }
            if !is_chosen(&names, &words[1..], &["uring", "epoll"]) {
                continue;
            }
            let place = RunContext {
                program,
                driver,
                millpond: bench.millpond.clone(),
                directory: directory_of(&bench),
                upstream: &upstream,
            };
            matrix(&place, &names, is_smoke, &mut failures)?;
            // It is emptied before it is used.
            let _ = std::fs::remove_dir_all(&place.directory);
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{} points fail; they are printed above",
            failures.len()
        )),
    }
}

fn directory_of(bench: &Bench) -> std::path::PathBuf {
    bench.scratch.join(format!("faults-{}", std::process::id()))
}

/// Whether one of these is named, or none of their kind is.
fn is_chosen(names: &[&str], words: &[&str], of_kind: &[&str]) -> bool {
    let is_restricted = names.iter().any(|name| of_kind.contains(name));
    !is_restricted || words.iter().any(|word| names.contains(word))
}

fn check_names(names: &[&str]) -> Result<(), String> {
    let programs = Program::ALL.map(Program::name);
    let unknown = names.iter().find(|name| {
        !programs.contains(name) && !["uring", "epoll"].contains(name) && named(name).is_none()
    });
    match unknown {
        None => Ok(()),
        Some(name) => {
            let calls: Vec<&str> = KINDS.iter().map(|kind| kind.call).collect();
            Err(format!(
                "{name} is neither a server ({}), a driver (uring, epoll) nor a call ({})",
                programs.join(", "),
                calls.join(", ")
            ))
        }
    }
}

/// All points of one server with one driver. One that fails is printed, and the others follow.
fn matrix(
    place: &RunContext<'_>,
    names: &[&str],
    is_smoke: bool,
    failures: &mut Vec<String>,
) -> Result<(), String> {
    let title = format!("{} {}", place.program.name(), place.driver);
    let counts = match place.count_calls() {
        Ok(counts) => counts,
        // No io_uring here, for instance.
        Err(sentence) if place.driver == "uring" => {
            println!("not run: {title}: {sentence}");
            return Ok(());
        }
        Err(sentence) => return Err(format!("{title} without failures: {sentence}")),
    };
    let all: Vec<&str> = KINDS.iter().map(|kind| kind.call).collect();
    for kind in KINDS {
        let count = counts.get(kind.call).copied().unwrap_or_default();
        if count > 0 && is_chosen(names, &[kind.call], &all) {
            let step = if is_smoke { SMOKE_STEP } else { 1 };
            points(place, kind, (count, step), &title, failures);
        }
    }
    Ok(())
}

/// All points of one call, as one line, with a line for each that fails.
fn points(
    place: &RunContext<'_>,
    kind: &Kind,
    (count, step): (u64, u64),
    title: &str,
    failures: &mut Vec<String>,
) {
    let begun = Instant::now();
    let mut courses: BTreeMap<Course, u64> = BTreeMap::new();
    let once = (1..=count).step_by(step as usize).map(|number| {
        (
            format!("call {number} of {count}"),
            place.fail_once(kind, number),
        )
    });
    let always = std::iter::once_with(|| {
        (
            "every call while serving".to_owned(),
            place.fail_always(kind),
        )
    });
    for (point, outcome) in once.chain(always) {
        match outcome {
            Ok(course) => *courses.entry(course).or_default() += 1,
            Err(sentence) => {
                println!(
                    "FAILED: {title}: {} with {}, {point}: {sentence}",
                    kind.call, kind.error
                );
                failures.push(point);
            }
        }
    }
    let courses: Vec<String> = courses
        .iter()
        .map(|(course, count)| match course {
            Course::Excluded(why) => format!("{count} excluded ({why})"),
            course => format!("{count} {}", course.name()),
        })
        .collect();
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{title:<13} {:<18} {:<13} {count:>3} calls: {}; {seconds:.0} s",
        kind.call,
        kind.error,
        courses.join(", ")
    );
}

/// Goal: a name restricts its own kind alone, and one that is none is refused with the list.
#[test]
fn names_choose_points() {
    let drivers = ["uring", "epoll"];
    assert!(is_chosen(&["mmap"], &["uring"], &drivers));
    assert!(is_chosen(&["uring", "mmap"], &["uring"], &drivers));
    assert!(!is_chosen(&["uring", "mmap"], &["epoll"], &drivers));
    assert!(check_names(&["entity", "epoll", "socket"]).is_ok());
    let sentence = check_names(&["sokcet"]).unwrap_err();
    assert!(
        sentence.contains("socket") && sentence.contains("proxy"),
        "{sentence}"
    );
}

// The failing calls: every call with which a server acquires something at run time.

/// A system call and the error that it fails with.
#[derive(Debug)]
struct Kind {
    call: &'static str,
    /// As strace writes it.
    error: &'static str,
    /// The text for the reader.
    text: &'static str,
}

const fn kind_kind(call: &'static str, error: &'static str, text: &'static str) -> Kind {
    Kind { call, error, text }
}

const FILES: &str = "Too many open files";
const MEMORY: &str = "Cannot allocate memory";
const ROOM: &str = "No space left on device";
const BUSY: &str = "Resource temporarily unavailable";

/// Failed syncs, writes and reads are not among them: `cargo bench-suite crash` fails each of those.
const KINDS: &[Kind] = &[
    kind_kind("socket", "EMFILE", FILES),
    kind_kind("accept4", "EMFILE", FILES),
    kind_kind("bind", "EADDRINUSE", "Address already in use"),
    kind_kind("listen", "EADDRINUSE", "Address already in use"),
    kind_kind(
        "connect",
        "EADDRNOTAVAIL",
        "Cannot assign requested address",
    ),
    kind_kind("setsockopt", "ENOBUFS", "No buffer space available"),
    kind_kind("openat", "EMFILE", FILES),
    kind_kind("openat2", "EMFILE", FILES),
    kind_kind("pipe2", "EMFILE", FILES),
    kind_kind("eventfd2", "EMFILE", FILES),
    kind_kind("timerfd_create", "EMFILE", FILES),
    kind_kind("memfd_create", "EMFILE", FILES),
    kind_kind("signalfd4", "EMFILE", FILES),
    kind_kind("epoll_create1", "EMFILE", FILES),
    kind_kind("epoll_ctl", "ENOMEM", MEMORY),
    kind_kind("io_uring_setup", "ENOMEM", MEMORY),
    kind_kind("io_uring_register", "ENOMEM", MEMORY),
    kind_kind("io_uring_enter", "EAGAIN", BUSY),
    kind_kind("clone3", "EAGAIN", BUSY),
    kind_kind("mkdir", "ENOSPC", ROOM),
    kind_kind("rename", "ENOSPC", ROOM),
    kind_kind("fallocate", "ENOSPC", ROOM),
    kind_kind("ftruncate", "ENOSPC", ROOM),
    // brk is not among them: its failure has no error that could be injected, and malloc then asks mmap.
    kind_kind("mmap", "ENOMEM", MEMORY),
];

/// An end that is not ours to change: the process must not hang or lie.
struct Excluded {
    /// The expected stderr.
    text: &'static str,
    /// Further expected text there.
    note: &'static str,
    why: &'static str,
}

/// Where the store is, and what may help.
const NOTE: &str = "millpond: error: the process is aborted at its work on the store in ";

const EXCLUDED: [Excluded; 4] = [
    Excluded {
        text: "Rust cannot catch foreign exceptions",
        note: NOTE,
        why: "RocksDB: a thread that it cannot start is a C++ exception, which its C interface lets through",
    },
    Excluded {
        text: "terminate called",
        note: NOTE,
        why: "RocksDB: a thread that it cannot start is a C++ exception, which nothing catches",
    },
    Excluded {
        text: "failed to allocate an alternative stack",
        note: "",
        why: "Rust's runtime: no guard stack for a thread, before any code of ours",
    },
    Excluded {
        text: "memory allocation of",
        note: "",
        why: "Rust's runtime: malloc has no error but the end of the process",
    },
];

/// The dynamic loader has no stderr yet when its first memory is refused.
const LOADER: &str = "the dynamic loader, before main";

/// Why an end is excluded, if it is. `number`: of the call that failed, before the server listened.
fn excluded(kind: &Kind, number: Option<u64>, said: &str) -> Option<&'static str> {
    if kind.call == "mmap" && number == Some(1) {
        return Some(LOADER);
    }
    let found = EXCLUDED.iter().find(|end| said.contains(end.text));
    found
        .filter(|end| said.contains(end.note))
        .map(|end| end.why)
}

/// The kind of that call.
fn named(call: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.call == call)
}

impl Kind {
    /// Whether what a server printed before it ended says what failed: the error's text, or a sentence of the dynamic
    /// loader or of the allocator, which have their own words for it.
    fn is_named_in(&self, said: &str, program: Program) -> bool {
        let others = [
            "error while loading shared libraries",
            "cannot allocate memory",
            "out of memory",
            // The error of pthread_create for a stack that cannot be allocated.
            "resource temporarily unavailable",
            // The dynamic loader, before stderr exists.
            "cannot allocate tls data structures",
        ];
        let said = said.to_lowercase();
        // The engine's cause is in its own words, which are not always those of the error.
        let of_store = program == Program::Entity
            && (said.contains("io error") || said.contains("the engine cannot"));
        said.contains(&self.text.to_lowercase())
            || of_store
            || others.iter().any(|other| said.contains(other))
    }
}

/// Goal: an exception of the engine is excluded only where the server says on which store it worked.
#[test]
fn an_excluded_end_has_its_note() {
    let kind = named("clone3").unwrap();
    let said = "terminate called after throwing an instance of 'std::system_error'";
    assert_eq!(excluded(kind, None, said), None);
    let said = format!("{said}\n{NOTE}/data; the line above says why");
    assert!(excluded(kind, None, &said).is_some());
}

/// Goal: a call stands once, and what failed is found in a sentence however it is written.
#[test]
fn kinds_are_found_and_named() {
    let mut calls: Vec<&str> = KINDS.iter().map(|kind| kind.call).collect();
    calls.sort_unstable();
    calls.dedup();
    assert_eq!(calls.len(), KINDS.len());
    let kind = named("socket").unwrap();
    assert!(kind.is_named_in(
        "millpond: no socket: too many open files (os error 24)",
        Program::Files
    ));
    assert!(!kind.is_named_in("stderr: ", Program::Files));
}

// strace(1), which makes calls fail: around a server from its start, or attached to one that serves.

/// Longest wait for strace to attach to all threads, or to leave them.
const ATTACH_MAX: Duration = Duration::from_secs(20);

/// Whether strace is there and may trace.
fn is_usable() -> bool {
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
fn counting(log: &Path) -> Vec<String> {
    let calls: Vec<&str> = KINDS.iter().map(|kind| kind.call).collect();
    around(log, &calls.join(","), None)
}

/// The words before a command in which the `number`-th such call of each thread fails: strace counts for each of
/// them apart.
fn failing_once(log: &Path, kind: &Kind, number: u64) -> Vec<String> {
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
fn calls_of_a_thread(log: &str) -> BTreeMap<&str, u64> {
    let mut by_thread: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for line in log.lines() {
        let Some((thread, rest)) = line.split_once(' ') else {
            continue;
        };
        if let Some((call, _)) = rest.trim_start().split_once('(')
            && named(call).is_some()
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
struct Failing {
    strace: Child,
    pid: u32,
}

impl Failing {
    fn start(pid: u32, kind: &Kind, log: &Path) -> Result<Self, String> {
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
    fn finish(mut self) -> Result<(), String> {
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

use super::super::select_with_settings;
use super::*;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

fn select(words: &[&str]) -> Result<Vec<Allocator>, String> {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    select_with_settings(&words).map_err(|error| error.to_string())
}

/// Goal: the interval is part of the name and arrives in milliseconds; settings of the C library may stand beside it,
/// in a list that was split at their commas too.
#[test]
fn trimming_is_a_candidate_of_its_own() {
    let words = [
        "glibc:arena_max=2",
        "glibc+trim=1m30s:arena_max=2",
        "trim_threshold=4096",
    ];
    let selected = select(&words).unwrap();
    assert_eq!(selected.len(), 2);
    let trimmed = &selected[1];
    assert_eq!(
        trimmed.name,
        "glibc:arena_max=2,trim_threshold=4096+trim=1m30s"
    );
    assert!(!trimmed.is_plain() && trimmed.library.is_none());
    let object = trimmed.companion().unwrap();
    assert!(object.is_file());
    assert_eq!(trimmed.objects().collect::<Vec<_>>(), [object]);
    let last = trimmed.environment.last().unwrap();
    assert_eq!(*last, (INTERVAL_VARIABLE.to_owned(), "90000".to_owned()));
    assert_eq!(trimmed.version(), selected[0].version());
}

/// A program that keeps 64 MiB of freed memory, with the object in it.
struct Retaining {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Retaining {
    fn start(program: &Path, allocator: &Allocator, variables: &[(String, String)]) -> Self {
        let mut child = Command::new(program)
            .env("LD_PRELOAD", allocator.companion().unwrap())
            .envs(variables.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// Its RSS in KiB and its number of threads; of a child of it if it is asked to "fork".
    fn ask(&mut self, what: &str) -> (u64, u64) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        let (rss_kib, threads) = line.trim().split_once(' ').unwrap();
        (rss_kib.parse().unwrap(), threads.parse().unwrap())
    }
}

impl Drop for Retaining {
    fn drop(&mut self) {
        // Without its stdin it ends.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Goal: memory that the C library keeps comes back by the thread, and does not without an interval; a worker that is
/// forked has a thread of its own.
#[test]
fn freed_memory_comes_back() {
    const KEPT_KIB: u64 = 60 << 10;
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("retaining");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/retaining.c");
    let compiled = Command::new("cc")
        .args(["-O0", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(compiled.unwrap().success());
    let trimmed = select(&["glibc+trim=5ms"]).unwrap().remove(0);
    let mut alone = Retaining::start(&program, &trimmed, &[]);
    let mut helped = Retaining::start(&program, &trimmed, &trimmed.environment);
    let patience = Instant::now() + Duration::from_secs(120);
    while helped.ask("rss").0 > KEPT_KIB / 4 {
        assert!(Instant::now() < patience, "{:?}", helped.ask("rss"));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((helped.ask("rss").1, helped.ask("fork").1), (2, 2));
    let (rss_kib, threads) = alone.ask("rss");
    assert!(
        rss_kib > KEPT_KIB && threads == 1,
        "{rss_kib} KiB, {threads} threads"
    );
}

/// Goal: an allocator that cannot trim, or not at that interval, is refused with the reason.
#[test]
fn only_the_c_library_trims() {
    for (word, reason) in [
        ("mempool+trim=30s", "which mempool is not"),
        ("glibc+trim", "the interval is missing"),
        ("glibc+trim=0s", "is not whole milliseconds"),
        ("glibc+trim=soon", "a duration"),
    ] {
        let told = select(&[word]).unwrap_err();
        assert!(
            told.contains(reason) && told.contains("glibc+trim=30s"),
            "{told}"
        );
    }
}

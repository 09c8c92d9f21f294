//! The heap trace of programs whose every block is known, in front of every allocator.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use millpond_lab::allocator::{self, Allocator};
use millpond_lab::subject::Subject;
use millpond_lab::trace::{HeapReading, PATH_VARIABLE, Trace};
use millpond_measure::record::{HeapProfile, SizeClass};

use crate::common::{eventually, put_under, spec, start};

/// Finer than usual, so that little is left to chance.
const MEAN_BYTES: u64 = 2048;
/// Five standard errors of what is sampled in these programs: so much is not chance.
const FIVE_ERRORS: f64 = 0.05;

pub(crate) fn compile(directory: &Path, source: &str) -> String {
    let (file, program) = (directory.join("known.c"), directory.join("known"));
    fs::write(&file, source).expect("write source");
    let compiled = Command::new("cc")
        .args(["-O0", "-fno-builtin", "-pthread", "-o"])
        .arg(&program)
        .arg(&file)
        .status();
    assert!(compiled.expect("cc").success());
    program.to_str().expect("a plain path").to_owned()
}

/// `program` under `allocator`, traced.
pub(crate) fn traced(
    directory: &Path,
    program: &str,
    words: &[&str],
    allocator: &Allocator,
) -> (Subject, Trace) {
    let trace = Trace::create_sampling(directory, MEAN_BYTES).expect("trace");
    let words: Vec<&str> = std::iter::once(program)
        .chain(words.iter().copied())
        .collect();
    let mut spec = spec(directory, &words);
    spec.log = directory.join("log");
    // The output of an earlier one is not this one's.
    let _ = fs::remove_file(&spec.log);
    spec.preload.push(trace.object().to_owned());
    put_under(&mut spec, allocator);
    let variable = (PATH_VARIABLE.into(), trace.counters().into());
    spec.environment.push(variable);
    (start(&spec), trace)
}

pub(crate) fn wait_for(directory: &Path, word: &str) {
    let log = directory.join("log");
    eventually(word, || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains(word))
    });
}

fn profile(trace: &Trace, lives: &dyn Fn(u64) -> bool) -> HeapProfile {
    let reading = trace.read_heap(lives).expect("counters");
    reading.profile_since(&HeapReading::default(), 1, None)
}

fn is_near(what: &str, allocator: &Allocator, found: u64, expected: u64) {
    let distance = (found as f64 / expected as f64 - 1.0).abs();
    let name = &allocator.name;
    assert!(
        distance < FIVE_ERRORS,
        "{what} under {name}: {found}, not {expected}"
    );
}

/// 40,000 blocks of 1,000 bytes live; before them 40,000 of 500 were made and freed after 50 ms, half
/// of them by another thread.
const HOLDER: &str = "#include <pthread.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
#define N 40000\nstatic void *block[N];\n\
static void *give_back(void *from) {\n\
  for (long i = (long)from; i < (long)from + N / 2; i++) free(block[i]);\n  return 0;\n}\n\
int main(void) {\n\
  pthread_t other;\n\
  for (int i = 0; i < N; i++) block[i] = malloc(500);\n\
  usleep(50000);\n\
  pthread_create(&other, 0, give_back, (void *)0); pthread_join(other, 0);\n\
  give_back((void *)(N / 2));\n\
  for (int i = 0; i < N; i++) block[i] = malloc(1000);\n\
  write(1, \"held\\n\", 5); pause(); return 0;\n}\n";

/// Goal: sizes are exact; live bytes, their peak, lifetimes and the freeing threads are right
/// within the sampling's error; all of it survives SIGKILL.
#[test]
fn blocks_are_known() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), HOLDER);
    for allocator in allocator::discover() {
        let (subject, trace) = traced(directory.path(), &program, &[], &allocator);
        wait_for(directory.path(), "held");
        let held = profile(&trace, &|_| true);
        subject.stop(Duration::ZERO).expect("killed");
        let killed = profile(&trace, &|_| true);
        assert_eq!(held, killed, "{}", allocator.name);
        for size in [500, 1000] {
            let of_size = |class: &&SizeClass| (class.from_bytes..=class.to_bytes).contains(&size);
            let calls = held
                .sizes
                .iter()
                .find(of_size)
                .map_or(0, |class| class.calls);
            // Libraries may ask for a block of that class as well.
            assert!(
                (40_000..40_010).contains(&calls),
                "{}: {calls}",
                allocator.name
            );
        }
        is_near("live bytes", &allocator, held.live_bytes, 40_000_000);
        is_near("live blocks", &allocator, held.live_blocks, 40_000);
        is_near("peak", &allocator, held.peak_live_bytes, 40_000_000);
        assert!(held.live_error < FIVE_ERRORS / 4.0, "{held:?}");
        let long = held
            .lifetimes
            .iter()
            .filter(|class| class.to_ns >= 50_000_000);
        let (blocks, bytes) = long.fold((0.0, 0.0), |sum, class| {
            (sum.0 + class.blocks, sum.1 + class.bytes)
        });
        is_near("blocks that lived long", &allocator, blocks as u64, 40_000);
        is_near("their bytes", &allocator, bytes as u64, 20_000_000);
        let crossed = held.cross_thread_share.expect("blocks died");
        assert!(
            (crossed - 0.5).abs() < FIVE_ERRORS,
            "{crossed} under {}",
            allocator.name
        );
        assert_eq!(held.dropped_samples, 0);
        assert_eq!(profile(&trace, &|_| false).live_bytes, 0, "nobody lives");
    }
}

/// The parent holds 20 MB; its child frees all of that (its copies), holds 10 MB of its own, and ends,
/// in order or killed by itself.
const FORKER: &str = "#include <signal.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
#define N 20000\nstatic void *block[N];\n\
int main(int count, char **words) {\n\
  for (int i = 0; i < N; i++) block[i] = malloc(1000);\n\
  if (fork() == 0) {\n\
    for (int i = 0; i < N; i++) free(block[i]);\n\
    for (int i = 0; i < N / 2; i++) block[i] = malloc(1000);\n\
    write(1, \"child\\n\", 6); while (access(words[1], F_OK)) usleep(1000);\n\
    if (count > 2) kill(getpid(), SIGKILL); exit(0);\n\
  }\n\
  wait(0);\n\
  write(1, \"ended\\n\", 6); pause(); return 0;\n}\n";

/// Goal: a fork is a process of its own, with its own live bytes, which end with it: by itself if it
/// ends in order, by the reader's knowledge if it was killed. Its parent's blocks stay its parent's.
#[test]
fn forks_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), FORKER);
    let glibc = Allocator::native("glibc");
    let gate = directory.path().join("gate");
    for words in [&[][..], &["killed"][..]] {
        let _ = fs::remove_file(&gate);
        let words: Vec<&str> = gate
            .to_str()
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        let (subject, trace) = traced(directory.path(), &program, &words, &glibc);
        wait_for(directory.path(), "child");
        is_near(
            "both",
            &glibc,
            profile(&trace, &|_| true).live_bytes,
            30_000_000,
        );
        fs::write(&gate, "").expect("gate");
        wait_for(directory.path(), "ended");
        let exists = |pid: u64| Path::new(&format!("/proc/{pid}")).exists();
        let after = profile(&trace, &exists);
        is_near("the parent", &glibc, after.live_bytes, 20_000_000);
        is_near("calls", &glibc, after.allocations, 30_000);
        subject.stop(Duration::ZERO).expect("killed");
    }
}

/// Three thousand threads one after another, each with a hundred blocks: more than there are records.
const CHURN: &str = "#include <pthread.h>\n#include <stdlib.h>\n\
static void *work(void *unused) {\n\
  for (int i = 0; i < 100; i++) free(malloc(64));\n  return unused;\n}\n\
int main(void) {\n\
  for (int i = 0; i < 3000; i++) { pthread_t one; pthread_create(&one, 0, work, 0); pthread_join(one, 0); }\n\
  return 0;\n}\n";

/// Goal: records go from threads that end to threads that begin, and no call is lost.
#[test]
fn threads_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), CHURN);
    for allocator in allocator::discover() {
        let (mut subject, trace) = traced(directory.path(), &program, &[], &allocator);
        eventually("its end", || subject.ensure_alive().is_err());
        let found = profile(&trace, &|_| true);
        let own = found.sizes.iter().find(|class| class.from_bytes == 64);
        let calls = own.map_or(0, |class| class.calls);
        // Threads themselves need a few blocks too.
        assert!(
            (300_000..306_000).contains(&calls),
            "{}: {calls}",
            allocator.name
        );
        assert!(
            found.frees >= 300_000,
            "{}: {}",
            allocator.name,
            found.frees
        );
        assert_eq!(found.live_bytes, 0, "it ended in order");
        assert!(found.peak_live_bytes < 10_000_000);
    }
}

//! Is the allocator really there? Proof with real targets, and every way of cheating we know.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::common::{
    eventually, free_address, has_program, preloadable, probe, python_server, redis_server, spec,
    start,
};
use millpond_lab::allocator::{self, Allocator};
use millpond_lab::presence::{Presence, PresenceError, prove};
use millpond_lab::subject::Subject;
use millpond_lab::trace::Trace;

const BOUND: Duration = Duration::from_secs(20);
static RUNNING: AtomicBool = AtomicBool::new(false);

fn compile_c(directory: &Path, name: &str, source: &str, flags: &[&str]) -> String {
    let (file, program) = (directory.join(format!("{name}.c")), directory.join(name));
    fs::write(&file, source).expect("write source");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O0", "-fno-builtin", "-o"])
        .arg(&program)
        .arg(&file)
        .args(flags);
    assert!(compiler.status().expect("cc").success());
    program.to_str().expect("a plain path").to_owned()
}

/// Starts python's server under `allocator` and returns it with the processes that serve.
fn python_under(directory: &Path, allocator: &Allocator, wrapper: &[&str]) -> (Subject, Vec<i32>) {
    let address = free_address();
    let command = python_server(address);
    let words: Vec<&str> = wrapper
        .iter()
        .copied()
        .chain(command.iter().map(String::as_str))
        .collect();
    let mut spec = spec(directory, &words);
    spec.preload.extend(allocator.library.clone());
    let mut subject = start(&spec);
    subject
        .wait_ready(&probe(address), BOUND, &RUNNING)
        .expect("ready");
    let serving = subject.serving(address.port());
    (subject, serving)
}

/// Goal: each installed allocator is proved in a real server, and the proof can fail.
#[test]
fn python_serves_under_each_allocator() {
    let directory = tempfile::tempdir().unwrap();
    for allocator in allocator::discover() {
        let (_subject, serving) = python_under(directory.path(), &allocator, &[]);
        let presence = prove(&serving, &allocator).unwrap();
        let expected = Presence {
            pids: serving.clone(),
            native: None,
        };
        assert_eq!(presence, expected, "{}", allocator.name);
        for other in preloadable() {
            if other.name != allocator.name {
                let error = prove(&serving, &other).unwrap_err();
                assert!(matches!(error, PresenceError::NotMapped { .. }), "{error}");
            }
        }
    }
}

/// Goal: a wrapper that drops the variable is caught, since the process that serves is looked at.
#[test]
fn wrapper_that_drops_the_preload_is_caught() {
    let directory = tempfile::tempdir().unwrap();
    let wrapper = directory.path().join("wrapper.sh");
    fs::write(&wrapper, "#!/bin/sh\nunset LD_PRELOAD\n\"$@\" &\nwait\n").unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let Some(allocator) = preloadable().pop() else {
        return;
    };
    let (_subject, serving) =
        python_under(directory.path(), &allocator, &[wrapper.to_str().unwrap()]);
    let sentence = prove(&serving, &allocator).unwrap_err().to_string();
    assert!(sentence.starts_with("allocator not in use"), "{sentence}");
    assert!(
        sentence.contains("environment lost LD_PRELOAD"),
        "{sentence}"
    );
}

/// Goal: a static program and one with its own malloc are told apart from a working preload.
#[test]
fn static_and_own_malloc_programs_are_caught() {
    let directory = tempfile::tempdir().unwrap();
    let Some(allocator) = preloadable().pop() else {
        return;
    };
    let reason = |program: &str| {
        let mut spec = spec(directory.path(), &[program]);
        spec.preload.extend(allocator.library.clone());
        let subject = start(&spec);
        let exe = format!("/proc/{}/exe", subject.pid());
        let started = || fs::read_link(&exe).is_ok_and(|target| target == Path::new(program));
        eventually("exec", started);
        let log = || fs::read_to_string(&spec.log).is_ok_and(|text| text.contains("up"));
        eventually("the program's main", log);
        let result = prove(&[subject.pid()], &allocator);
        fs::remove_file(&spec.log).expect("log");
        result.map_err(|error| error.to_string())
    };
    let wait = "#include <unistd.h>\nint main(void) { write(1, \"up\\n\", 3); pause(); return 0; }";
    let dynamic = compile_c(directory.path(), "dynamic", wait, &[]);
    assert!(reason(&dynamic).is_ok());
    let fixed = compile_c(directory.path(), "static", wait, &["-static"]);
    let sentence = reason(&fixed).unwrap_err();
    assert!(sentence.contains("statically linked"), "{sentence}");
    let own = "#include <stddef.h>\n#include <unistd.h>\n\
        static char memory[1 << 20]; static size_t used;\n\
        void *malloc(size_t n) { void *p = memory + used; used += (n + 15) & ~15UL; return p; }\n\
        void free(void *p) { (void)p; }\n\
        int main(void) { write(1, \"up\\n\", 3); pause(); return malloc(1) == NULL; }";
    let own = compile_c(directory.path(), "own", own, &["-rdynamic"]);
    let sentence = reason(&own).unwrap_err();
    assert!(sentence.contains("defines malloc itself"), "{sentence}");
}

/// Goal: Debian's redis brings jemalloc along; the baseline must not be called glibc.
#[test]
fn native_allocator_of_redis_is_named() {
    if !has_program("redis-server") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let redis = redis_server(address);
    let words: Vec<&str> = redis.iter().map(String::as_str).collect();
    let mut subject = start(&spec(directory.path(), &words));
    eventually("redis listens", || probe(address).address_taken());
    subject.ensure_alive().unwrap();
    let serving = subject.serving(address.port());
    let plain = Allocator::native("glibc");
    assert_eq!(
        prove(&serving, &plain).unwrap().native.as_deref(),
        Some("jemalloc")
    );
}

const KNOWN_PROGRAM: &str = "\
#include <pthread.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
static void *work(void *rounds) {\n\
  for (long i = 0; i < (long)rounds; i++) {\n\
    void *a = malloc(100); a = realloc(a, 200); void *b = calloc(10, 10); void *c;\n\
    posix_memalign(&c, 64, 64); void *d = aligned_alloc(64, 128); void *e = reallocarray(0, 4, 25);\n\
    free(a); free(b); free(c); free(d); free(e); free(0);\n\
  }\n  return 0;\n}\n\
int main(int count, char **words) {\n\
  long rounds = count > 1 ? atol(words[1]) : 0; pthread_t threads[3];\n\
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, (void *)rounds);\n\
  for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);\n\
  if (fork() == 0) { work((void *)rounds); kill(getpid(), 9); }\n\
  wait(0); return 0;\n}\n";

/// Goal: the counts are exact, in threads, over a fork, in front of every allocator, and survive
/// SIGKILL. A run of one round gives what the program, and the allocator for each of its threads,
/// need to start.
#[test]
fn heap_calls_are_exact() {
    let directory = tempfile::tempdir().unwrap();
    let source = format!("#define _GNU_SOURCE\n#include <signal.h>\n{KNOWN_PROGRAM}");
    let program = compile_c(directory.path(), "known", &source, &["-pthread"]);
    for allocator in allocator::discover() {
        let name = &allocator.name;
        let count = |rounds: &str| {
            let trace = Trace::create(directory.path()).expect("trace");
            let mut spec = spec(directory.path(), &[&program, rounds]);
            spec.preload.push(trace.object().to_owned());
            spec.preload.extend(allocator.library.clone());
            let variable = (
                millpond_lab::trace::PATH_VARIABLE.into(),
                trace.counters().into(),
            );
            spec.environment.push(variable);
            let mut subject = start(&spec);
            eventually("its end", || subject.ensure_alive().is_err());
            trace.read().expect("counters")
        };
        let (one, more) = (count("1"), count("1001"));
        let difference = more - one;
        assert_eq!(one.processes, 1, "{name}");
        assert_eq!(difference.allocations, 4 * 5 * 1000, "{name}");
        assert_eq!(difference.reallocations, 4 * 1000, "{name}");
        assert_eq!(difference.frees, 4 * 5 * 1000, "{name}");
        let bytes = 100 + 200 + 100 + 64 + 128 + 100;
        assert_eq!(difference.requested_bytes, 4 * bytes * 1000, "{name}");
    }
}

/// Goal: C++ is counted the same under allocators that export operator new themselves.
#[test]
fn cpp_allocations_do_not_pass_by() {
    let directory = tempfile::tempdir().unwrap();
    let source = "#include <memory>\n#include <cstdlib>\n\
        int main(int, char **words) {\n  for (long i = 0; i < atol(words[1]); i++) {\n\
          int *volatile a = new int; int *volatile b = new int[10]; delete a; delete[] b;\n  }\n}\n";
    let (file, program) = (
        directory.path().join("known.cc"),
        directory.path().join("known"),
    );
    fs::write(&file, source).unwrap();
    let compiled = Command::new("c++")
        .args(["-O0", "-o"])
        .arg(&program)
        .arg(&file)
        .status();
    assert!(compiled.unwrap().success());
    for allocator in allocator::discover() {
        let name = &allocator.name;
        let count = |rounds: &str| {
            let trace = Trace::create(directory.path()).expect("trace");
            let mut spec = spec(directory.path(), &[program.to_str().expect("path"), rounds]);
            spec.preload.push(trace.object().to_owned());
            spec.preload.extend(allocator.library.clone());
            let variable = (
                millpond_lab::trace::PATH_VARIABLE.into(),
                trace.counters().into(),
            );
            spec.environment.push(variable);
            let mut subject = start(&spec);
            eventually("its end", || subject.ensure_alive().is_err());
            trace.read().expect("counters")
        };
        let difference = count("500") - count("0");
        assert_eq!(
            (difference.allocations, difference.frees),
            (1000, 1000),
            "{name}"
        );
        assert_eq!(difference.requested_bytes, 500 * 44, "{name}");
    }
}

//! Is the allocator really there? Proof with real targets, and every known way to be deceived.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::common::{
    eventually, free_address, has_program, is_taken, preloadable, probe, put_under, python_server,
    redis_server, spec, start,
};
use millpond_lab::allocator::{self, Allocator};
use millpond_lab::presence::{Presence, PresenceError, prove};
use millpond_lab::subject::Subject;
use millpond_lab::trace::Trace;

/// Only a hang takes so long.
const BOUND: Duration = Duration::from_secs(300);
static RUNNING: AtomicBool = AtomicBool::new(false);

pub(crate) fn compile_c(directory: &Path, name: &str, source: &str, flags: &[&str]) -> String {
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
    put_under(&mut spec, allocator);
    let mut subject = start(&spec);
    subject
        .wait_ready(&probe(address), BOUND, &RUNNING)
        .unwrap_or_else(|error| panic!("{}: {error:?}", allocator.name));
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

/// Goal: a wrapper that drops the variable is caught, since the process that serves is checked.
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

/// Goal: a static program and one with its own malloc are distinguished from a working preload.
#[test]
fn static_and_own_malloc_programs_are_caught() {
    let directory = tempfile::tempdir().unwrap();
    let Some(allocator) = preloadable().pop() else {
        return;
    };
    let reason = |program: &str| {
        let mut spec = spec(directory.path(), &[program]);
        put_under(&mut spec, &allocator);
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

/// Goal: an object that finds its malloc elsewhere, as a plugin loaded with its own scope does, is
/// caught though the library is mapped and the program itself uses it.
#[test]
fn an_object_that_calls_elsewhere_is_caught() {
    let directory = tempfile::tempdir().unwrap();
    let Some(allocator) = preloadable().pop() else {
        return;
    };
    let plugin = "#include <stdlib.h>\nvoid *take(void) { return malloc(10); }\n";
    let plugin = compile_c(
        directory.path(),
        "plugin.so",
        plugin,
        &["-shared", "-fPIC", "-Wl,-z,now"],
    );
    let program = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <unistd.h>\n\
        int main(int n, char **words) {\n\
          if (!dlopen(words[1], RTLD_NOW | (n > 2 ? RTLD_DEEPBIND : 0))) return 1;\n\
          write(1, \"up\\n\", 3); pause(); return 0; }";
    let program = compile_c(directory.path(), "program", program, &[]);
    let result = |words: &[&str]| {
        let mut spec = spec(directory.path(), words);
        put_under(&mut spec, &allocator);
        let subject = start(&spec);
        eventually("the plugin", || {
            fs::read_to_string(&spec.log).is_ok_and(|text| text.contains("up"))
        });
        let result = prove(&[subject.pid()], &allocator);
        fs::remove_file(&spec.log).expect("log");
        result.map_err(|error| error.to_string())
    };
    assert!(result(&[&program, &plugin]).is_ok());
    let sentence = result(&[&program, &plugin, "deep"]).unwrap_err();
    assert!(sentence.contains("plugin.so calls malloc of"), "{sentence}");
    assert!(sentence.contains("libc"), "{sentence}");
}

/// Goal: a program at a fixed address that takes malloc's address (as Debian's python does) is proved,
/// though the other objects' calls pass through it.
#[test]
fn a_program_at_a_fixed_address_is_proved() {
    let directory = tempfile::tempdir().unwrap();
    let Some(allocator) = preloadable().pop() else {
        return;
    };
    let program = "#include <stdlib.h>\n#include <unistd.h>\n\
        void *(*take)(size_t) = malloc;\n\
        int main(void) { void *p = take(10); p = realloc(p, 20); free(p); free(malloc(1));\n\
          write(1, \"up\\n\", 3); pause(); return 0; }";
    let flags = ["-no-pie", "-fno-pic"];
    let program = compile_c(directory.path(), "fixed", program, &flags);
    let mut spec = spec(directory.path(), &[&program]);
    put_under(&mut spec, &allocator);
    let subject = start(&spec);
    eventually("the program's main", || {
        fs::read_to_string(&spec.log).is_ok_and(|text| text.contains("up"))
    });
    let presence = prove(&[subject.pid()], &allocator).unwrap();
    assert_eq!(presence.native, None);
}

/// Goal: settings are proved where they were given, also in nginx, whose title is written over its
/// environment, and in its worker, which drops it; one that never arrived is caught, and so are
/// settings of a malloc that the program does not use.
#[test]
fn settings_are_proved() {
    let words = ["glibc:arena_max=1".to_owned()];
    let tuned = allocator::select_with_settings(&words).unwrap().remove(0);
    let directory = tempfile::tempdir().unwrap();
    let serving = |words: &[String], is_given: bool| {
        let address = free_address();
        let words: Vec<String> = words
            .iter()
            .map(|word| word.replace("PORT", &address.port().to_string()))
            .collect();
        let conf = directory.path().join("nginx.conf");
        let text = format!(
            "worker_processes 1; pid {0}/pid; error_log {0}/error.log; daemon off; events {{ }}\n\
             http {{ access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p;\n\
             fastcgi_temp_path {0}/f; uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;\n\
             server {{ listen {address}; location / {{ return 200 'hello'; }} }} }}\n",
            directory.path().display()
        );
        fs::write(&conf, text).expect("write");
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut spec = spec(directory.path(), &words);
        if is_given {
            spec.environment.extend(tuned.variables());
        }
        let subject = start(&spec);
        eventually("it listens", || is_taken(address));
        let pids = subject.serving(address.port());
        (
            prove(&pids, &tuned).map_err(|error| error.to_string()),
            subject,
        )
    };
    let conf = directory.path().join("nginx.conf").display().to_string();
    let nginx = ["nginx", "-c", &conf].map(str::to_owned);
    if has_program("nginx") {
        assert_eq!(
            serving(&nginx, true).0.map(|presence| presence.native),
            Ok(None)
        );
        let sentence = serving(&nginx, false).0.unwrap_err();
        assert!(sentence.starts_with("setting not in force"), "{sentence}");
        assert!(sentence.contains("glibc.malloc.arena_max=1"), "{sentence}");
    }
    if has_program("redis-server") {
        let redis = ["redis-server", "--port", "PORT", "--save", ""].map(str::to_owned);
        let sentence = serving(&redis, true).0.unwrap_err();
        assert!(sentence.contains("brings jemalloc along"), "{sentence}");
    }
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
    eventually("redis listens", || is_taken(address));
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
static pthread_barrier_t together;\n\
/* All at once: a thread that begins when another has ended gets its stack, and allocates less. */\n\
static void *thread(void *rounds) { pthread_barrier_wait(&together); return work(rounds); }\n\
int main(int count, char **words) {\n\
  long rounds = count > 1 ? atol(words[1]) : 0; pthread_t threads[3];\n\
  pthread_barrier_init(&together, 0, 3);\n\
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, thread, (void *)rounds);\n\
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
            put_under(&mut spec, &allocator);
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
        let is_about = |found, expected| is_about(name, found, expected);
        is_about(difference.allocations, 4 * 5 * 1000);
        is_about(difference.reallocations, 4 * 1000);
        is_about(difference.frees, 4 * 5 * 1000);
        let bytes = 4 * 1000 * (100 + 200 + 100 + 64 + 128 + 100);
        let spare_bytes = spare_calls(name) * 4096;
        let found = difference.requested_bytes;
        assert!(
            (bytes..=bytes + spare_bytes).contains(&found),
            "{name}: {found}"
        );
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
            put_under(&mut spec, &allocator);
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
        let is_about = |found, expected| is_about(name, found, expected);
        is_about(difference.allocations, 1000);
        is_about(difference.frees, 1000);
        let spare_bytes = spare_calls(name) * 4096;
        let bytes = difference.requested_bytes;
        assert!(
            (500 * 44..=500 * 44 + spare_bytes).contains(&bytes),
            "{name}: {bytes}"
        );
    }
}

/// Under scudo a call more was seen now and then, from outside what was counted.
fn spare_calls(allocator: &str) -> u64 {
    if allocator == "scudo" { 4 } else { 0 }
}

fn is_about(allocator: &str, found: u64, expected: u64) {
    assert!(
        (expected..=expected + spare_calls(allocator)).contains(&found),
        "{allocator}: {found} instead of {expected}"
    );
}

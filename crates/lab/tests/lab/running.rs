//! `doctor --pid` on real processes: each allocator, each way to miss one, and the C library's own figures as the oracle.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use millpond_lab::allocator;
use millpond_lab::doctor::{Finding, FindingState, Origin, Running, RunningError, examine_process};

use crate::common::{eventually, preloadable};
use crate::presence::compile_c;

const ARENAS: &str = include_str!("arenas.c");
const OWN_MALLOC: &str = "#include <stddef.h>\n#include <string.h>\n\
    static char pool[1 << 24]; static size_t used;\n\
    void *malloc(size_t n) { void *p = pool + used; used += (n + 31) & ~(size_t)15; return p; }\n\
    void free(void *p) { (void)p; }\n\
    void *calloc(size_t n, size_t m) { return malloc(n * m); }\n\
    void *realloc(void *p, size_t n) { void *q = malloc(n); if (p) memcpy(q, p, n); return q; }\n";

/// A process that ends with this value.
struct Program(Child);

impl Program {
    /// Runs until its stdin ends, and has said that it is there.
    fn start(command: &mut Command) -> Self {
        // The shell's settings of allocators are no part of the test.
        for name in [
            "LD_PRELOAD",
            "MALLOC_CONF",
            "MALLOC_ARENA_MAX",
            "GLIBC_TUNABLES",
        ] {
            if command.get_envs().all(|(own, _)| own != name) {
                command.env_remove(name);
            }
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("spawn");
        let mut line = String::new();
        let out = child.stdout.take().expect("stdout");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let program = Self(child);
        assert_eq!(line, "up\n");
        program
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).expect("a pid")
    }

    fn examine(&self) -> Running {
        examine_process(self.pid()).expect("it runs")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn finding<'a>(running: &'a Running, name: &str) -> &'a Finding {
    let mut all = running.findings.iter();
    all.find(|one| one.name == name)
        .unwrap_or_else(|| panic!("{name}: {running:?}"))
}

/// The output of `malloc_stats`: system bytes of each arena, and of all with mapped blocks.
fn oracle(text: &str) -> (Vec<u64>, u64) {
    let numbers = text
        .lines()
        .filter_map(|line| line.strip_prefix("system bytes"));
    let mut numbers: Vec<u64> = numbers
        .map(|rest| {
            rest.trim_start_matches([' ', '='])
                .parse()
                .expect("a number")
        })
        .collect();
    let all = numbers.pop().expect("a total");
    numbers.sort_unstable();
    (numbers, all)
}

/// Goal: the arenas of a running process, and what they have from the system, are those that the C library itself
/// reports; linked statically too, and with heaps of more than one piece.
#[test]
fn arenas_are_those_of_malloc_stats() {
    let directory = tempfile::tempdir().unwrap();
    let stats = directory.path().join("stats");
    for (name, flags, threads, blocks) in [
        ("alone", &["-pthread"][..], 0, 0),
        ("threads", &["-pthread"][..], 3, 30),
        ("static", &["-pthread", "-static"][..], 2, 30),
        // Each more than the 64 MiB of one heap.
        ("large", &["-pthread"][..], 2, 900),
    ] {
        let program = compile_c(directory.path(), name, ARENAS, flags);
        let file = File::create(&stats).unwrap();
        let mut command = Command::new(program);
        let words = [threads, blocks].map(|number: u64| number.to_string());
        let program = Program::start(command.args(words).stderr(file));
        let running = program.examine();
        let heap = running
            .glibc_heap
            .as_ref()
            .unwrap_or_else(|| panic!("{name}: {running:?}"));
        let (expected, all) = oracle(&fs::read_to_string(&stats).unwrap());
        let mut found: Vec<u64> = heap.arenas.iter().map(|arena| arena.system_bytes).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{name}");
        assert_eq!(heap.system_bytes(), all, "{name}: {heap:?}");
        let mapped = heap.mapped.unwrap();
        assert_eq!(
            (mapped.count, mapped.bytes),
            (1, (1 << 20) + 4096),
            "{name}"
        );
        assert_eq!(heap.arenas.len() as u64, threads + 1, "{name}");
        let held: u64 = found.iter().sum();
        assert!(held >= threads * blocks * 100_000, "{name}: {heap:?}");
        assert!(held <= running.memory.anonymous_reserved_bytes, "{name}");
        assert!(heap.free_at_end_bytes() <= held, "{name}");
        assert_eq!(running.memory.sample.threads, threads + 1);
    }
}

/// Goal: each installed allocator is recognised by its name and as preloaded, with its part of the headline; without
/// one it is the C library's.
#[test]
fn each_allocator_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile_c(directory.path(), "plain", ARENAS, &["-pthread"]);
    for one in allocator::discover() {
        let mut command = Command::new(&program);
        command.envs(one.variables()).stderr(Stdio::null());
        if let Some(library) = &one.library {
            command.env("LD_PRELOAD", library);
        }
        let running = Program::start(&mut command).examine();
        let serving = running.allocator.as_ref().unwrap();
        let [served] = &serving.served[..] else {
            panic!("{}: {serving:?}", one.name)
        };
        let origin = match one.library {
            Some(_) => Origin::Preloaded,
            None => Origin::CLibrary,
        };
        assert_eq!(served.origin, origin, "{}: {served:?}", one.name);
        let known = [
            "glibc", "jemalloc", "tcmalloc", "mimalloc", "tbb", "mempool",
        ];
        if known.contains(&one.name.as_str()) {
            assert_eq!(served.name, one.name, "{served:?}");
            assert!(running.headline().contains(&format!("{} ", one.name)));
        }
        assert_eq!(running.glibc_heap.is_some(), one.library.is_none());
        assert_eq!(serving.fault(), None, "{}: {serving:?}", one.name);
        assert_eq!(finding(&running, "malloc").state, FindingState::Ok);
    }
}

/// Goal: an allocator that is present but unused is reported so in the first lines: linked behind the C library,
/// preloaded into a static program or into one that has its own malloc, or under a name that does not exist.
#[test]
fn an_allocator_that_is_not_in_use_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let Some(library) = preloadable().pop().and_then(|one| one.library) else {
        return;
    };
    let path = library.to_str().unwrap();
    let compile =
        |name, source: &str, flags: &[&str]| compile_c(directory.path(), name, source, flags);
    let behind = ["-pthread", "-Wl,--no-as-needed", "-lc", path];
    let linked = compile("linked", ARENAS, &behind);
    let fixed = compile("fixed", ARENAS, &["-pthread", "-static"]);
    let plain = compile("plain", ARENAS, &["-pthread"]);
    let own = format!("{OWN_MALLOC}{}", ARENAS.replace("malloc_stats();", ""));
    let own = compile("own", &own, &["-pthread", "-rdynamic"]);
    let nowhere = "/nowhere/libjemalloc.so.2";
    for (program, preload, name, part, server) in [
        (
            &linked,
            "",
            "not called",
            "is mapped, but its malloc is NOT called",
            "glibc",
        ),
        (&fixed, path, "not loaded", "statically linked", "glibc"),
        (
            &own,
            path,
            "not called",
            "defines malloc itself",
            "the program's own malloc",
        ),
        (&plain, nowhere, "not loaded", "no such file", "glibc"),
    ] {
        let mut command = Command::new(program);
        if !preload.is_empty() {
            command.env("LD_PRELOAD", preload);
        }
        let running = Program::start(command.stderr(Stdio::null())).examine();
        let found = finding(&running, name);
        assert_eq!(found.state, FindingState::Weak);
        assert!(found.found.contains(part), "{found:?}");
        assert_eq!(running.allocator.as_ref().unwrap().served[0].name, server);
        let headline = running.headline();
        assert!(headline.contains("NOT in use: "), "{headline}");
    }
}

/// Goal: a library that was removed since the start is reported as the old one.
#[test]
fn a_replaced_library_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let Some(library) = preloadable().pop().and_then(|one| one.library) else {
        return;
    };
    let copy = directory.path().join(library.file_name().unwrap());
    fs::copy(&library, &copy).unwrap();
    let program = compile_c(directory.path(), "plain", ARENAS, &["-pthread"]);
    let mut command = Command::new(program);
    let program = Program::start(command.env("LD_PRELOAD", &copy).stderr(Stdio::null()));
    assert!(!program.examine().allocator.unwrap().served[0].is_replaced);
    fs::remove_file(&copy).unwrap();
    let running = program.examine();
    let serving = running.allocator.as_ref().unwrap();
    assert!(serving.served[0].is_replaced, "{serving:?}");
    assert_eq!(finding(&running, "replaced").state, FindingState::Weak);
    assert!(serving.not_loaded.is_empty(), "{serving:?}");
}

/// Goal: settings are distinguished from those that another allocator reads, that are misspelt, or that none reads; the
/// C library's are read from its memory.
#[test]
fn settings_are_told_with_their_effect() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile_c(directory.path(), "plain", ARENAS, &["-pthread"]);
    let mut command = Command::new(program);
    command
        .env(
            "GLIBC_TUNABLES",
            "glibc.malloc.arena_max=3:glibc.malloc.arenas_max=4:glibc.pthread.rseq=1",
        )
        .env("MALLOC_TRIM_THRESHOLD", "4096")
        .env("MALLOC_MMAP_THRESHOLD_", "200000")
        .env("MALLOC_CONF", "narenas:2")
        .stderr(Stdio::null());
    let running = Program::start(&mut command).examine();
    let told = |value: &str| {
        let mut all = running.settings.iter();
        let one = all.find(|one| one.value.ends_with(value));
        let one = one.unwrap_or_else(|| panic!("{value}: {:?}", running.settings));
        (one.is_read, one.complaint.clone().unwrap_or_default())
    };
    assert_eq!(told("arena_max=3"), (true, String::new()));
    assert_eq!(told("200000"), (true, String::new()));
    let (_, misspelt) = told("arenas_max=4");
    assert!(misspelt.contains("has no tunable"), "{misspelt}");
    let (is_read, underscore) = told("4096");
    assert!(!is_read && underscore.contains("MALLOC_TRIM_THRESHOLD_"));
    let (is_read, others) = told("narenas:2");
    assert!(!is_read && others.contains("jemalloc reads it"), "{others}");
    assert_eq!(running.settings.len(), 5, "{:?}", running.settings);
    let parameters = running.glibc_heap.unwrap().parameters.unwrap();
    assert_eq!(
        (
            parameters.arena_max,
            parameters.mmap_threshold,
            parameters.thresholds_move
        ),
        (3, 200_000, false)
    );
}

/// Goal: where jemalloc serves, its settings are its own, and it reports an unknown one itself.
#[test]
fn settings_of_jemalloc_are_asked() {
    let all = allocator::discover();
    let Some(jemalloc) = all.iter().find(|one| one.name == "jemalloc") else {
        eprintln!("skipped: jemalloc is not installed");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let program = compile_c(directory.path(), "plain", ARENAS, &["-pthread"]);
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", jemalloc.library.as_ref().unwrap())
        .env("MALLOC_CONF", "narenas:2,dirty_decay:0")
        .env("_RJEM_MALLOC_CONF", "narenas:3")
        .env("MALLOC_ARENA_MAX", "2")
        .stderr(Stdio::null());
    let running = Program::start(&mut command).examine();
    let told = |value: &str| {
        let mut all = running.settings.iter();
        let one = all.find(|one| one.value == value).unwrap();
        (one.is_read, one.complaint.clone().unwrap_or_default())
    };
    assert_eq!(told("narenas:2"), (true, String::new()));
    assert!(told("dirty_decay:0").1.contains("Invalid conf pair"));
    assert!(told("narenas:3").1.contains("reads MALLOC_CONF"));
    assert!(told("2").1.contains("glibc reads it"));
}

/// Goal: a target without malloc is reported as what it is: no process, a zombie, a thread, the kernel's.
#[test]
fn what_is_no_process_is_told() {
    let error = |pid| examine_process(pid).unwrap_err();
    assert!(matches!(error(i32::MAX), RunningError::None { .. }));
    let mut child = Command::new("true").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let stat = format!("/proc/{pid}/stat");
    eventually("a zombie", || {
        fs::read_to_string(&stat).is_ok_and(|text| text.contains(") Z "))
    });
    let zombie = error(pid);
    child.wait().unwrap();
    assert!(matches!(zombie, RunningError::Zombie { .. }), "{zombie}");
    let directory = tempfile::tempdir().unwrap();
    let program = compile_c(directory.path(), "plain", ARENAS, &["-pthread"]);
    let mut command = Command::new(program);
    let program = Program::start(command.args(["1", "1"]).stderr(Stdio::null()));
    let process = program.pid();
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let thread = threads
        .filter_map(|one| one.unwrap().file_name().to_str()?.parse().ok())
        .find(|one| *one != process)
        .unwrap();
    let expected = RunningError::Thread {
        pid: thread,
        process,
    };
    assert_eq!(error(thread), expected);
    // In a container the kernel's threads are not seen.
    if Path::new("/proc/2/comm").exists()
        && fs::read_to_string("/proc/2/comm").unwrap() == "kthreadd\n"
    {
        assert!(matches!(error(2), RunningError::Kernel { .. }));
    }
}

//! Candidates beyond an allocator, and their measurement: variables of the shell, settings without effect, other
//! environments and other commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond_lab::allocator::{self, MEMPOOL};
use millpond_lab::{CompareConfig, Inherited, LabEvent, Variant, compare};
use millpond_measure::record::{
    CandidateRounds, ComparisonRecord, Measure, Operation, Quantity, Role, SettingEffect,
};

use crate::common::{free_address, has_program, is_here, short_comparison};

/// Says what it was started with, and serves; with a second word it serves in a child.
const SERVER: &str = "import http.server, os, sys\n\
    for name in sorted(os.environ):\n\
    \x20   print(name + '=' + os.environ[name], flush=True)\n\
    class Handler(http.server.BaseHTTPRequestHandler):\n\
    \x20   protocol_version = 'HTTP/1.1'\n\
    \x20   def log_message(self, *words): pass\n\
    \x20   def do_GET(self):\n\
    \x20       body = b','.join(str(number).encode() for number in range(200))\n\
    \x20       self.send_response(200)\n\
    \x20       self.send_header('Content-Length', str(len(body)))\n\
    \x20       self.end_headers()\n\
    \x20       self.wfile.write(body)\n\
    server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler)\n\
    if len(sys.argv) > 2 and os.fork():\n\
    \x20   os.wait()\n\
    server.serve_forever()\n";

fn server(directory: &Path) -> PathBuf {
    let file = directory.join("server.py");
    fs::write(&file, SERVER).expect("write");
    file
}

fn config(directory: &Path, allocators: &[&str]) -> CompareConfig {
    let file = server(directory).display().to_string();
    let words = ["/usr/bin/env", "python3", &file, "{port}"].map(str::to_owned);
    let allocators = allocators.iter().map(|name| (*name).to_owned()).collect();
    short_comparison(directory, &words, free_address(), allocators)
}

fn log(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join("report/logs").join(name)).expect("log")
}

fn named<'a>(record: &'a ComparisonRecord, name: &str) -> &'a CandidateRounds {
    let mut candidates = record.candidates.iter();
    candidates.find(|one| one.name == name).expect(name)
}

/// The notes of a comparison that `until` ends.
fn notes(config: &CompareConfig, until: impl Fn(&LabEvent) -> bool, stopped: bool) -> Vec<String> {
    let stop = AtomicBool::new(stopped);
    let mut notes = Vec::new();
    let result = compare(
        config,
        &mut |event| {
            if let LabEvent::Note(line) = event {
                notes.push(line.clone());
            }
            if until(event) {
                stop.store(true, Ordering::Relaxed);
            }
        },
        &stop,
    );
    drop(result);
    notes
}

/// Set in the process of its own that a test needs for its environment; the value says what is asked.
const INSIDE: &str = "MILLPOND_TEST_INSIDE";

/// Goal: the shell's settings of allocators reach no candidate unless the user requests it, then every one, behind the
/// candidate's own library; the record and a line say which. A runtime's switch and the user's own word stay.
#[test]
fn variables_of_the_shell_are_dropped_or_kept() {
    if !has_program("python3") || !has_program("cc") {
        return;
    }
    if let Some(keep) = std::env::var_os(INSIDE) {
        return variables_inside(keep == "keep");
    }
    let directory = tempfile::tempdir().unwrap();
    let (source, object) = (
        directory.path().join("a.c"),
        directory.path().join("mark.so"),
    );
    fs::write(&source, "int millpond_test_mark = 1;\n").unwrap();
    let mut compiler = Command::new("cc");
    let compiled = compiler
        .args(["-shared", "-fPIC", "-o"])
        .arg(&object)
        .arg(&source);
    assert!(compiled.status().unwrap().success());
    for keep in ["keep", "drop"] {
        let mut inside = Command::new(std::env::current_exe().unwrap());
        let finished = inside
            .args([
                "--exact",
                "candidates::variables_of_the_shell_are_dropped_or_kept",
            ])
            .env(INSIDE, keep)
            .env("MALLOC_ARENA_MAX", "1")
            .env("_RJEM_MALLOC_CONF", "narenas:1")
            .env("LD_PRELOAD", &object)
            .env("PYTHONMALLOC", "malloc")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&finished.stdout);
        assert!(finished.status.success(), "{keep}: {said}");
        assert!(said.contains("1 passed"), "{said}");
    }
}

fn variables_inside(keep: bool) {
    let directory = tempfile::tempdir().expect("found");
    let mut config = config(directory.path(), &["glibc", MEMPOOL]);
    config.options.inherited = Inherited::of_this_process(keep);
    config.options.environment = vec![("MALLOC_TOP_PAD_".into(), "4096".into())];
    let outcome = compare(&config, &mut |_| {}, &AtomicBool::new(false)).expect("found");
    let record = &outcome.record;
    let found = record
        .environment
        .inherited_variables
        .as_ref()
        .expect("found");
    assert_eq!((found.kept, found.allocator.len()), (keep, 3), "{found:?}");
    assert!(found.allocator.contains(&"MALLOC_ARENA_MAX=1".to_owned()));
    assert_eq!(found.runtime, ["PYTHONMALLOC=malloc"]);
    let verb = if keep {
        "are part of every candidate"
    } else {
        "are dropped"
    };
    let mut warnings = record.analysis.warnings.iter();
    assert!(warnings.any(|line| line.contains("MALLOC_ARENA_MAX=1") && line.contains(verb)));
    for name in ["glibc", MEMPOOL] {
        let started = log(directory.path(), &format!("{name}-preflight.log"));
        let line = |start: &str| started.lines().find(|line| line.starts_with(start));
        assert_eq!(line("MALLOC_ARENA_MAX=").is_some(), keep, "{started}");
        assert_eq!(line("_RJEM_MALLOC_CONF=").is_some(), keep, "{started}");
        assert_eq!(line("PYTHONMALLOC="), Some("PYTHONMALLOC=malloc"));
        assert_eq!(line("MALLOC_TOP_PAD_="), Some("MALLOC_TOP_PAD_=4096"));
        let preload = line("LD_PRELOAD=").unwrap_or_default();
        assert_eq!(preload.ends_with("/mark.so"), keep, "{preload}");
        let is_ours_first = preload.starts_with("LD_PRELOAD=/") && preload.contains("mempool.so");
        assert_eq!(is_ours_first, name == MEMPOOL, "{preload}");
    }
    assert!(
        record
            .environment
            .c_library
            .as_ref()
            .is_some_and(|it| it.starts_with("2."))
    );
    let shown = fs::read_to_string(&outcome.report).expect("found");
    assert!(shown.contains("allocator variables of the shell") && shown.contains("page size"));
}

/// Goal: another environment and another command are candidates with rows, verdicts and their own name for what
/// they are; crossed, an allocator is proved in them as in any.
#[test]
fn environments_and_commands_are_candidates() {
    if !has_program("python3") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), &["glibc", MEMPOOL]);
    let file = server(directory.path()).display().to_string();
    let other = format!("other=command:/usr/bin/env KIND=other python3 '{file}' {{port}}");
    config.variants = ["py=env:PYTHONMALLOC=malloc,NOTE=a,b", &other]
        .map(|text| Variant::parse(text).unwrap())
        .to_vec();
    config.is_crossed = true;
    let outcome = compare(&config, &mut |_| {}, &AtomicBool::new(false)).unwrap();
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let record = &outcome.record;
    let names: Vec<&str> = record
        .candidates
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "glibc",
            "glibc (again)",
            MEMPOOL,
            "py",
            "py + mempool",
            "other",
            "other + mempool"
        ]
    );
    let py = named(record, "py");
    assert_eq!(py.environment, ["PYTHONMALLOC=malloc", "NOTE=a,b"]);
    assert_eq!(
        (py.library.as_ref(), py.allocator_version.as_ref()),
        (None, None)
    );
    // Every object of Python's is malloc's then.
    let heap_calls = |name: &str| {
        let calls = Measure::of(Operation::Request, Quantity::HeapCalls);
        named(record, name).values(calls).first().copied().unwrap()
    };
    assert!(heap_calls("py") > 3.0 * heap_calls("glibc"));
    let other = named(record, "other");
    assert_eq!(other.command[1], "KIND=other");
    assert!(other.describe().starts_with("runs /usr/bin/env KIND=other"));
    assert!(log(directory.path(), "other-preflight.log").contains("KIND=other\n"));
    assert!(log(directory.path(), "other-mempool-preflight.log").contains("mempool.so\n"));
    assert!(named(record, "other + mempool").library.is_some());
    assert!(named(record, "glibc").allocator_version.is_some());
    let judged = &record.analysis.verdicts.memory.comparisons;
    for name in ["py", "py + mempool", "other", "other + mempool"] {
        assert_eq!(named(record, name).rounds.len(), 2);
        assert!(judged.iter().any(|one| one.candidate == name), "{name}");
    }
}

/// Goal: a command candidate that does not start is left out with its reason, and the others are compared.
#[test]
fn a_command_that_ends_is_left_out() {
    if !has_program("python3") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), &["glibc", MEMPOOL]);
    let broken = "broken=command:sh -c 'echo no luck; exit 3' {port}";
    config.variants = vec![Variant::parse(broken).unwrap()];
    let notes = notes(
        &config,
        |event| matches!(event, LabEvent::Planned { .. }),
        false,
    );
    let told = notes
        .iter()
        .find(|line| line.starts_with("broken is left out"));
    assert!(
        told.is_some_and(|line| line.contains("no luck")),
        "{notes:?}"
    );
}

/// Goal: a threshold that the C library passes over, as a whole or in the arenas of threads, is said to have no
/// effect there, one that it takes is not; and so are bounds that its list of tunables does not have.
#[test]
fn settings_without_effect_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let words = [
        "glibc",
        "glibc:mmap_threshold=134217728",
        "glibc:mmap_threshold=1048576",
        "glibc:MALLOC_MMAP_THRESHOLD_=65536",
        "glibc:tcache_count=70000",
        "glibc:arena_max=2",
    ];
    let notes = notes(&config(directory.path(), &words), |_| false, true);
    let about = |name: &str| {
        let start = format!("glibc:{name}: ");
        notes.iter().find(|line| line.starts_with(&start))
    };
    let minor = minor_version_of_the_c_library();
    let ignored = about("mmap_threshold=134217728").expect("said");
    let holds = match minor {
        Some(minor) if minor < 35 => "takes at most 33554432",
        _ => "beyond 67108864 in threads other than the first",
    };
    assert!(ignored.contains("has no effect"), "{ignored}");
    assert!(ignored.contains(holds), "{ignored}");
    for name in ["mmap_threshold=1048576", "mmap_threshold=65536"] {
        let frozen = about(name).expect("said");
        assert!(frozen.contains("stops trim_threshold"), "{frozen}");
        assert!(!frozen.contains("has no effect"), "{frozen}");
    }
    assert_eq!(about("arena_max=2"), None);
    if minor.is_some_and(|minor| minor < 42) {
        let ignored = about("tcache_count=70000").expect("said");
        assert!(ignored.contains("at most 65535"), "{ignored}");
    }
}

/// `36` of version 2.36, as the program `ldd` says it.
fn minor_version_of_the_c_library() -> Option<u32> {
    let output = Command::new("ldd").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next()?.rsplit_once('.')?.1.parse().ok()
}

/// Goal: a value that an allocator clips is reported with the effective one, and a value that it takes is not.
#[test]
fn clipped_settings_are_told() {
    if !is_here("jemalloc") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let words = [
        "glibc",
        "jemalloc:tcache_max=1073741824",
        "jemalloc:narenas:2",
    ];
    let notes = notes(&config(directory.path(), &words), |_| false, true);
    let said = |start: &str| notes.iter().any(|line| line.starts_with(start));
    assert!(said("jemalloc:tcache_max=1073741824: "), "{notes:?}");
    assert!(!said("jemalloc:narenas=2: "), "{notes:?}");
}

/// Goal: background threads are searched for where requests are served: a forked child has none.
#[test]
fn background_threads_are_looked_for_in_those_that_serve() {
    if !has_program("python3") || !is_here("jemalloc") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let words = ["glibc", "jemalloc:background_thread=true"];
    let is_planned = |event: &LabEvent| matches!(event, LabEvent::Planned { .. });
    let about = |config: &CompareConfig| {
        let notes = notes(config, is_planned, false);
        let mut notes = notes.into_iter();
        notes.find(|line| line.contains("background_thread=true has no effect"))
    };
    let mut config = config(directory.path(), &words);
    assert_eq!(about(&config), None);
    if let millpond_lab::Target::Command { words, .. } = &mut config.target {
        words.push("forked".into());
    }
    let told = about(&config).expect("said");
    assert!(told.contains("in 1 of 2 processes that serve"), "{told}");
}

/// Goal: with --as-cpus the server is started with the arenas of so many CPUs, the record says so, and what it does
/// not show is a note.
#[test]
fn arenas_of_a_larger_machine_arrive_in_the_server() {
    if !has_program("python3") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), &["glibc", MEMPOOL]);
    config.as_cpus = Some(64);
    let notes = notes(
        &config,
        |event| matches!(event, LabEvent::Planned { .. }),
        false,
    );
    let has = |start: &str| notes.iter().any(|line| line.starts_with(start));
    assert!(has("--as-cpus 64: glibc gets arena_max=512"), "{notes:?}");
    assert!(has("--as-cpus 64 changes nothing in mempool"), "{notes:?}");
    assert!(has("--as-cpus 64 shows what"), "{notes:?}");
    let said = log(directory.path(), "glibc-preflight.log");
    assert!(
        said.contains("GLIBC_TUNABLES=glibc.malloc.arena_max=512\n"),
        "{said}"
    );
}

/// Goal: Google's tcmalloc is compared under its name only where it shows its caches per CPU, and is started with what
/// they need; an object that does not show them is refused.
#[test]
fn caches_per_cpu_are_proved() {
    let directory = tempfile::tempdir().unwrap();
    let object = allocator::select(&[MEMPOOL.to_owned()]).unwrap().remove(0);
    let word = format!(
        "tcmalloc_percpu={}",
        object.library.as_ref().unwrap().display()
    );
    let config_of = |words: &[&str]| config(directory.path(), words);
    let refused = compare(
        &config_of(&["glibc", &word]),
        &mut |_| {},
        &AtomicBool::new(true),
    );
    let sentence = refused.unwrap_err().to_string();
    assert!(
        sentence.contains("does not show here that it has its per-CPU caches"),
        "{sentence}"
    );
    if !is_here("tcmalloc_percpu") {
        return;
    }
    let config = config_of(&["glibc", "tcmalloc_percpu"]);
    let stop = AtomicBool::new(false);
    let outcome = compare(&config, &mut |_| {}, &stop).unwrap();
    let candidate = named(&outcome.record, "tcmalloc_percpu");
    let version = candidate.allocator_version.as_deref().unwrap_or_default();
    assert!(version.ends_with(", per-CPU caches active"), "{version}");
    assert_eq!(
        candidate.environment,
        ["GLIBC_TUNABLES=glibc.pthread.rseq=0"]
    );
}

/// Goal: settings of one allocator are compared with it as it is, on a real server: each reaches its processes and the
/// report, with its effect and an answer. Two rounds decide nothing, and nothing is claimed.
#[test]
#[ignore = "slow tier: a whole comparison of 18 candidates, two minutes"]
fn settings_of_an_allocator_are_compared() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), &[]);
    config.allocators = None;
    config.settings_of = Some("glibc".to_owned());
    let outcome = compare(&config, &mut |_| {}, &AtomicBool::new(false)).expect("a comparison");
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let record = &outcome.record;
    let default = &record.candidates[0];
    assert_eq!(
        (default.name.as_str(), default.role),
        ("glibc", Role::Baseline)
    );
    let two = named(record, "glibc:arena_max=2");
    assert_eq!(two.environment, ["GLIBC_TUNABLES=glibc.malloc.arena_max=2"]);
    let found = record.analysis.settings_front.as_ref().expect("settings");
    assert_eq!(found.settings.len(), record.candidates.len() - 1);
    assert!(found.settings.len() > 8 && found.settings.len() <= 17);
    assert_eq!(found.settings[0].effect, SettingEffect::Default);
    for one in &found.settings[1..] {
        let open = [SettingEffect::Undecided, SettingEffect::NotTrusted];
        assert!(open.contains(&one.effect), "{one:?}");
        assert!(!one.what_it_changes.is_empty() && one.memory.is_some() && one.cpu.is_some());
    }
    assert_eq!(found.front, ["glibc"]);
    let page = fs::read_to_string(&outcome.report).expect("page");
    assert!(page.contains("two arenas for all threads") && page.contains("Which setting"));
}

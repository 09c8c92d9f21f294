//! Servers that compile while they run: node and Java, compared and profiled.
//!
//! Each test without its runtime prints that and passes: a JDK takes 200 MB that not every machine has.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use millpond_lab::profile::{ProfileConfig, ProfileOutcome, profile};
use millpond_lab::{CompareOutcome, ServerRequests, Target, compare};
use millpond_measure::flamegraph::Stacks;
use millpond_measure::record::{Measure, Operation, Quantity, RoundStatus};

use crate::common::{free_address, has_program, launcher, node_server, short_comparison};

/// A virtual machine is up, and has compiled its first methods, some seconds after its start on a
/// machine with other work.
const READY_BOUND: Duration = Duration::from_secs(120);

/// The words that start Java with a fixed heap, without the port. `None`, said, where there is no JDK:
/// a JRE alone does not take a source file.
fn java_server(directory: &Path) -> Option<Vec<String>> {
    if !has_program("java") {
        return None;
    }
    let has_compiler = Command::new("java")
        .arg("--list-modules")
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("jdk.compiler"));
    if !has_compiler {
        eprintln!("skipped: this java is a JRE; openjdk-17-jdk-headless brings its compiler");
        return None;
    }
    let source = directory.join("Server.java");
    fs::write(&source, include_str!("Server.java")).expect("write");
    let words = [
        "java",
        "-Xms48m",
        "-Xmx48m",
        "-XX:+UseSerialGC",
        // For flame graphs; it costs a register.
        "-XX:+PreserveFramePointer",
        // Head and body leave in two writes: without this, Nagle's algorithm waits 40 ms between them.
        "-Dsun.net.httpserver.nodelay=true",
    ];
    let words = words.iter().map(|&word| word.to_owned());
    Some(words.chain([source.display().to_string()]).collect())
}

/// The same for node: one process.
fn node(directory: &Path) -> Option<Vec<String>> {
    let node = node_server()?;
    let source = directory.join("server.js");
    let text = "require('http').createServer((question, answer) => answer.end('a'.repeat(512)))\n\
        .listen(+process.argv[2], '127.0.0.1');\n";
    fs::write(&source, text).expect("write");
    Some(vec![node, source.display().to_string()])
}

/// Compares it under glibc and our pools, and says what has to hold for any server.
fn compared(directory: &Path, mut words: Vec<String>) -> CompareOutcome {
    let address = free_address();
    words.push(address.port().to_string());
    let allocators = ["glibc", "mempool"].map(str::to_owned).to_vec();
    let mut config = short_comparison(directory, &words, address, allocators);
    config.ready_bound = READY_BOUND;
    let outcome = compare(&config, &mut |_| {}, &AtomicBool::new(false)).expect("compared");
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let of = |quantity| Measure::of(Operation::Request, quantity);
    for candidate in &outcome.record.candidates {
        let is_done = |status: &RoundStatus| *status == RoundStatus::Done;
        assert!(
            candidate.rounds.iter().all(|run| is_done(&run.status)),
            "{candidate:?}"
        );
        for quantity in [Quantity::Throughput, Quantity::CpuTime] {
            let values = candidate.values(of(quantity));
            assert!(
                values.len() == 2 && values.iter().all(|&value| value > 0.0),
                "{quantity:?}: {values:?}"
            );
        }
    }
    let ours = outcome.record.candidates.last();
    assert!(
        ours.is_some_and(|it| it.library.is_some()),
        "our pools are proved to be in it"
    );
    outcome
}

/// Profiles it, briefly.
fn profiled(directory: &Path, mut words: Vec<String>) -> (ProfileConfig, ProfileOutcome) {
    let address = free_address();
    words.push(address.port().to_string());
    let requests = Box::new(ServerRequests::get(address, "/"));
    let words = words.iter().map(Into::into).collect();
    let mut config = ProfileConfig::new(Target::Command { words, requests }, launcher());
    config.out = directory.join("profile");
    config.rounds = 1;
    config.duration = Duration::from_secs(1);
    config.connections = 4;
    config.cost = false;
    config.sample_bytes = 16 * 1024;
    config.seed = Some(1);
    config.ready_bound = READY_BOUND;
    let outcome = profile(&config, &mut |_| {}, &AtomicBool::new(false)).expect("profiled");
    (config, outcome)
}

fn folded(config: &ProfileConfig, name: &str) -> Stacks {
    let path = config.out.join(format!("{name}.folded"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    Stacks::parse_folded(&text).expect("folded")
}

/// Of the whole weight, what stands in stacks with a frame that has one of these in its name.
fn share_with(stacks: &Stacks, parts: &[&str]) -> f64 {
    let is_meant = |stack: &str| parts.iter().any(|part| stack.contains(part));
    let found = stacks.iter().filter(|(stack, _)| is_meant(stack));
    found.map(|(_, weight)| weight).sum::<u64>() as f64 / stacks.total().max(1) as f64
}

/// Whether the machine let perf in; said if not.
fn has_cpu_graph(outcome: &ProfileOutcome) -> bool {
    let mut notes = outcome.record.notes.iter();
    let missing = notes.find(|note| note.starts_with("no CPU graph"));
    if let Some(missing) = missing {
        eprintln!("skipped: {missing}");
    }
    missing.is_none()
}

fn rss_of(outcome: &CompareOutcome) -> Vec<f64> {
    let measure = Measure::whole(Quantity::RssAfterWork);
    let candidates = outcome.record.candidates.iter();
    candidates.filter_map(|it| it.median(measure)).collect()
}

/// Goal: a Java server is a target like any other: it is waited for, proved, warmed up, measured, and
/// its heap of 48 MB is in what it is said to take.
#[test]
#[ignore = "slow tier: a whole comparison, 40 s"]
fn java_is_compared() {
    let directory = tempfile::tempdir().unwrap();
    let Some(words) = java_server(directory.path()) else {
        return;
    };
    let outcome = compared(directory.path(), words);
    let rss = rss_of(&outcome);
    assert!(
        rss.len() == 3 && rss.iter().all(|&bytes| bytes > 40e6),
        "{rss:?}"
    );
}

/// Goal: the virtual machine's own allocations and its time are in the graphs, by the names of its
/// library's functions.
#[test]
#[ignore = "slow tier: a whole profile, 20 s"]
fn java_is_profiled() {
    let directory = tempfile::tempdir().unwrap();
    let Some(words) = java_server(directory.path()) else {
        return;
    };
    let (config, outcome) = profiled(directory.path(), words);
    let figures = outcome.record.candidates[0].allocations.as_ref().unwrap();
    assert!(figures.samples > 20, "{figures:?}");
    let bytes = folded(&config, "alloc-bytes");
    let ours = share_with(
        &bytes,
        &["os::malloc", "JavaThread", "JNI", "Java_", "libjvm"],
    );
    assert!(ours > 0.5, "{ours}: {}", bytes.to_folded());
    if has_cpu_graph(&outcome) {
        let cpu = folded(&config, "cpu");
        let machine = share_with(&cpu, &["JavaThread", "libjvm", "Java_", "Compile"]);
        assert!(machine > 0.2, "{machine}: {}", cpu.to_folded());
    }
}

/// Goal: node, whose binary stands at a fixed address and brings a memory of its own, is compared.
#[test]
#[ignore = "slow tier: a whole comparison, 20 s"]
fn node_is_compared() {
    let directory = tempfile::tempdir().unwrap();
    let Some(words) = node(directory.path()) else {
        return;
    };
    let outcome = compared(directory.path(), words);
    let rss = rss_of(&outcome);
    assert!(
        rss.len() == 3 && rss.iter().all(|&bytes| bytes > 30e6),
        "{rss:?}"
    );
    // Its sockets and handles are malloc's, whatever its own heap does.
    let heap = Measure::of(Operation::Request, Quantity::HeapCalls);
    let calls = outcome.record.candidates[0].values(heap);
    assert!(calls.len() == 1 && calls[0] > 0.1, "{calls:?}");
}

/// Goal: the Node.js event loop is in the graphs.
#[test]
#[ignore = "slow tier: a whole profile, 10 s"]
fn node_is_profiled() {
    let directory = tempfile::tempdir().unwrap();
    let Some(words) = node(directory.path()) else {
        return;
    };
    let (config, outcome) = profiled(directory.path(), words);
    let figures = outcome.record.candidates[0].allocations.as_ref().unwrap();
    assert!(figures.samples > 20, "{figures:?}");
    let bytes = folded(&config, "alloc-bytes");
    let ours = share_with(&bytes, &["node::", "uv_", "v8::"]);
    assert!(ours > 0.5, "{ours}: {}", bytes.to_folded());
    if has_cpu_graph(&outcome) {
        let cpu = folded(&config, "cpu");
        let ours = share_with(&cpu, &["uv_run", "uv__io_poll", "node::", "v8::"]);
        assert!(ours > 0.5, "{ours}: {}", cpu.to_folded());
    }
}

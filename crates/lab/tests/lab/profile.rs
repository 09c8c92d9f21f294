//! Profiles of real servers: what is known of a program is found in its graphs.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use millpond_lab::profile::{
    ProcessConfig, ProfileConfig, ProfileOutcome, Unwind, profile, profile_process,
};
use millpond_lab::readiness::Ready;
use millpond_lab::{LabError, LoadCommand, ServerRequests, Target};
use millpond_measure::flamegraph::Stacks;

use crate::common::{
    eventually, free_address, has_program, is_taken, launcher, python_server, redis_server, spec,
    start,
};
use crate::presence::compile_c;

/// As short as a profile can be.
fn config(directory: &Path, words: &[String], address: SocketAddr) -> ProfileConfig {
    let requests = Box::new(ServerRequests::get(address, "/"));
    let words = words.iter().map(Into::into).collect();
    let mut config = ProfileConfig::new(Target::Command { words, requests }, launcher());
    config.out = directory.join("profile");
    config.rounds = 1;
    config.duration = Duration::from_millis(500);
    config.connections = 4;
    config.seed = Some(1);
    config
}

/// The server whose calls are known, asked `line` instead of a load.
fn known(directory: &Path, line: &str) -> ProfileConfig {
    let program = compile_c(directory, "known", include_str!("known_server.c"), &["-g"]);
    let address = free_address();
    let mut config = config(directory, &[program, address.port().to_string()], address);
    config.options.ready = Ready::Port;
    config.load_command = Some(LoadCommand {
        line: line.to_owned(),
        metrics: Vec::new(),
        timeout: Duration::from_secs(60),
        warm_ups: 0,
    });
    config
}

fn run(config: &ProfileConfig) -> Result<ProfileOutcome, LabError> {
    profile(config, &mut |_| {}, &AtomicBool::new(false))
}

fn folded(config: &ProfileConfig, name: &str) -> Stacks {
    let path = config.out.join(format!("{name}.folded"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    Stacks::parse_folded(&text).expect("folded")
}

/// The weight below a frame, wherever it is.
fn below(stacks: &Stacks, frame: &str) -> u64 {
    let has = |stack: &str| stack.split(';').any(|name| name == frame);
    let found = stacks.iter().filter(|(stack, _)| has(stack));
    found.map(|(_, weight)| weight).sum()
}

fn has_perf(outcome: &ProfileOutcome) -> bool {
    let missing = outcome
        .record
        .notes
        .iter()
        .find(|it| it.starts_with("no CPU graph"));
    if let Some(missing) = missing {
        eprintln!("skipped: {missing}");
    }
    missing.is_none()
}

/// Goal: estimates of calls and bytes agree with what the program is known to do, function by
/// function, within five standard errors of the sampling; nothing is dropped.
#[test]
fn sampled_totals_agree_with_known_calls() {
    let directory = tempfile::tempdir().unwrap();
    let line =
        "for i in 1 2 3 4; do curl -sf http://127.0.0.1:$MILLPOND_PORT/allocate || exit 1; done";
    let mut config = known(directory.path(), line);
    config.cpu = false;
    config.cost = false;
    config.sample_bytes = 16 * 1024;
    let outcome = run(&config).unwrap();
    let figures = outcome.record.candidates[0].allocations.as_ref().unwrap();
    assert_eq!((figures.dropped, figures.without_stack), (0, 0));
    assert!(figures.samples > 3_000, "{figures:?}");
    let (bytes, calls) = (
        folded(&config, "alloc-bytes"),
        folded(&config, "alloc-count"),
    );
    let sizes = (1..1000).map(|index| 100.0 + 10.0 * f64::from(index));
    let grown: Vec<f64> = [100.0].into_iter().chain(sizes).collect();
    let known = [
        ("small", vec![32.0; 100_000]),
        ("medium", vec![1000.0; 20_000]),
        ("large", vec![f64::from(1 << 20); 50]),
        ("grown", grown),
    ];
    for (function, sizes) in known {
        let (mut true_calls, mut true_bytes) = (0.0, 0.0);
        let (mut calls_variance, mut bytes_variance) = (0.0, 0.0);
        for size in sizes.iter().flat_map(|size| [*size; 4]) {
            let chance = 1.0 - f64::exp(-size / 16_384.0);
            let variance = (1.0 - chance) / chance;
            true_calls += 1.0;
            true_bytes += size;
            calls_variance += variance;
            bytes_variance += variance * size * size;
        }
        for (what, stacks, truth, variance) in [
            ("calls", &calls, true_calls, calls_variance),
            ("bytes", &bytes, true_bytes, bytes_variance),
        ] {
            let found = below(stacks, function) as f64;
            // And the rounding of each stack.
            let bound = 5.0 * f64::sqrt(variance) + 8.0;
            assert!(
                (found - truth).abs() <= bound,
                "{what} of {function}: {found}, truly {truth}, bound {bound}"
            );
        }
    }
}

/// Goal: children of a fork are sampled with their parent's names, even when they are gone long before they are read.
#[test]
fn forks_are_sampled_too() {
    let directory = tempfile::tempdir().unwrap();
    let line =
        "for i in 1 2 3 4 5 6; do curl -sf http://127.0.0.1:$MILLPOND_PORT/fork || exit 1; done";
    let mut config = known(directory.path(), line);
    (config.cpu, config.cost) = (false, false);
    config.sample_bytes = 16 * 1024;
    run(&config).unwrap();
    let calls = below(&folded(&config, "alloc-count"), "small") as f64;
    assert!((calls / 600_000.0 - 1.0).abs() < 0.2, "{calls}");
}

/// Goal: a function that is known to take the time is the heaviest, by either way of following
/// stacks, and its caller is known by the tables; the pair with and without perf says what it took.
#[test]
fn the_busiest_function_is_the_heaviest() {
    let directory = tempfile::tempdir().unwrap();
    let line = "curl -sf http://127.0.0.1:$MILLPOND_PORT/spin";
    let mut config = known(directory.path(), line);
    config.allocations = false;
    for unwind in [Unwind::FramePointers, Unwind::Dwarf] {
        config.unwind = unwind;
        let outcome = match run(&config) {
            Err(error) if error.to_string().contains("perf") => {
                eprintln!("skipped: {error}");
                return;
            }
            outcome => outcome.unwrap(),
        };
        let figures = outcome.record.candidates[0].cpu.as_ref().unwrap();
        let (name, share) = &figures.heaviest[0];
        assert!(name == "spin" && *share > 0.5, "{figures:?}");
        let cost = figures.cost.as_ref().unwrap();
        assert!(cost.pairs == 1 && cost.cpu_time.is_some(), "{cost:?}");
        let stacks = folded(&config, "cpu");
        let inside = stacks.iter().any(|(stack, _)| stack.contains("main;spin"));
        assert!(inside, "{}", stacks.to_folded());
        let svg = fs::read_to_string(config.out.join("cpu.svg")).unwrap();
        assert!(svg.contains("<title>spin\n"));
    }
}

/// Goal: a process that runs already is sampled, and why only its CPU is said in a sentence.
#[test]
fn a_running_process_is_sampled() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile_c(
        directory.path(),
        "known",
        include_str!("known_server.c"),
        &[],
    );
    let address = free_address();
    let subject = start(&spec(
        directory.path(),
        &[&program, &address.port().to_string()],
    ));
    eventually("it listens", || is_taken(address));
    let process = ProcessConfig {
        pid: u32::try_from(subject.pid()).unwrap(),
        requests: Some(ServerRequests::get(address, "/spin")),
        connections: 1,
        duration: Duration::from_secs(2),
        unwind: Unwind::Auto,
        samples_per_s: 499,
        out: directory.path().join("profile"),
        command: vec!["millpond".to_owned()],
    };
    let sample =
        |process: &ProcessConfig| profile_process(process, &mut |_| {}, &AtomicBool::new(false));
    let gone = ProcessConfig {
        pid: 0x7fff_fff0,
        ..process.clone()
    };
    let sentence = sample(&gone).unwrap_err().to_string();
    assert!(sentence.contains("no process"), "{sentence}");
    let outcome = match sample(&process) {
        Err(error) if error.to_string().starts_with("perf ") => {
            eprintln!("skipped: {error}");
            return;
        }
        outcome => outcome.unwrap(),
    };
    let candidate = &outcome.record.candidates[0];
    assert_eq!(candidate.name, "glibc");
    assert_eq!(candidate.cpu.as_ref().unwrap().heaviest[0].0, "spin");
    assert!(candidate.allocations.is_none());
    assert!(outcome.record.notes[0].starts_with("no allocation graphs: "));
    assert!(outcome.to_string().contains("cpu.svg"));
}

/// Goal: nginx, stripped and without frame pointers, under two allocators: both graphs of both, the
/// differences, and names of its own in them.
#[test]
fn nginx_under_two_allocators() {
    if !has_program("nginx") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let conf = directory.path().join("nginx.conf");
    // Each response needs memory for itself: a body of variables, in pools of their own.
    let text = format!(
        "worker_processes 2; pid {0}/pid; error_log {0}/error.log; daemon off; events {{ }}\n\
         http {{ access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p;\n\
         fastcgi_temp_path {0}/f; uwsgi_temp_path {0}/u; scgi_temp_path {0}/s; request_pool_size 16k;\n\
         server {{ listen {address}; location / {{ return 200 'hello $request_id'; }} }} }}\n",
        directory.path().display()
    );
    fs::write(&conf, text).unwrap();
    let conf = conf.display().to_string();
    let words = ["nginx", "-c", &conf].map(str::to_owned);
    let mut config = config(directory.path(), &words, address);
    config.allocators = Some(["glibc", "mempool"].map(str::to_owned).to_vec());
    config.sample_bytes = 64 * 1024;
    let outcome = run(&config).unwrap();
    assert_eq!(outcome.record.candidates.len(), 2);
    for candidate in &outcome.record.candidates {
        let bytes = folded(&config, &format!("{}/alloc-bytes", candidate.name));
        assert!(
            below(&bytes, "ngx_create_pool") * 2 > bytes.total(),
            "{}",
            bytes.to_folded()
        );
        assert!(
            below(&bytes, "main") * 2 > bytes.total(),
            "{}",
            bytes.to_folded()
        );
        let cost = candidate
            .allocations
            .as_ref()
            .unwrap()
            .cost
            .as_ref()
            .unwrap();
        assert!(cost.time.unwrap().ratio > 0.0);
        assert!(
            config
                .out
                .join(&candidate.name)
                .join("alloc.pb.gz")
                .is_file()
        );
    }
    for name in ["diff-alloc-bytes", "diff-alloc-count"] {
        let svg = fs::read_to_string(config.out.join(format!("{name}.svg"))).unwrap();
        assert!(svg.contains("red: more under mempool"), "{name}");
    }
    if has_perf(&outcome) {
        let cpu = folded(&config, "mempool/cpu");
        assert!(
            below(&cpu, "ngx_process_events_and_timers") * 2 > cpu.total(),
            "{}",
            cpu.to_folded()
        );
        assert!(config.out.join("diff-cpu.folded").is_file());
        assert!(config.out.join("glibc/cpu.pb.gz").is_file());
    }
}

/// Goal: redis under its own benchmark, whose jemalloc the sampler stands in front of.
#[test]
#[ignore = "slow tier: a whole profile, 20 s"]
fn redis_under_its_own_benchmark() {
    if !has_program("redis-server") || !has_program("redis-benchmark") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let mut config = config(directory.path(), &redis_server(address), address);
    config.options.ready = Ready::Port;
    config.cost = false;
    config.sample_bytes = 16 * 1024;
    config.load_command = Some(LoadCommand {
        line: "redis-benchmark -p $MILLPOND_PORT -t set -n 40000 -r 100000 -c 5 -q".to_owned(),
        metrics: Vec::new(),
        timeout: Duration::from_secs(60),
        warm_ups: 0,
    });
    let outcome = run(&config).unwrap();
    let candidate = &outcome.record.candidates[0];
    assert_eq!(candidate.name, "native (jemalloc)");
    let bytes = folded(&config, "alloc-bytes");
    assert!(below(&bytes, "setCommand") > 0, "{}", bytes.to_folded());
    assert!(
        below(&bytes, "main") * 2 > bytes.total(),
        "{}",
        bytes.to_folded()
    );
    if has_perf(&outcome) {
        let cpu = folded(&config, "cpu");
        assert!(
            below(&cpu, "aeMain") * 2 > cpu.total(),
            "{}",
            cpu.to_folded()
        );
    }
}

/// Goal: an interpreter: its own functions are in both graphs.
#[test]
fn python_under_load() {
    if !has_program("python3") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let mut words = python_server(address);
    words.extend([
        "--directory".to_owned(),
        directory.path().display().to_string(),
    ]);
    let mut config = config(directory.path(), &words, address);
    config.options.environment = vec![("PYTHONMALLOC".into(), "malloc".into())];
    config.cost = false;
    config.sample_bytes = 16 * 1024;
    let outcome = run(&config).unwrap();
    let bytes = folded(&config, "alloc-bytes");
    assert!(
        below(&bytes, "_PyEval_EvalFrameDefault") * 2 > bytes.total(),
        "{}",
        bytes.to_folded()
    );
    if has_perf(&outcome) {
        let cpu = folded(&config, "cpu");
        let eval = below(&cpu, "_PyEval_EvalFrameDefault");
        assert!(eval * 2 > cpu.total(), "{}", cpu.to_folded());
    }
    let figures = outcome.record.candidates[0].allocations.as_ref().unwrap();
    assert!(figures.samples > 100, "{figures:?}");
}

/// Goal: a program that cannot preload objects gets the reason why there are no allocation graphs.
#[test]
fn a_static_program_has_no_allocation_graphs() {
    let directory = tempfile::tempdir().unwrap();
    let source = include_str!("known_server.c");
    let program = compile_c(directory.path(), "known-static", source, &["-static"]);
    let address = free_address();
    let mut config = config(
        directory.path(),
        &[program, address.port().to_string()],
        address,
    );
    config.cpu = false;
    let sentence = run(&config).unwrap_err().to_string();
    assert!(sentence.contains("statically linked"), "{sentence}");
}

/// Goal: pprof itself reads what was written, where it is installed.
#[test]
fn pprof_reads_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let line = "curl -sf http://127.0.0.1:$MILLPOND_PORT/allocate";
    let mut config = known(directory.path(), line);
    (config.cpu, config.cost) = (false, false);
    let outcome = run(&config).unwrap();
    let file = outcome
        .files
        .iter()
        .find(|path| path.ends_with("alloc.pb.gz"))
        .unwrap();
    let Ok(output) = Command::new("pprof").args(["-top"]).arg(file).output() else {
        eprintln!("skipped: pprof is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("alloc_space") && text.contains("medium"),
        "{output:?}"
    );
}

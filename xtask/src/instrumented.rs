//! The tests under tools that change how they run: Miri, loom, sanitizers, the seeded simulator and fuzzers.
//!
//! Miri checks every rule of memory that a compiler may rely on. It runs the tests of the pools, and those of the
//! search for the ends of a head's parts, with SSE2 as the vector instructions.
//!
//! The pools take their chunks from the allocator there, since Miri supports no `mmap` at an
//! address of one's choice, and the tests do little of what they otherwise do often: Miri is a
//! thousand times slower.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::check::{Toolchain, with_rustflags};
use xtask::{TestTally, cargo, run_command, target_directory};

/// Counting the calls of malloc means to loop often, and shows nothing about memory.
const NOT_UNDER_IT: &str = "heap_calls";

/// The interleaving of threads depends on a seed: these are run with several.
const THREADED: [&str; 3] = ["first_use", "stress", "threads"];

/// Addresses are never made from numbers. The tests read the clock, the environment and files. And a
/// stack for each of the panics that they expect would be interpreted too, for seconds; cargo-miri
/// prefers the variable as it was when the test was compiled to the one it is run with.
const FLAGS: &str = "-Zmiri-strict-provenance -Zmiri-disable-isolation \
                     -Zmiri-env-set=RUST_BACKTRACE=0";
const SEEDS: &str = "-Zmiri-many-seeds=0..4";

/// The unit tests that a moment of it consists of: lists that are written into free blocks.
const SMOKE: [&str; 2] = ["batch::", "block_class::"];

const POOLS: &str = "millpond-mempool";
const HTTP: &str = "millpond-http";

/// How the paths of the search's tests begin.
const SCAN: &str = "scan::";

/// Runs the tests whose path contains one of `filter`, or all.
pub(crate) fn run(filter: &[&str]) -> Result<(), String> {
    let toolchain = with_miri()?;
    let (threaded, others): (Vec<String>, Vec<String>) = integration_tests()?
        .into_iter()
        .partition(|test| THREADED.contains(&test.as_str()));
    let mut once = interpreter(&toolchain, POOLS, &others, FLAGS)?;
    once.arg("--lib").arg("--").args(filter);
    let mut in_orders = interpreter(&toolchain, POOLS, &threaded, &format!("{FLAGS} {SEEDS}"))?;
    in_orders.arg("--").args(filter);
    let mut tests = TestTally::default();
    let mut is_clean = run_command(&mut once, &mut tests)?;
    is_clean &= run_command(&mut in_orders, &mut tests)?;
    if filter.is_empty() || filter.iter().any(|word| word.starts_with(SCAN)) {
        let mut scan = interpreter(&toolchain, HTTP, &[], FLAGS)?;
        let words = if filter.is_empty() {
            &[SCAN][..]
        } else {
            filter
        };
        scan.args(["--lib", "--"]).args(words);
        is_clean &= run_command(&mut scan, &mut tests)?;
    }
    verdict(is_clean)
}

/// The unit tests alone, in minutes: lists that are written into free blocks, and the search of heads.
pub(crate) fn smoke() -> Result<(), String> {
    let toolchain = with_miri()?;
    let mut pools = interpreter(&toolchain, POOLS, &[], FLAGS)?;
    pools.arg("--lib").arg("--").args(SMOKE);
    let mut scan = interpreter(&toolchain, HTTP, &[], FLAGS)?;
    scan.args(["--lib", "--", SCAN]);
    let mut tests = TestTally::default();
    let is_clean = run_command(&mut pools, &mut tests)? & run_command(&mut scan, &mut tests)?;
    verdict(is_clean)
}

fn with_miri() -> Result<Toolchain, String> {
    let toolchain = Toolchain::most_able();
    match toolchain.has_miri() {
        true => Ok(toolchain),
        false => Err(
            "Miri is missing: `rustup toolchain install nightly --component miri,rust-src`"
                .to_owned(),
        ),
    }
}

fn verdict(is_clean: bool) -> Result<(), String> {
    match is_clean {
        true => Ok(()),
        false => Err("Miri found what is printed above".to_owned()),
    }
}

/// The command that interprets these test programs of a package.
fn interpreter(
    toolchain: &Toolchain,
    package: &str,
    tests: &[String],
    flags: &str,
) -> Result<Command, String> {
    let mut command = toolchain.cargo();
    command.args(["miri", "test", "--locked", "--package", package]);
    command.arg("--no-fail-fast");
    command.args(tests.iter().flat_map(|test| ["--test", test]));
    command
        .env("MIRIFLAGS", flags)
        .env("CARGO_TARGET_DIR", target_directory()?.join("miri"));
    Ok(command)
}

/// The names of the crate's test programs that are worth interpreting.
fn integration_tests() -> Result<Vec<String>, String> {
    let directory = "crates/mempool/tests";
    let cannot_read = |error: std::io::Error| format!("{directory} cannot be read: {error}");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(cannot_read)? {
        let path = entry.map_err(cannot_read)?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        if let Some(stem) = stem
            && path.extension().is_some_and(|extension| extension == "rs")
            && stem != NOT_UNDER_IT
        {
            names.push(stem.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

// The models of remote frees and of threads' ends, in the orders that their atomic operations can have.
//
// Only the models: with loom's atomics the other tests would run inside no model.

/// The common prefix of all models.
const MODELS: &str = "models::";

/// How many orders are tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Depth {
    /// Those with at most two preemptions, which find nearly every mistake, in seconds.
    Small,
    /// Every one.
    Whole,
}

/// Compiles the pools with loom's atomics, in a target directory of its own, and runs the models.
pub(crate) fn run_loom(depth: Depth, tests: &mut TestTally) -> Result<bool, String> {
    let mut command = cargo();
    command
        .args(["test", "--locked", "--package", "millpond-mempool", "--lib"])
        .arg(MODELS);
    with_rustflags(&mut command, "--cfg loom");
    command.env("CARGO_TARGET_DIR", target_directory()?.join("loom"));
    match depth {
        Depth::Small => command.env("LOOM_MAX_PREEMPTIONS", "2"),
        Depth::Whole => command.env_remove("LOOM_MAX_PREEMPTIONS"),
    };
    let passed_before = tests.passed;
    let ok = run_command(&mut command, tests)?;
    if ok && tests.passed == passed_before {
        return Err(format!(
            "no test's path contains {MODELS}: nothing was modelled"
        ));
    }
    Ok(ok)
}

// The pools' tests with a compiler that watches every access: for bounds and lifetimes, or for
// races.

/// The errors to watch for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sanitizer {
    /// Out of bounds, use after free, leaks.
    Address,
    /// Unordered accesses of several threads.
    Thread,
}

impl Sanitizer {
    /// `address` or `thread`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "address" => Some(Self::Address),
            "thread" => Some(Self::Thread),
            _ => None,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Thread => "thread",
        }
    }

    /// The variable that its runtime takes options from.
    const fn options_variable(self) -> &'static str {
        match self {
            Self::Address => "ASAN_OPTIONS",
            Self::Thread => "TSAN_OPTIONS",
        }
    }
}

/// Tests of what a sanitizer takes into its own hands: the number of mappings that a process may
/// have.
const SANITIZE_NOT_UNDER_IT: &str = "running_out_of_mappings";

/// Their malloc ends the process where the system's refuses, and they report a fault that ends it in
/// words of their own. Refusals and faults are what some tests are about.
const OPTIONS: &str = "allocator_may_return_null=1:handle_segv=0";

/// Runs the tests of the pools.
pub(crate) fn run_sanitize(sanitizer: Sanitizer) -> Result<(), String> {
    let toolchain = Toolchain::most_able();
    if !toolchain.has_source() && sanitizer == Sanitizer::Thread {
        // The atomics of a standard library without instrumentation are not recognised as atomics.
        return Err(
            "the standard library's source is missing: `rustup component add rust-src` for the \
             nightly toolchain, or for the one in use"
                .to_owned(),
        );
    }
    let mut command = tests_under(&toolchain, sanitizer, &["--lib", "--tests"])?;
    match run_command(&mut command, &mut TestTally::default())? {
        true => Ok(()),
        false => Err(format!(
            "the {} sanitizer found what is printed above",
            sanitizer.as_str()
        )),
    }
}

/// The command that runs these of the pools' test programs.
fn tests_under(
    toolchain: &Toolchain,
    sanitizer: Sanitizer,
    programs: &[&str],
) -> Result<Command, String> {
    let name = sanitizer.as_str();
    let has_source = toolchain.has_source();
    let mut command = toolchain.cargo();
    command.args(["test", "--locked", "--package", "millpond-mempool"]);
    command.args(programs);
    command.args(["--no-fail-fast", "--target", &toolchain.host()?]);
    if has_source {
        command.arg("-Zbuild-std");
    }
    command.args(["--", "--skip", SANITIZE_NOT_UNDER_IT]);
    // rustix makes system calls by itself, which no sanitizer intercepts: memory that one pool
    // unmapped and another got again would look like memory that both use. The C library's calls
    // are intercepted.
    let mut flags = format!("-Zsanitizer={name} --cfg rustix_use_libc");
    if !has_source {
        // The standard library comes without the flag then.
        flags.push_str(" -Cunsafe-allow-abi-mismatch=sanitizer");
    }
    with_rustflags(&mut command, &flags);
    let directory = target_directory()?.join(format!("sanitize-{name}"));
    command.env("CARGO_TARGET_DIR", directory);
    let variable = sanitizer.options_variable();
    let own = std::env::var(variable).unwrap_or_default();
    command.env(variable, format!("{OPTIONS}:{own}"));
    // A stack for each of the panics that tests expect takes longer than all the rest.
    command.env("RUST_BACKTRACE", "0");
    Ok(command)
}

// Many more seeds of the simulated tests than a check takes.
//
// Built with the release profile: a seed costs a few milliseconds.

/// The tests that try many seeds, and their packages.
const WORDS: [&str; 12] = [
    "test",
    "--release",
    "--locked",
    "--package",
    "millpond-io",
    "--package",
    "millpond-http",
    "--test",
    "simulator",
    "--test",
    "simulated",
    "--no-fail-fast",
];

/// Tries `seeds` seeds from `from` on. A seed that fails is printed with its faults.
pub(crate) fn run_simulate(seeds: &str, from: &str) -> Result<(), String> {
    for number in [seeds, from] {
        number
            .parse::<u64>()
            .map_err(|_| format!("{number} is no number of seeds"))?;
    }
    let mut test = cargo();
    test.args(WORDS)
        .env("MILLPOND_SIM_SEEDS", seeds)
        .env("MILLPOND_SIM_FROM", from);
    if run_command(&mut test, &mut TestTally::default())? {
        return Ok(());
    }
    Err("a seed failed: it is printed above, and --from SEED --seeds 1 repeats it".to_owned())
}

// Inputs invented by libFuzzer, for harnesses that `cargo test` runs too: operation sequences for the
// memory pools, and bytes for the parsers of HTTP.
//
// This compiles a harness with coverage counters and bounds checks on every access, and lets the
// fuzzer search for inputs that reach new code. Needs no cargo-fuzz.

const MANIFEST: &str = "fuzz/Cargo.toml";

/// One harness.
pub(crate) struct Target {
    name: &'static str,
    /// Inputs that once found something or reach what no other does; `cargo test` runs them.
    kept: &'static str,
    /// Longer inputs find nothing more here.
    input_bytes_max: usize,
}

/// All of them; the first is the default.
pub(crate) const TARGETS: [Target; 5] = [
    Target {
        name: "sequences",
        kept: "crates/mempool/tests/sequences",
        input_bytes_max: 2000,
    },
    Target {
        name: "http_heads",
        kept: "crates/http/tests/corpus/heads",
        input_bytes_max: 600,
    },
    Target {
        name: "http_chunks",
        kept: "crates/http/tests/corpus/chunks",
        input_bytes_max: 400,
    },
    Target {
        name: "http_target",
        kept: "crates/http/tests/corpus/target",
        input_bytes_max: 200,
    },
    Target {
        name: "http_differential",
        kept: "crates/http/tests/corpus/differential",
        input_bytes_max: 300,
    },
];

impl Target {
    pub(crate) fn named(name: &str) -> Result<&'static Self, String> {
        let found = TARGETS.iter().find(|target| target.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            format!(
                "no harness is called {name}: use one of {}",
                names.join(", ")
            )
        })
    }
}

/// The compiler flags that libFuzzer needs, as cargo-fuzz sets them.
const FUZZ_FLAGS: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    // So that the sanitizer intercepts the system calls of rustix: see `sanitize`.
    "--cfg=rustix_use_libc",
];

/// Fuzzes for so many seconds. Any input that breaks a promise is written to `fuzz/artifacts`.
pub(crate) fn run_fuzz(target: &Target, seconds: u64) -> Result<(), String> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let asked = Command::new(&compiler)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !asked.is_ok_and(|status| status.success()) {
        return Err(format!(
            "libFuzzer is compiled here and needs a C++ compiler: install g++ or clang, or set CXX \
             (tried {compiler})"
        ));
    }
    let toolchain = Toolchain::most_able();
    let (host, directory) = (toolchain.host()?, target_directory()?.join("fuzz"));
    let mut build = toolchain.cargo();
    build.args([
        "build",
        "--release",
        "--locked",
        "--manifest-path",
        MANIFEST,
    ]);
    build
        .args(["--target", &host])
        .env("CARGO_TARGET_DIR", &directory);
    let sanitizer = "-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer";
    with_rustflags(&mut build, &format!("{sanitizer} {}", FUZZ_FLAGS.join(" ")));
    if !run_command(&mut build, &mut TestTally::default())? {
        return Err("the fuzz target does not build".to_owned());
    }
    let corpus = directory.join("corpus").join(target.name);
    for needed in [corpus.as_path(), Path::new("fuzz/artifacts")] {
        std::fs::create_dir_all(needed)
            .map_err(|error| format!("{} cannot be made: {error}", needed.display()))?;
    }
    let mut fuzz = Command::new(directory.join(host).join("release").join(target.name));
    fuzz.arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={}", target.input_bytes_max))
        .args(["-timeout=60", "-rss_limit_mb=4096"])
        .args(["-artifact_prefix=fuzz/artifacts/", "-print_final_stats=1"])
        .arg(corpus)
        .arg(target.kept);
    match run_command(&mut fuzz, &mut TestTally::default())? {
        true => Ok(()),
        false => Err(format!(
            "an input broke a promise: it is in fuzz/artifacts; once its cause is mended, move it \
             to {}",
            target.kept
        )),
    }
}

//! Inputs invented by libFuzzer, for harnesses that `cargo test` runs too: operation sequences for the
//! memory pools, and bytes for the parsers of HTTP.
//!
//! This compiles a harness with coverage counters and bounds checks on every access, and lets the
//! fuzzer look for inputs that reach new code. Needs no cargo-fuzz. Absent on purpose: an end by itself
//! when nothing is found; the time is the caller's.

use crate::metadata::target_directory;
use crate::step::run_command;
use crate::tally::TestTally;
use crate::toolchain::{Toolchain, with_rustflags};
use std::path::Path;
use std::process::{Command, Stdio};

const MANIFEST: &str = "fuzz/Cargo.toml";

/// One harness.
pub(crate) struct Target {
    name: &'static str,
    /// Inputs that once found something or reach what no other does; `cargo test` runs them.
    kept: &'static str,
    /// Longer inputs find nothing more here.
    input_bytes_max: usize,
}

/// All there are; the first is meant when none is named.
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

/// What libFuzzer needs from the compiler, as cargo-fuzz sets it.
const FLAGS: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    // So that the sanitizer sees the system calls of rustix: see `sanitize`.
    "--cfg=rustix_use_libc",
];

/// Fuzzes for so many seconds. Any input that breaks a promise is written to `fuzz/artifacts`.
pub(crate) fn run(target: &Target, seconds: u64) -> Result<(), String> {
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
    with_rustflags(&mut build, &format!("{sanitizer} {}", FLAGS.join(" ")));
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

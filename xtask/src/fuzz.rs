//! Operation sequences for the memory pools, invented by libFuzzer.
//!
//! The harness is that of `crates/mempool/tests/sequences.rs`; this compiles it with coverage
//! counters and bounds checks on every access, and lets the fuzzer look for inputs that reach new
//! code. Needs no cargo-fuzz. Absent on purpose: an end by itself when nothing is found; the time is
//! the caller's.

use crate::step::{TestCount, run_command};
use crate::toolchain::{Toolchain, target_directory, with_rustflags};
use std::path::Path;
use std::process::{Command, Stdio};

/// Where inputs that once found something are kept, and run by `cargo test`.
const KEPT: &str = "crates/mempool/tests/sequences";
const MANIFEST: &str = "fuzz/Cargo.toml";
const TARGET: &str = "sequences";

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
pub(crate) fn run(seconds: u64) -> Result<(), String> {
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
    if !run_command(&mut build, &mut TestCount::default())? {
        return Err("the fuzz target does not build".to_owned());
    }
    let corpus = directory.join("corpus");
    for needed in [corpus.as_path(), Path::new("fuzz/artifacts")] {
        std::fs::create_dir_all(needed)
            .map_err(|error| format!("{} cannot be made: {error}", needed.display()))?;
    }
    let mut fuzz = Command::new(directory.join(host).join("release").join(TARGET));
    fuzz.arg(format!("-max_total_time={seconds}"))
        .args(["-max_len=2000", "-timeout=60", "-rss_limit_mb=4096"])
        .args(["-artifact_prefix=fuzz/artifacts/", "-print_final_stats=1"])
        .arg(corpus)
        .arg(KEPT);
    match run_command(&mut fuzz, &mut TestCount::default())? {
        true => Ok(()),
        false => Err(format!(
            "an input broke a promise: it is in fuzz/artifacts; once its cause is mended, move it \
             to {KEPT}"
        )),
    }
}

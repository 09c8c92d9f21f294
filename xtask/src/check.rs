//! The fast tier: everything that is asked of each change, in ten minutes on two CPUs.
//!
//! Every step runs even when an earlier one failed: one run names all that is wrong. No timing decides a step. Slower
//! checks are in the slow tier (`verify`).

use std::path::PathBuf;
use std::process::{Command, Stdio};

use xtask::{
    StepOutcome, TestTally, build_tests, cargo, cargo_tool, has_cargo_tool, leave_out, run_command,
    run_on_epoll, run_step, run_suite, shown,
};

use crate::instrumented;

/// Why dependencies were not checked.
const NO_DENY: &str = "cargo-deny is not installed: scripts/setup test installs it";

/// Runs all steps, then prints one line for each and the sum of the tests.
pub(crate) fn run() -> Result<(), String> {
    let steps = [
        run_step("format", format),
        match has_cargo_tool("deny") {
            true => run_step("dependencies", dependencies),
            false => leave_out("dependencies", NO_DENY),
        },
        run_step("lints", |tests| {
            let mut clippy = cargo();
            clippy.args(["clippy", "--workspace", "--all-targets", "--locked"]);
            run_command(clippy.args(["--", "-Dwarnings"]), tests)
        }),
        run_step("build", |_| build_tests()),
        run_step("tests", run_suite),
        run_step("tests, epoll", run_on_epoll),
        run_step("doc tests", |tests| {
            let words = ["test", "--doc", "--workspace", "--locked", "--no-fail-fast"];
            run_command(cargo().args(words), tests)
        }),
        run_step("documentation", |tests| {
            let words = ["doc", "--workspace", "--no-deps", "--locked"];
            run_command(cargo().args(words).env("RUSTDOCFLAGS", "-Dwarnings"), tests)
        }),
        run_step("models", |tests| {
            instrumented::run_loom(instrumented::Depth::Small, tests)
        }),
    ];
    summarise(&steps)
}

fn format(tests: &mut TestTally) -> Result<bool, String> {
    // The packages of `cargo xtask allocators` are a workspace of their own.
    let apart = ["--manifest-path", "preload/allocators/Cargo.toml"];
    let ours = run_command(cargo().args(["fmt", "--all", "--check"]), tests)?;
    let mut fmt = cargo();
    fmt.args(["fmt", "--all", "--check"]).args(apart);
    Ok(run_command(&mut fmt, tests)? && ours)
}

/// Licences, duplicates and sources, by the lists in `deny.toml`; advisories take the network.
fn dependencies(tests: &mut TestTally) -> Result<bool, String> {
    // Offline, it works on what is fetched already.
    let fetched = run_command(cargo().args(["fetch", "--locked"]), tests)?;
    let mut deny = cargo_tool("deny");
    deny.args(["--offline", "check", "licenses", "bans", "sources"]);
    Ok(run_command(&mut deny, tests)? && fetched)
}

/// One line for each step, then what each failed for and each failed test with what it said: the end of a long log
/// has all that is needed.
fn summarise(steps: &[StepOutcome]) -> Result<(), String> {
    println!("\n=== summary");
    let mut tests = TestTally::default();
    for step in steps {
        let verdict = match (step.ok, step.absence) {
            (true, None) => "ok",
            (true, Some(_)) => "not run",
            (false, _) => "FAILED",
        };
        println!(
            "{:<16} {verdict:<7} {:>7.1} s",
            step.name,
            step.took.as_secs_f64()
        );
        tests.add(&step.tests);
    }
    for step in steps {
        if let Some(complaint) = &step.complaint {
            println!("{}: {complaint}", step.name);
        }
    }
    print!("{tests}");
    let failed: Vec<&str> = steps
        .iter()
        .filter(|step| !step.ok)
        .map(|step| step.name)
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "failed: {}; the log above has each under its own heading",
        failed.join(", ")
    ))
}

// The builds with other features: without what can be left out, and without a cluster's driver alone.
//
// Each selection compiles most crates again, which is why this is not in the fast tier.

/// Lints the command without its optional parts and without clusters, and runs the tests of what a build without Lua
/// and without symbols says and does.
pub(crate) fn features_run() -> Result<(), String> {
    let mut tests = TestTally::default();
    let mut failed = Vec::new();
    let mut check = |mut command: Command| {
        if !run_command(&mut command, &mut tests)? {
            failed.push(shown(&command));
        }
        Ok::<(), String>(())
    };
    for flags in [
        &["--no-default-features"][..],
        &["--no-default-features", "--features", "entity,lua,symbols"],
    ] {
        let mut clippy = cargo();
        clippy.args(["clippy", "--package", "millpond", "--locked"]);
        clippy.args(flags).args(["--", "-Dwarnings"]);
        check(clippy)?;
    }
    let mut alone = cargo();
    alone.args(["clippy", "--package", "millpond-entity", "--all-targets"]);
    alone.args(["--locked", "--", "-Dwarnings"]);
    check(alone)?;
    let mut least = cargo();
    least.args(["test", "-p", "millpond-load", "-p", "millpond-lab", "--lib"]);
    least.args(["--no-default-features", "--locked", "--no-fail-fast"]);
    check(least)?;
    print!("{tests}");
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("these failed: {}", failed.join("; "))),
    }
}

// Which compiler can do what stable Rust does not promise, and what is missing where none can.

/// A toolchain of rustup, or the only one there is.
pub(crate) struct Toolchain {
    /// Its name in rustup; none without rustup.
    name: Option<String>,
    /// Whether it is a nightly one, which needs no permission for unstable flags.
    is_nightly: bool,
}

impl Toolchain {
    /// A nightly toolchain if one is installed, else the one in use.
    pub(crate) fn most_able() -> Self {
        let nightly = Self {
            name: Some("nightly".to_owned()),
            is_nightly: true,
        };
        if nightly.answers("rustc", &["--version"]).is_some() {
            return nightly;
        }
        let mut in_use = Self {
            name: None,
            is_nightly: false,
        };
        in_use.is_nightly = in_use
            .answers("rustc", &["--version"])
            .is_some_and(|version| version.contains("-nightly"));
        in_use
    }

    /// A program of this toolchain.
    pub(crate) fn program(&self, program: &str) -> Command {
        match &self.name {
            Some(name) => {
                let mut command = Command::new("rustup");
                command.args(["run", name, program]);
                command.env("RUSTUP_AUTO_INSTALL", "0");
                command
            }
            None if program == "cargo" => cargo(),
            None => Command::new(program),
        }
    }

    /// Its cargo, with permission for unstable flags.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = self.program("cargo");
        if !self.is_nightly {
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        command
    }

    /// The output of a program, if it is there and succeeds.
    fn answers(&self, program: &str, words: &[&str]) -> Option<String> {
        let output = self
            .program(program)
            .args(words)
            .stderr(Stdio::null())
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Whether it can interpret programs.
    pub(crate) fn has_miri(&self) -> bool {
        self.answers("cargo", &["miri", "--version"]).is_some()
    }

    /// Whether it can compile the standard library, and so instrument it.
    pub(crate) fn has_source(&self) -> bool {
        let library = "lib/rustlib/src/rust/library/Cargo.lock";
        self.answers("rustc", &["--print", "sysroot"])
            .is_some_and(|sysroot| PathBuf::from(sysroot).join(library).is_file())
    }

    /// The default platform of the compiler. Naming it keeps flags away from build scripts.
    pub(crate) fn host(&self) -> Result<String, String> {
        self.answers("rustc", &["--version", "--verbose"])
            .and_then(|text| {
                let host = text.lines().find_map(|line| line.strip_prefix("host: "));
                host.map(str::to_owned)
            })
            .ok_or_else(|| "rustc --version --verbose names no host".to_owned())
    }
}

/// Adds flags for the compiler to those the user has set.
pub(crate) fn with_rustflags(command: &mut Command, flags: &str) {
    let own = std::env::var("RUSTFLAGS").unwrap_or_default();
    let all = format!("{own} {flags}");
    println!("RUSTFLAGS='{}'", all.trim());
    command.env("RUSTFLAGS", all.trim());
}

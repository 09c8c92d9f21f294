//! What others install: a tarball for any Linux with a glibc, and a Debian package.
//!
//! Both hold the same binary, with the RocksDB of the rocksdb crate inside, compiled without its counters per thread: a
//! small put takes half the instructions that it takes with the distribution's library, and no library of RocksDB has to
//! be installed. It is compiled in a target directory of its own, as `make build ENGINE=bundled` does, 12 minutes the
//! first time. A smoke build takes the development build with whatever engine that links.
//!
//! What was made is looked at at once: unpacked, started, its pages rendered, its completions read by
//! their shells, its units by systemd. Absent on purpose: signing and uploading.

mod tree;
mod archives;
mod inspection;

use crate::metadata::target_directory;
use crate::step::{cargo, run_command};
use crate::tally::TestTally;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How the command is built.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Build {
    Release,
    /// The development build: for seeing that all of this still works.
    Smoke,
}

impl Build {
    const fn directory(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Smoke => "debug",
        }
    }

    const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Release => &["--release"],
            Self::Smoke => &[],
        }
    }
}

/// Makes both, or says what is missing.
pub(crate) fn run(build: Build) -> Result<(), String> {
    let output = target_directory()?.join(build.directory()).join("dist");
    recreate(&output)?;
    let program = compile(build, &output)?;
    let release = Release::of(&program)?;
    println!("{} {} for {}", release.name, release.version, release.host);
    print!("{}", output_of(Command::new(&program).arg("version"))?);
    let stage = output.join("stage");
    tree::common(&program, &stage)?;
    let package = archives::debian(build, &stage, &output)?;
    inspection::debian(&package, &output)?;
    let tarball = archives::tarball(&program, &stage, &release, &output)?;
    inspection::tarball(&tarball, &output)?;
    println!("\n{}\n{}", tarball.display(), package.display());
    Ok(())
}

/// The program's own words about itself.
struct Release {
    name: String,
    version: String,
    host: String,
}

impl Release {
    fn of(program: &Path) -> Result<Self, String> {
        let line = output_of(Command::new(program).arg("--version"))?;
        let (name, version) = line
            .trim()
            .split_once(' ')
            .ok_or_else(|| format!("`--version` says {line:?}"))?;
        Ok(Self {
            name: name.to_owned(),
            version: version.to_owned(),
            host: format!("{}-linux-gnu", std::env::consts::ARCH),
        })
    }

    fn title(&self) -> String {
        format!("{}-{}-{}", self.name, self.version, self.host)
    }
}

/// Builds the command and keeps a copy of it, without debug information, in `output`.
fn compile(build: Build, output: &Path) -> Result<PathBuf, String> {
    let mut command = cargo();
    command.args(["build", "--package", "millpond", "--locked"]);
    command.args(build.flags());
    let target = match build {
        Build::Release => bundled_directory()?,
        Build::Smoke => target_directory()?,
    };
    if build == Build::Release {
        command
            .env_remove("ROCKSDB_LIB_DIR")
            .env("CXXFLAGS", cxx_flags())
            .env("CARGO_TARGET_DIR", &target);
    }
    if !run_command(&mut command, &mut TestTally::default())? {
        return Err("the command does not compile; why is printed above".to_owned());
    }
    let copy = output.join("millpond");
    tree::copy(&target.join(build.directory()).join("millpond"), &copy)?;
    let mut strip = Command::new("strip");
    succeed(strip.arg("--strip-debug").arg(&copy))?;
    Ok(copy)
}

/// Exactly what the Makefile sets: another value compiles the engine anew.
fn cxx_flags() -> String {
    let mut flags = std::env::var("CXXFLAGS").unwrap_or_default();
    if !flags.contains("-DNPERF_CONTEXT") {
        if !flags.is_empty() {
            flags.push(' ');
        }
        flags.push_str("-DNPERF_CONTEXT");
    }
    flags
}

/// Where `make build ENGINE=bundled` builds.
fn bundled_directory() -> Result<PathBuf, String> {
    let target = target_directory()?;
    Ok(match target.ends_with("bundled") {
        true => target,
        false => target.join("bundled"),
    })
}

fn recreate(directory: &Path) -> Result<(), String> {
    if directory.exists() {
        std::fs::remove_dir_all(directory).map_err(|error| at(directory, error))?;
    }
    std::fs::create_dir_all(directory).map_err(|error| at(directory, error))
}

fn at(path: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

/// Runs a command that says nothing unless it fails.
fn succeed(command: &mut Command) -> Result<(), String> {
    output_of(command).map(drop)
}

/// What a command writes; one that fails is an error with what it says.
fn output_of(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{name} cannot be run: {error}"))?;
    if !output.status.success() {
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name} {}: {}", words.join(" "), said.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program is installed.
fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|directory| directory.join(program).is_file())
}

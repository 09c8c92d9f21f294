//! What others install: a tarball for any Linux with a glibc, and a Debian package.
//!
//! The two hold the same files and another binary. In the tarball RocksDB and what it packs with are
//! linked statically: it asks for glibc and libstdc++ and runs where neither Debian's RocksDB nor a
//! compiler is. In the package they stay the distribution's own, which gets security updates; dpkg finds
//! out which versions that takes.
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

/// What RocksDB packs with, in the order in which each needs those behind it.
const PACKERS: [&str; 5] = ["snappy", "lz4", "zstd", "bz2", "z"];

/// Makes both, or says what is missing.
pub(crate) fn run(build: Build) -> Result<(), String> {
    let output = target_directory()?.join(build.directory()).join("dist");
    recreate(&output)?;
    let shared = compile(build, None)?;
    let release = Release::of(&shared)?;
    println!("{} {} for {}", release.name, release.version, release.host);
    let stage = output.join("stage");
    tree::common(&shared, &stage)?;
    let package = archives::debian(build, &stage, &output)?;
    inspection::debian(&package, &output)?;

    let own = match distribution_archives() {
        Some(archives) => compile(build, Some(&archives))?,
        // The bundled RocksDB is linked statically anyway.
        None => shared,
    };
    let tarball = archives::tarball(&own, &stage, &release, &output)?;
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

/// Where the distribution has RocksDB as an archive, if that is the one we link.
fn distribution_archives() -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var_os("ROCKSDB_LIB_DIR")?);
    directory
        .join("librocksdb.a")
        .is_file()
        .then_some(directory)
}

/// Builds the command, with RocksDB from `archives` if there are any, and keeps a copy of it, since the next
/// build takes its place.
fn compile(build: Build, archives: Option<&Path>) -> Result<PathBuf, String> {
    let mut command = cargo();
    command.args([
        "rustc",
        "--package",
        "millpond",
        "--bin",
        "millpond",
        "--locked",
    ]);
    command.args(build.flags());
    if let Some(place) = archives {
        command.env("ROCKSDB_STATIC", "1").arg("--");
        for packer in PACKERS {
            let archive = place.join(format!("lib{packer}.a"));
            if !archive.is_file() {
                return Err(format!(
                    "{} is missing: the tarball's RocksDB needs it (librocksdb-dev recommends its package)",
                    archive.display()
                ));
            }
            command.args(["-C", &format!("link-arg={}", archive.display())]);
        }
    }
    if !run_command(&mut command, &mut TestTally::default())? {
        return Err("the command does not compile; why is printed above".to_owned());
    }
    let directory = target_directory()?.join(build.directory());
    let name = match archives {
        None => "millpond-shared",
        Some(_) => "millpond-static",
    };
    let copy = directory.join("dist").join(name);
    tree::copy(&directory.join("millpond"), &copy)?;
    let mut strip = Command::new("strip");
    succeed(strip.arg("--strip-debug").arg(&copy))?;
    Ok(copy)
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

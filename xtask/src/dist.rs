//! The installable files: a tarball for any Linux with a glibc, and a Debian package.
//!
//! Both hold the same binary, with the RocksDB of the rocksdb crate inside, compiled without its counters per thread: a
//! small put takes half the instructions that it takes with the distribution's library, and no library of RocksDB has to
//! be installed. It is compiled in a target directory of its own, as `make build ENGINE=bundled` does, 12 minutes the
//! first time. A smoke build takes the development build with whatever engine that links.
//!
//! The archive is checked at once: unpacked, started, its pages rendered, its completions read by
//! their shells, its units by systemd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::{TestTally, cargo, cargo_tool, has_cargo_tool, run_command, target_directory};

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
    common(&program, &stage)?;
    let package = debian(build, &stage, &output)?;
    inspection_debian(&package, &output)?;
    let tarball = tarball(&program, &stage, &release, &output)?;
    inspection_tarball(&tarball, &output)?;
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
    self::copy(&target.join(build.directory()).join("millpond"), &copy)?;
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

/// The output of a command; a failing one is an error with its output.
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

// The files that belong to the command, in one directory laid out as below a prefix.

/// Files of this repository and where they go.
const FILES: [(&str, &str); 7] = [
    (
        "packaging/systemd/millpond.service",
        "lib/systemd/system/millpond.service",
    ),
    (
        "packaging/systemd/millpond.socket",
        "lib/systemd/system/millpond.socket",
    ),
    ("packaging/millpond.toml", "etc/millpond/millpond.toml"),
    ("README.md", "share/doc/millpond/README.md"),
    ("CHANGELOG.md", "share/doc/millpond/CHANGELOG.md"),
    ("LICENSE-APACHE", "share/doc/millpond/LICENSE-APACHE"),
    ("LICENSE-MIT", "share/doc/millpond/LICENSE-MIT"),
];

/// All but the program, which makes its own pages.
fn common(program: &Path, stage: &Path) -> Result<(), String> {
    succeed(Command::new(program).arg("pages").arg(stage.join("share")))?;
    for (file, place) in FILES {
        copy(Path::new(file), &stage.join(place))?;
    }
    documents(Path::new("docs"), &stage.join("share/doc/millpond/docs"))
}

/// Pages and what they link to, below `from`; not pictures.
fn documents(from: &Path, place: &Path) -> Result<(), String> {
    for entry in fs::read_dir(from).map_err(|error| at(from, error))? {
        let path = entry.map_err(|error| at(from, error))?.path();
        let place = place.join(path.file_name().unwrap_or_default());
        let kind = path.extension().and_then(|kind| kind.to_str());
        match (path.is_dir(), kind) {
            (true, _) => documents(&path, &place)?,
            (false, Some("md" | "json" | "yml")) => copy(&path, &place)?,
            (false, _) => {}
        }
    }
    Ok(())
}

/// With the directories above it.
fn copy(file: &Path, place: &Path) -> Result<(), String> {
    let parent = place.parent().unwrap_or(place);
    fs::create_dir_all(parent).map_err(|error| at(parent, error))?;
    fs::copy(file, place)
        .map(drop)
        .map_err(|error| at(file, error))
}

// The tarball and the Debian package.

/// Packs the stage with `program` in it, in a directory of its name.
fn tarball(
    program: &Path,
    stage: &Path,
    release: &Release,
    output: &Path,
) -> Result<PathBuf, String> {
    let title = release.title();
    let directory = output.join(&title);
    succeed(Command::new("cp").arg("-r").arg(stage).arg(&directory))?;
    copy(program, &directory.join("bin/millpond"))?;
    let install = directory.join("INSTALL");
    let text = install_text(&libraries_of(program)?);
    fs::write(&install, text).map_err(|error| at(&install, error))?;
    let archive = output.join(format!("{title}.tar.gz"));
    let mut tar = Command::new("tar");
    // The same bytes on every machine and day.
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
    ]);
    tar.arg("-czf")
        .arg(&archive)
        .arg("-C")
        .arg(output)
        .arg(&title);
    succeed(&mut tar)?;
    Ok(archive)
}

/// The libraries that the program needs from the dynamic linker.
fn libraries_of(program: &Path) -> Result<Vec<String>, String> {
    let table = output_of(Command::new("readelf").arg("-d").arg(program))?;
    let libraries = table.lines().filter(|line| line.contains("(NEEDED)"));
    let names = libraries.filter_map(|line| line.split(['[', ']']).nth(1));
    Ok(names.map(str::to_owned).collect())
}

fn install_text(libraries: &[String]) -> String {
    let libraries = libraries.join(" ");
    format!(
        "Millpond runs from any directory:

  bin/millpond doctor      what this machine allows
  bin/millpond --help

It needs {libraries}
and nothing else.

For all users, as root:

  cp -r bin lib share /usr/local/ && cp -r etc/millpond /etc/
  sed -i 's|/usr/bin/millpond|/usr/local/bin/millpond|' \\
      /usr/local/lib/systemd/system/millpond.service
  systemctl daemon-reload && systemctl enable --now millpond.socket

share/ has manual pages (man millpond) and completions for bash, zsh and fish.
"
    )
}

/// Packs the stage with the program that was built.
fn debian(build: Build, stage: &Path, output: &Path) -> Result<PathBuf, String> {
    if !has_cargo_tool("deb") {
        return Err("cargo-deb is missing: scripts/setup verify installs it".to_owned());
    }
    // As the assets in crates/cli/Cargo.toml name it.
    let program = output.join("millpond");
    copy(&program, &stage.join("bin/millpond"))?;
    let mut command = cargo_tool("deb");
    command.args([
        "--package",
        "millpond",
        "--no-build",
        "--no-strip",
        "--locked",
    ]);
    if build == Build::Smoke {
        command.args(["--profile", "dev"]);
    }
    command.arg("--output").arg(output);
    if !run_command(&mut command, &mut TestTally::default())? {
        return Err("cargo-deb failed; why is printed above".to_owned());
    }
    fs::remove_dir_all(stage.join("bin")).map_err(|error| at(stage, error))?;
    let entries = fs::read_dir(output).map_err(|error| at(output, error))?;
    let mut files = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    files
        .find(|file| file.extension().is_some_and(|extension| extension == "deb"))
        .ok_or_else(|| format!("cargo-deb left no package in {}", output.display()))
}

// Checks the archive from the point of view of its users.

/// The files that both must hold, below their prefix.
const EXPECTED: [&str; 13] = [
    "bin/millpond",
    "share/man/man1/millpond.1",
    "share/man/man1/millpond-serve-entity.1",
    "share/man/man1/millpond-compare.1",
    "share/man/man1/millpond-doctor.1",
    "share/bash-completion/completions/millpond",
    "share/zsh/site-functions/_millpond",
    "share/fish/vendor_completions.d/millpond.fish",
    "share/doc/millpond/README.md",
    "share/doc/millpond/LICENSE-APACHE",
    "share/doc/millpond/LICENSE-MIT",
    "share/doc/millpond/docs/how-to/run-the-entity-service.md",
    "share/doc/millpond/docs/reference/commands/serve-entity.md",
];

/// Shells and how each is asked only to read a file.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/millpond"),
    ("zsh", "share/zsh/site-functions/_millpond"),
    ("fish", "share/fish/vendor_completions.d/millpond.fish"),
];

/// Unpacks it elsewhere and checks everything in it.
fn inspection_tarball(archive: &Path, output: &Path) -> Result<(), String> {
    let place = output.join("unpacked-tarball");
    recreate(&place)?;
    succeed(
        Command::new("tar")
            .arg("-xzf")
            .arg(archive)
            .arg("-C")
            .arg(&place),
    )?;
    let mut entries = fs::read_dir(&place).map_err(|error| at(&place, error))?;
    let root = match (entries.next(), entries.next()) {
        (Some(Ok(root)), None) => root.path(),
        _ => {
            return Err(format!(
                "{} holds more than one directory",
                archive.display()
            ));
        }
    };
    prefix(&root)?;
    units(
        &root.join("lib/systemd/system"),
        &root.join("bin/millpond"),
        &place,
    )
}

/// The same for a package, whose files dpkg puts below `/`.
fn inspection_debian(package: &Path, output: &Path) -> Result<(), String> {
    let listing = output_of(Command::new("dpkg-deb").arg("-c").arg(package))?;
    for file in [
        "./usr/bin/millpond",
        "./lib/systemd/system/millpond.socket",
        "./etc/millpond/millpond.toml",
        "./usr/share/doc/millpond/copyright",
    ] {
        if !listing
            .lines()
            .any(|line| line.ends_with(&format!(" {file}")))
        {
            return Err(format!("{} lacks {file}:\n{listing}", package.display()));
        }
    }
    let fields = output_of(Command::new("dpkg-deb").arg("-f").arg(package))?;
    print!("{fields}");
    let place = output.join("unpacked-package");
    recreate(&place)?;
    succeed(Command::new("dpkg-deb").arg("-x").arg(package).arg(&place))?;
    prefix(&place.join("usr"))?;
    let program = place.join("usr/bin/millpond");
    units(
        &place.join("lib/systemd/system"),
        &program,
        &output.join("units"),
    )
}

/// A prefix as it will be: the program runs, its pages render, its completions are read, and the
/// configuration beside it is taken.
fn prefix(root: &Path) -> Result<(), String> {
    for file in EXPECTED {
        let (plain, packed) = (root.join(file), root.join(format!("{file}.gz")));
        if !plain.is_file() && !packed.is_file() {
            return Err(format!("{} is missing", plain.display()));
        }
    }
    let program = root.join("bin/millpond");
    print!("{}", output_of(Command::new(&program).arg("--version"))?);
    pages(&root.join("share/man/man1"))?;
    for (shell, file) in SHELLS {
        if is_installed(shell) {
            succeed(Command::new(shell).arg("-n").arg(root.join(file)))?;
        } else {
            println!("{shell} is not installed: its completion was not read");
        }
    }
    let config =
        [root.join("etc"), root.join("../etc")].map(|etc| etc.join("millpond/millpond.toml"));
    let config = config.iter().find(|file| file.is_file());
    let config = config.ok_or_else(|| format!("no millpond.toml beside {}", root.display()))?;
    succeed(Command::new(&program).args(["config", "check"]).arg(config))
}

/// Every page, with what troff thinks of it.
fn pages(directory: &Path) -> Result<(), String> {
    if !is_installed("man") {
        println!("man is not installed: the manual pages were not rendered");
        return Ok(());
    }
    let entries = fs::read_dir(directory).map_err(|error| at(directory, error))?;
    let mut count = 0;
    for entry in entries {
        let page = entry.map_err(|error| at(directory, error))?.path();
        let mut man = Command::new("man");
        man.args(["--warnings", "-E", "UTF-8", "-Tutf8", "-l"])
            .arg(&page);
        let rendered = man.env("MANWIDTH", "80").output();
        let rendered = rendered.map_err(|error| format!("man cannot be run: {error}"))?;
        let said = String::from_utf8_lossy(&rendered.stderr);
        if !rendered.status.success() || !said.trim().is_empty() || rendered.stdout.is_empty() {
            return Err(format!("{} does not render: {said}", page.display()));
        }
        count += 1;
    }
    println!("{count} manual pages render");
    Ok(())
}

/// The verdict of systemd on the units, with the program where it is now.
fn units(directory: &Path, program: &Path, place: &Path) -> Result<(), String> {
    if !is_installed("systemd-analyze") {
        println!("systemd-analyze is not installed: the units were not verified");
        return Ok(());
    }
    let place: PathBuf = place.join("verified-units");
    recreate(&place)?;
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["verify", "--recursive-errors=no", "--man=no"]);
    for name in ["millpond.socket", "millpond.service"] {
        let file = directory.join(name);
        let text = fs::read_to_string(&file).map_err(|error| at(&file, error))?;
        let copy = place.join(name);
        let text = text.replace("/usr/bin/millpond", &program.display().to_string());
        fs::write(&copy, text).map_err(|error| at(&copy, error))?;
        analyze.arg(copy);
    }
    let output = analyze
        .output()
        .map_err(|error| format!("systemd-analyze: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || said.contains("millpond") {
        return Err(format!("systemd-analyze verify: {said}"));
    }
    println!("systemd takes both units");
    Ok(())
}

#[cfg(test)]
#[path = "tests/archives.rs"]
mod archives_tests;

//! `millpond doctor`: what this machine allows, and how to allow the rest; with `--pid`, which allocator a running process
//! has.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use millpond_lab::allocator;
use millpond_lab::allocator::{CatalogueEntry, NOT_TO_BE_HAD};
use millpond_lab::doctor::{
    Attempts, Facts, Finding, FindingState, Machine, Section, examine, examine_deployment,
    examine_process, examine_program,
};
use millpond_measure::environment::Environment;
use millpond_measure::report::terminal::wrapped;
use millpond_measure::units::format_bytes;
use serde_json::json;

use crate::output;
use crate::output::{Exit, Failure, JsonFile};

/// Say what this machine allows, and how to allow the rest
///
/// Looks at io_uring and epoll, limits, counters, frequencies, memory, allocators and the programs that
/// other commands use; and at what means something for the allocator that is to run here. Changes nothing. Exit
/// status 0 if everything essential is there, 1 if not.
/// With --pid it looks into a running process instead, without stopping it: which allocator serves it, with
/// which settings, and how much memory it holds.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond doctor
  millpond doctor --json doctor.json
  sudo millpond doctor --pid 4711             allocator and memory of a process
  millpond doctor --print-facts > facts.txt   where the winner will run
  millpond doctor --deploy facts.txt          here: what these facts mean for it
  docker run --rm IMAGE millpond doctor       what a container allows")]
pub(crate) struct DoctorFlags {
    /// Write the findings to FILE as well
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse)]
    json: Option<JsonFile>,
    /// Say what FILE, written by --print-facts on another machine, means for an allocator that is to run there
    #[arg(long, value_name = "FILE", conflicts_with = "print_facts")]
    deploy: Option<PathBuf>,
    /// Say, too, whether FILE, a program, takes a preloaded allocator
    #[arg(long, value_name = "FILE", conflicts_with = "print_facts")]
    program: Option<PathBuf>,
    /// Print what --deploy reads, and nothing else
    #[arg(long, conflicts_with = "json")]
    print_facts: bool,
    /// Say which allocator process PID runs with, its settings, and how much memory it holds
    #[arg(
        long,
        value_name = "PID",
        value_parser = clap::value_parser!(i32).range(1..),
        conflicts_with_all = ["deploy", "print_facts", "program"]
    )]
    pid: Option<i32>,
}

/// Longer files of facts are none.
const FACTS_BYTES_MAX: u64 = 64 * 1024;

impl DoctorFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        if let Some(pid) = self.pid {
            return self.run_process(pid);
        }
        let machine = Machine::this();
        if self.print_facts {
            output::print(Facts::of(&machine).to_text())?;
            return Ok(Exit::Success);
        }
        let environment = Environment::capture();
        let mut findings = match &self.deploy {
            Some(file) => examine_deployment(&facts_in(file)?, Some(&Facts::of(&machine))),
            None => examine(&machine, &Attempts::make()),
        };
        if let Some(program) = &self.program {
            let failed = |error| Failure::failed(format!("{}: {error}", program.display()));
            findings.push(examine_program(program).map_err(failed)?);
        }
        let title = match &self.deploy {
            Some(file) => format!("The machine of {}, for a winner from here", file.display()),
            None => title(&environment),
        };
        let summary = summary(
            count(&findings, FindingState::Missing),
            count(&findings, FindingState::Weak),
        );
        output::print(page(&title, &findings, &summary))?;
        if let Some(file) = &self.json {
            let record = serde_json::json!({
                "version": env!("CARGO_PKG_VERSION"),
                "essential_missing": has_missing(&findings),
                "environment": environment,
                "findings": findings,
            });
            file.write(&format!("{record:#}\n"))?;
        }
        Ok(exit_of(&findings))
    }

    fn run_process(&self, pid: i32) -> Result<Exit, Failure> {
        let found = examine_process(pid).map_err(Failure::failed)?;
        let findings = &found.findings;
        output::print(page(
            &found.headline(),
            findings,
            &summary_of_process(findings),
        ))?;
        if let Some(file) = &self.json {
            let record = serde_json::json!({
                "version": env!("CARGO_PKG_VERSION"),
                "essential_missing": has_missing(findings),
                "process": found,
                "findings": findings,
            });
            file.write(&format!("{record:#}\n"))?;
        }
        Ok(exit_of(findings))
    }
}

fn exit_of(findings: &[Finding]) -> Exit {
    match has_missing(findings) {
        false => Exit::Success,
        true => Exit::Failed,
    }
}

fn facts_in(file: &Path) -> Result<Facts, Failure> {
    let failed = |reason: String| Failure::failed(format!("{}: {reason}", file.display()));
    let mut text = String::new();
    let read =
        File::open(file).and_then(|file| file.take(FACTS_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|error| failed(error.to_string()))?;
    Facts::parse(&text).map_err(failed)
}

fn count(findings: &[Finding], state: FindingState) -> usize {
    findings.iter().filter(|one| one.state == state).count()
}

fn has_missing(findings: &[Finding]) -> bool {
    count(findings, FindingState::Missing) > 0
}

/// For a terminal of any width, and read in bug reports too.
const WIDTH: usize = 80;
/// Mark and name, with blanks: where sentences begin.
const INDENT: usize = 2 + 8 + 16;

fn page(title: &str, findings: &[Finding], summary: &str) -> String {
    let lines = title.lines();
    let mut text: String = lines.map(|line| wrapped(line, WIDTH, "")).collect();
    for section in Section::ALL {
        if !findings.iter().any(|one| one.section == section) {
            continue;
        }
        // A String takes any text.
        let _ = write!(text, "\n{}\n", section.title());
        for finding in findings.iter().filter(|one| one.section == section) {
            text.push_str(&lines_of(finding));
        }
    }
    let _ = writeln!(text, "\n{summary}");
    text
}

fn title(environment: &Environment) -> String {
    let unknown = || "an unknown distribution".to_owned();
    let memory = environment
        .memory_bytes
        .map(|bytes| format_bytes(bytes as f64));
    format!(
        "millpond {} on Linux {} {} ({}), {} CPUs, {}",
        env!("CARGO_PKG_VERSION"),
        environment.kernel,
        environment.architecture,
        environment.distribution.clone().unwrap_or_else(unknown),
        environment.cpus,
        memory.unwrap_or_else(|| "memory unknown".to_owned()),
    )
}

fn lines_of(finding: &Finding) -> String {
    let mark = match finding.state {
        FindingState::Ok => "ok",
        FindingState::Weak => "weak",
        FindingState::Missing => "MISSING",
    };
    let mut text = String::new();
    let found = wrapped(&finding.found, WIDTH - INDENT, "");
    let name = finding.name;
    for (number, line) in found.lines().enumerate() {
        let _ = match number {
            0 => writeln!(text, "  {mark:<8}{name:<16}{line}"),
            _ => writeln!(text, "{:INDENT$}{line}", ""),
        };
    }
    let Some(remedy) = &finding.remedy else {
        return text;
    };
    let remedy = wrapped(remedy, WIDTH - INDENT - 2, "");
    for (number, line) in remedy.lines().enumerate() {
        let mark = if number == 0 { "> " } else { "  " };
        let _ = writeln!(text, "{:INDENT$}{mark}{line}", "");
    }
    text
}

fn summary_of_process(findings: &[Finding]) -> String {
    let questions = match count(findings, FindingState::Weak) {
        0 => "nothing stands out".to_owned(),
        1 => "1 thing to look at (weak)".to_owned(),
        several => format!("{several} things to look at (weak)"),
    };
    match has_missing(findings) {
        false => format!("The process was read and not touched; {questions}."),
        true => format!("Which allocator it has could NOT be determined; {questions}."),
    }
}

fn summary(missing: usize, weak: usize) -> String {
    let better = match weak {
        0 => String::new(),
        1 => "; 1 thing could be better".to_owned(),
        _ => format!("; {weak} things could be better"),
    };
    match missing {
        0 => format!("Everything essential is here{better}."),
        1 => format!("Something essential is MISSING{better}."),
        _ => format!("{missing} essential things are MISSING{better}."),
    }
}

// `millpond version`: which build this is, as a bug report or a record needs it.

/// Say which build this is: commit, compiler, features, storage engine
///
/// `millpond --version` prints the number alone.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond version
  millpond version --json build.json")]
pub(crate) struct VersionFlags {
    /// Write it to FILE as well
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse)]
    json: Option<JsonFile>,
}

/// Features of this command that are compiled in, in the order of its Cargo.toml.
const FEATURES: [(&str, bool); 4] = [
    ("entity", cfg!(feature = "entity")),
    ("distributed", cfg!(feature = "distributed")),
    ("lua", cfg!(feature = "lua")),
    ("symbols", cfg!(feature = "symbols")),
];

/// The embedded storage engine, if there is one.
#[cfg(feature = "entity")]
fn engine() -> Option<(String, serde_json::Value)> {
    let engine = millpond_entity::admin::engine();
    let record = json!({
        "name": engine.name,
        "version": engine.version,
        "linkage": engine.linkage.to_string(),
    });
    Some((engine.to_string(), record))
}

#[cfg(not(feature = "entity"))]
fn engine() -> Option<(String, serde_json::Value)> {
    None
}

impl VersionFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let version = env!("CARGO_PKG_VERSION");
        let commit = option_env!("MILLPOND_COMMIT");
        let (compiler, target) = (env!("MILLPOND_COMPILER"), env!("MILLPOND_TARGET"));
        let profile = match cfg!(debug_assertions) {
            true => "debug",
            false => "release",
        };
        let features: Vec<&str> = FEATURES
            .iter()
            .filter_map(|&(name, is_here)| is_here.then_some(name))
            .collect();
        let (engine, engine_record) = engine().unzip();
        output::print(format_args!(
            "millpond {version}\n\
             commit    {}\n\
             build     {profile}, {target}, {compiler}\n\
             features  {}\n\
             engine    {}\n",
            commit.unwrap_or("unknown: not built in a git checkout"),
            features.join(", "),
            engine.as_deref().unwrap_or("none"),
        ))?;
        if let Some(file) = &self.json {
            let record = json!({
                "version": version,
                "commit": commit,
                "profile": profile,
                "target": target,
                "compiler": compiler,
                "features": features,
                "engine": engine_record,
            });
            file.write(&format!("{record:#}\n"))?;
        }
        Ok(Exit::Success)
    }
}

// `millpond allocators`: what can be compared here, and how to get the rest.

/// List the memory allocators that `millpond compare` can compare here
///
/// For each its version and the file, or how to get it; then the settings it takes, each of which makes
/// another candidate.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond allocators
  millpond allocators --extract /usr/local/lib
  millpond compare --allocators glibc,jemalloc,mine=/path/to/library.so
  millpond compare --allocators glibc,glibc:arena_max=2,jemalloc:narenas=2")]
pub(crate) struct AllocatorsFlags {
    /// Write the objects that are part of this program into DIR, to be preloaded anywhere: libmillpond-mempool.so, our
    /// pools as malloc, and libmillpond-trim.so, the thread of glibc+trim; a file that is there is not replaced
    #[arg(long, value_name = "DIR")]
    extract: Option<PathBuf>,
}

impl AllocatorsFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        if let Some(directory) = &self.extract {
            for path in allocator::extract(directory).map_err(Failure::failed)? {
                output::print(format_args!("{}\n", path.display()))?;
            }
            return Ok(Exit::Success);
        }
        output::print(list(&allocator::catalogue()))?;
        Ok(Exit::Success)
    }
}

/// The widest name, and a blank.
const NAME_WIDTH: usize = 10;

fn list(entries: &[CatalogueEntry]) -> String {
    let mut text = String::new();
    let mut line = |words: std::fmt::Arguments<'_>| {
        // A String takes any text.
        let _ = writeln!(text, "{words}");
    };
    for entry in entries {
        let name = entry.name;
        match (&entry.place, &entry.remedy) {
            (Some(place), _) => {
                let version = entry.version.as_deref().unwrap_or("version unknown");
                line(format_args!("{name:<NAME_WIDTH$} {version}"));
                line(format_args!("{:<NAME_WIDTH$} {place}", ""));
            }
            (None, remedy) => {
                let remedy = remedy.as_deref().unwrap_or_default();
                line(format_args!("{name:<NAME_WIDTH$} not here: {remedy}"));
            }
        }
    }
    line(format_args!(
        "\nAny other: --allocators NAME=/path/to/library.so\n{}",
        wrapped(&format!("{NOT_TO_BE_HAD}."), ALLOCATORS_WIDTH, "")
    ));
    line(format_args!(
        "Settings, as in --allocators jemalloc:narenas=2,dirty_decay_ms=0; often used:"
    ));
    for entry in entries.iter().filter(|entry| !entry.settings.is_empty()) {
        line(format_args!(
            "{:<NAME_WIDTH$} {}",
            entry.name, entry.settings
        ));
        line(format_args!("{:<NAME_WIDTH$} by {}", "", entry.variable));
    }
    let rule = "Each allocator is asked before a comparison whether it takes a setting; what it would \
                pass over is refused.";
    text + &wrapped(rule, ALLOCATORS_WIDTH, "")
}

/// The list is for a terminal of any width, and read in logs too.
const ALLOCATORS_WIDTH: usize = 80;

#[cfg(test)]
#[path = "tests/doctor.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/allocators.rs"]
mod allocators_tests;

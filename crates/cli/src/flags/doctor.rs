//! `millpond doctor`: what this machine allows, and how to allow the rest.

use crate::output::{self, Exit, Failure, JsonFile};
use clap::Args;
use millpond_lab::doctor::{Attempts, Finding, Machine, Section, State, examine};
use millpond_measure::environment::Environment;
use millpond_measure::report::lines::wrapped;
use millpond_measure::units::format_bytes;
use std::fmt::Write as _;

/// Say what this machine allows, and how to allow the rest
///
/// Looks at io_uring and epoll, limits, counters, frequencies, memory, allocators and the programs that
/// other commands use. Changes nothing. Exit status 0 if everything essential is there, 1 if not.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond doctor
  millpond doctor --json doctor.json
  docker run --rm IMAGE millpond doctor     what a container allows")]
pub(crate) struct DoctorFlags {
    /// Write the findings to FILE as well
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse)]
    json: Option<JsonFile>,
}

impl DoctorFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let environment = Environment::capture();
        let findings = examine(&Machine::this(), &Attempts::make());
        output::print(page(&environment, &findings))?;
        if let Some(file) = &self.json {
            let record = serde_json::json!({
                "version": env!("CARGO_PKG_VERSION"),
                "essential_missing": has_missing(&findings),
                "environment": environment,
                "findings": findings,
            });
            file.write(&format!("{record:#}\n"))?;
        }
        Ok(match has_missing(&findings) {
            false => Exit::Success,
            true => Exit::Failed,
        })
    }
}

fn has_missing(findings: &[Finding]) -> bool {
    findings.iter().any(|one| one.state == State::Missing)
}

/// For a terminal of any width, and read in bug reports too.
const WIDTH: usize = 80;
/// Mark and name, with blanks: where sentences begin.
const INDENT: usize = 2 + 8 + 16;

fn page(environment: &Environment, findings: &[Finding]) -> String {
    let mut text = wrapped(&title(environment), WIDTH, "");
    for section in Section::ALL {
        // A String takes any text.
        let _ = write!(text, "\n{}\n", section.title());
        for finding in findings.iter().filter(|one| one.section == section) {
            text.push_str(&lines_of(finding));
        }
    }
    let count = |state| findings.iter().filter(|one| one.state == state).count();
    let _ = writeln!(
        text,
        "\n{}",
        summary(count(State::Missing), count(State::Weak))
    );
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
        State::Ok => "ok",
        State::Weak => "weak",
        State::Missing => "MISSING",
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

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(state: State, remedy: Option<&str>) -> Finding {
        Finding {
            section: Section::Serving,
            name: "open files",
            state,
            found: "1024: and a sentence that is longer than what is left of a line of 80 columns"
                .to_owned(),
            remedy: remedy.map(str::to_owned),
        }
    }

    /// Goal: a page has 80 columns at most, says what to do under what is not well, and sums up.
    #[test]
    fn a_page_fits_and_sums_up() {
        let remedy =
            "a command that is so long that it needs more than what is left of one line too";
        let findings = [finding(State::Ok, None), finding(State::Weak, Some(remedy))];
        let text = page(&Environment::capture(), &findings);
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(
            text.contains("\n  ok      open files      1024: and"),
            "{text}"
        );
        assert!(
            text.contains("\n  weak    open files      1024: and"),
            "{text}"
        );
        assert!(text.contains("> a command"), "{text}");
        assert!(
            text.ends_with("\nEverything essential is here; 1 thing could be better.\n"),
            "{text}"
        );
        assert!(!has_missing(&findings));
        assert!(has_missing(&[finding(State::Missing, None)]));
        assert_eq!(summary(1, 0), "Something essential is MISSING.");
        assert_eq!(
            summary(2, 3),
            "2 essential things are MISSING; 3 things could be better."
        );
    }
}

//! What this machine allows, for whoever wonders why something is slow, missing or refused.
//!
//! Apart from the path of a comparison: `millpond doctor` calls [`examine`] and prints what it gets.
//! What the kernel shows in files is read below a root that tests plant; what has to be tried
//! (a ring, a counter, a socket) is tried once by [`Attempts::make`] and handed in.
//!
//! Absent on purpose: changing anything. Each finding that is not well names the command that a person
//! with the right to do so may give.

mod attempts;
mod machine;
mod serving;
mod measuring;
mod comparing;
mod deploying;
mod running;

pub use attempts::Attempts;
pub use deploying::{Facts, examine_program, findings as examine_deployment};
pub use machine::{Limit, Machine};
pub use running::{
    Arena, GlibcHeap, Inside, Limit as MemoryLimit, MappedBlocks, Memory, Origin, Parameters,
    Running, RunningError, Served, Serving, Setting, examine_process,
};
pub use serving::OTHER_FILES;

use serde::Serialize;

/// How well one thing stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Ok,
    /// Everything works, but less well, or with less to be seen.
    Weak,
    /// Something of Millpond does not work at all.
    Missing,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// What `serve` and `proxy` need.
    Serving,
    /// What changes the numbers of `load`, `bench` and `compare`.
    Measuring,
    /// What `compare` and `profile` need besides.
    Comparing,
    /// What the machine means for the allocator that is to run on it.
    Deploying,
    /// Of a process that runs: whose malloc is called.
    Allocator,
    /// With which settings.
    Settings,
    /// Its memory as the kernel shows it.
    Memory,
    /// Its heap by the allocator's own accounts.
    Heap,
}

impl Section {
    /// In the order of the page.
    pub const ALL: [Self; 8] = [
        Self::Serving,
        Self::Measuring,
        Self::Comparing,
        Self::Deploying,
        Self::Allocator,
        Self::Settings,
        Self::Memory,
        Self::Heap,
    ];

    /// As a heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Serving => "Serving",
            Self::Measuring => "Measuring",
            Self::Comparing => "Comparing and profiling",
            Self::Deploying => "Running the winner",
            Self::Allocator => "Allocator",
            Self::Settings => "Settings",
            Self::Memory => "Memory, as the kernel shows it",
            Self::Heap => "Heap, by the allocator's own accounts",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub section: Section,
    /// What was looked at, e.g. `open files`.
    pub name: &'static str,
    /// How it stands.
    pub state: State,
    /// What there is, and what follows from it.
    pub found: String,
    /// What to do about it, if it is not well and something can be done.
    pub remedy: Option<String>,
}

impl Finding {
    fn ok(section: Section, name: &'static str, found: impl Into<String>) -> Self {
        Self {
            section,
            name,
            state: State::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    fn weak(section: Section, name: &'static str, found: impl Into<String>) -> Self {
        Self {
            state: State::Weak,
            ..Self::ok(section, name, found)
        }
    }

    fn missing(section: Section, name: &'static str, found: impl Into<String>) -> Self {
        Self {
            state: State::Missing,
            ..Self::ok(section, name, found)
        }
    }

    fn remedy(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }
}

/// Looks at everything, in the order of the page. What the kernel does not show here (in a container,
/// say) is left out, unless its absence says something.
#[must_use]
pub fn examine(machine: &Machine, attempts: &Attempts) -> Vec<Finding> {
    [
        serving::findings(machine, attempts),
        measuring::findings(machine, attempts),
        comparing::findings(machine, attempts),
        deploying::findings(&Facts::of(machine), None),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: this very machine can be examined; what works here (tests run) is not called missing.
    #[test]
    fn this_machine_is_examined() {
        let findings = examine(&Machine::this(), &Attempts::make());
        for name in [
            "io_uring",
            "loopback",
            "open files",
            "allocators",
            "page size",
        ] {
            let finding = findings.iter().find(|one| one.name == name);
            let finding = finding.unwrap_or_else(|| panic!("{name} in {findings:?}"));
            assert_ne!(finding.state, State::Missing, "{finding:?}");
        }
        for finding in &findings {
            assert!(!finding.found.is_empty(), "{finding:?}");
            assert!(
                finding.state == State::Ok || finding.remedy.is_some(),
                "{finding:?}"
            );
        }
    }
}

//! Whether two records asked the same question on the same machine.
//!
//! What would make every number another one is refused, with a sentence that says what to do; what may
//! have changed them is a warning. Absent on purpose: the version of the subject. That it changed is
//! why one asks.

use thiserror::Error;

use crate::record::ComparisonRecord;
use crate::units::{format_bytes, format_rate};

/// Rates that differ by more are another question.
const RATE_TOLERANCE: f64 = 0.01;
/// Memory that the kernel reports differs a little from boot to boot.
const MEMORY_TOLERANCE: f64 = 0.02;

/// Why an earlier record cannot be compared with.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum Incomparable {
    /// Another layout of the record.
    #[error(
        "the earlier record has layout {earlier} and this one {now}: fields mean something else, \
         measure it again"
    )]
    Layout {
        /// Of the earlier one.
        earlier: u32,
        /// Of this one.
        now: u32,
    },
    /// Another server.
    #[error("the earlier record is of another subject: {what} was {earlier}, and is {now}")]
    Subject {
        /// What of it.
        what: &'static str,
        /// Then.
        earlier: String,
        /// Now.
        now: String,
    },
    /// Another machine.
    #[error(
        "the earlier record is of another machine: {what} was {earlier}, and is {now}; make the \
         record that is compared with on this one"
    )]
    Machine {
        /// What of it.
        what: &'static str,
        /// Then.
        earlier: String,
        /// Now.
        now: String,
    },
    /// Another load.
    #[error(
        "the earlier record is of another load: {what} was {earlier}, and is {now}; give the same \
         flags as then"
    )]
    Load {
        /// What of it.
        what: &'static str,
        /// Then.
        earlier: String,
        /// Now.
        now: String,
    },
    /// Nobody is in both.
    #[error("no candidate is in both records; the earlier one has {earlier}")]
    Candidates {
        /// The names.
        earlier: String,
    },
}

fn shown<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "none".to_owned(), T::to_string)
}

/// Refuses what is known to be another question. What `now` does not know yet (rates and work, before
/// they are planned) is passed over.
///
/// # Errors
/// With the first thing that differs.
pub fn check(now: &ComparisonRecord, earlier: &ComparisonRecord) -> Result<(), Incomparable> {
    if now.format_version != earlier.format_version {
        return Err(Incomparable::Layout {
            earlier: earlier.format_version,
            now: now.format_version,
        });
    }
    subject(now, earlier)?;
    machine(now, earlier)?;
    load(now, earlier)
}

fn subject(now: &ComparisonRecord, earlier: &ComparisonRecord) -> Result<(), Incomparable> {
    let facts = |record: &ComparisonRecord| {
        let subject = &record.subject;
        [
            ("the command", subject.command.join(" ")),
            ("the URL", shown(subject.url.as_ref())),
        ]
    };
    for ((what, now), (_, earlier)) in facts(now).into_iter().zip(facts(earlier)) {
        if now != earlier {
            return Err(Incomparable::Subject { what, earlier, now });
        }
    }
    let engine = |record: &ComparisonRecord| record.subject.engine.clone().map(|it| it.name);
    match (engine(now), engine(earlier)) {
        (Some(now), Some(earlier)) if now != earlier => Err(Incomparable::Subject {
            what: "the storage engine",
            earlier,
            now,
        }),
        _ => Ok(()),
    }
}

fn machine(now: &ComparisonRecord, earlier: &ComparisonRecord) -> Result<(), Incomparable> {
    let facts = |record: &ComparisonRecord| {
        let machine = &record.environment;
        [
            ("the architecture", machine.architecture.clone()),
            ("the processor", shown(machine.cpu_model.as_ref())),
            ("the number of processors", machine.cpus.to_string()),
            ("the virtualisation", shown(machine.virtualisation.as_ref())),
        ]
    };
    for ((what, now), (_, earlier)) in facts(now).into_iter().zip(facts(earlier)) {
        if now != earlier {
            return Err(Incomparable::Machine { what, earlier, now });
        }
    }
    let bytes = |record: &ComparisonRecord| record.environment.memory_bytes.map(|it| it as f64);
    match (bytes(now), bytes(earlier)) {
        (Some(now), Some(earlier)) if differs(now, earlier, MEMORY_TOLERANCE) => {
            Err(Incomparable::Machine {
                what: "its memory",
                earlier: format_bytes(earlier),
                now: format_bytes(now),
            })
        }
        _ => Ok(()),
    }
}

fn differs(now: f64, earlier: f64, tolerance: f64) -> bool {
    (now - earlier).abs() > tolerance * earlier.abs()
}

fn load(now: &ComparisonRecord, earlier: &ComparisonRecord) -> Result<(), Incomparable> {
    let facts = |record: &ComparisonRecord| {
        let settings = &record.settings;
        [
            ("the load command", shown(settings.load_command.as_ref())),
            ("its warm-up", settings.load_warm_ups.to_string()),
            (
                "the number of connections",
                settings.connections.to_string(),
            ),
            ("the size of values", shown(settings.value_bytes.as_ref())),
            ("the placement", shown(settings.placement.as_ref())),
            ("--as-cpus", shown(settings.as_cpus.as_ref())),
        ]
    };
    for ((what, now), (_, earlier)) in facts(now).into_iter().zip(facts(earlier)) {
        if now != earlier {
            return Err(Incomparable::Load { what, earlier, now });
        }
    }
    for (operation, &rate) in &now.settings.rate_per_s {
        let before = earlier.settings.rate_per_s.get(operation);
        if before.is_none_or(|&before| differs(rate, before, RATE_TOLERANCE)) {
            return Err(Incomparable::Load {
                what: "the rate of the latency phase",
                earlier: before.map_or_else(|| "none".to_owned(), |rate| format_rate(*rate)),
                now: format_rate(rate),
            });
        }
    }
    let (work, before) = (
        now.settings.memory_requests,
        earlier.settings.memory_requests,
    );
    if work > 0 && work != before {
        return Err(Incomparable::Load {
            what: "the number of requests",
            earlier: before.to_string(),
            now: work.to_string(),
        });
    }
    Ok(())
}

/// What may have changed the numbers without making them another question's.
pub(super) fn warnings(now: &ComparisonRecord, earlier: &ComparisonRecord) -> Vec<String> {
    let facts = |record: &ComparisonRecord| {
        let machine = &record.environment;
        [
            ("the kernel", machine.kernel.clone()),
            ("the distribution", shown(machine.distribution.as_ref())),
            ("the frequency governor", shown(machine.governor.as_ref())),
            ("turbo", shown(machine.turbo.as_ref())),
            (
                "whether idle processors were kept awake",
                shown(machine.idle_cpus_awake.as_ref()),
            ),
            (
                "transparent huge pages",
                shown(machine.transparent_huge_pages.as_ref()),
            ),
            ("the I/O driver", shown(record.subject.driver.as_ref())),
            (
                "the storage engine's version",
                shown(record.subject.engine.as_ref().map(|it| &it.version)),
            ),
        ]
    };
    let known = known_facts(now).into_iter().zip(known_facts(earlier));
    let known = known.filter_map(|((what, now), (_, earlier))| Some((what, now?, earlier?)));
    let pairs = facts(now).into_iter().zip(facts(earlier));
    pairs
        .map(|((what, now), (_, earlier))| (what, now, earlier))
        .chain(known)
        .filter(|(_, now, earlier)| now != earlier)
        .map(|(what, now, earlier)| format!("{what} was {earlier}, and is {now}"))
        .collect()
}

/// What old records do not have: it differs only where both say it.
fn known_facts(record: &ComparisonRecord) -> [(&'static str, Option<String>); 3] {
    let machine = &record.environment;
    let inherited = machine.inherited_variables.as_ref();
    [
        (
            "the size of a page",
            machine.page_bytes.map(|it| it.to_string()),
        ),
        ("the C library", machine.c_library.clone()),
        (
            "what candidates inherit from the shell",
            inherited.map(|it| {
                let allocator = it.allocator.iter().filter(|_| it.kept);
                let all: Vec<&str> = allocator.chain(&it.runtime).map(String::as_str).collect();
                match all.is_empty() {
                    true => "nothing".to_owned(),
                    false => all.join(" "),
                }
            }),
        ),
    ]
}

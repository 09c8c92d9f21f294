//! Instructions per request of every candidate, in passes of their own under an emulator, where the
//! processor's counters are hidden or the user wants them.
//!
//! On the path: `compare` runs it after the heap passes; what it finds stands in the rounds of the same
//! numbers, so that the verdicts are those of any other measure.
//! Absent on purpose: more passes than rounds. A count without a round beside it would be lost.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use millpond_measure::record::Measure;
use millpond_measure::units::format_duration_ns;

use crate::config;
use crate::emulation::{self, Emulator};
use crate::error::{LabError, RunError};
use crate::event::LabEvent;
use crate::journal::Journal;
use crate::matrix::Candidate;
use crate::session::Workshop;

/// What is known when it is decided.
#[derive(Clone, Debug)]
pub(crate) struct Occasion {
    /// How often the user wants each candidate counted; `None`: as it fits.
    pub(crate) wanted: Option<u32>,
    /// A fixed number of rounds.
    pub(crate) rounds: Option<u32>,
    /// The processor counts instructions by itself.
    pub(crate) has_counters: bool,
    /// The load is the user's own program.
    pub(crate) has_load_command: bool,
    /// What the passes may take unless they were asked for.
    pub(crate) allowance: Duration,
    /// What a run takes without its requests.
    pub(crate) overhead: Duration,
    pub(crate) operations: usize,
    pub(crate) candidates: usize,
}

/// What is to be done.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Decision {
    Count {
        valgrind: PathBuf,
        counts: u32,
    },
    No,
    /// There is not enough time: what the record says of it.
    NoTime(String),
}

/// What was counted: per candidate, per pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct InstructionCounts {
    pub(crate) of_candidates: Vec<Vec<Vec<(Measure, f64)>>>,
    /// For the record: by whom, and how often, or why not.
    pub(crate) description: Option<String>,
    /// Lines for the report.
    pub(crate) notes: Vec<String>,
}

fn decide(occasion: &Occasion, valgrind: Option<PathBuf>) -> Decision {
    let Some(valgrind) = valgrind.filter(|_| !occasion.has_load_command) else {
        return Decision::No;
    };
    let counts = match occasion.wanted {
        Some(counts) => counts,
        None if occasion.has_counters => 0,
        None => {
            let counts = emulation::affordable(
                occasion.allowance,
                occasion.overhead,
                occasion.operations,
                occasion.candidates,
            );
            if counts == 0 {
                return Decision::NoTime(no_time(occasion));
            }
            counts
        }
    };
    match counts.min(occasion.rounds.unwrap_or(counts)) {
        0 => Decision::No,
        counts => Decision::Count { valgrind, counts },
    }
}

fn no_time(occasion: &Occasion) -> String {
    let once = emulation::once(occasion.overhead, occasion.operations, occasion.candidates);
    format!(
        "no instructions under valgrind, of which one count takes about {}: --emulated-counts",
        format_duration_ns(once.as_nanos() as f64)
    )
}

/// Counts every candidate as often as is wanted or fits.
pub(crate) fn run(
    workshop: &mut Workshop,
    candidates: &[Candidate],
    occasion: &Occasion,
    slowest_per_s: &[f64],
    journal: &mut Journal,
    events: &mut dyn FnMut(&LabEvent),
    stop: &AtomicBool,
) -> Result<InstructionCounts, LabError> {
    let mut found = InstructionCounts {
        of_candidates: vec![Vec::new(); candidates.len()],
        ..InstructionCounts::default()
    };
    let (valgrind, counts) = match decide(occasion, config::valgrind()) {
        Decision::No => return Ok(found),
        Decision::NoTime(description) => {
            found.description = Some(description);
            return Ok(found);
        }
        Decision::Count { valgrind, counts } => (valgrind, counts),
    };
    let emulator = Emulator::prepare(&valgrind).map_err(|error| LabError::System {
        what: "prepare a directory for valgrind",
        error,
    })?;
    let mut failed = vec![false; candidates.len()];
    for number in 0..counts {
        for (index, candidate) in candidates.iter().enumerate() {
            if failed[index] {
                continue;
            }
            events(&LabEvent::EmulatedCount {
                candidate: candidate.name.clone(),
                number: number as usize * candidates.len() + index + 1,
                of: counts as usize * candidates.len(),
            });
            match emulator.count(workshop, candidate, slowest_per_s, stop) {
                Ok(costs) => {
                    journal.write_emulated(&candidate.name, number, &costs)?;
                    found.of_candidates[index].push(costs);
                }
                Err(RunError::Interrupted) => return Err(LabError::InterruptedEarly),
                Err(error) => {
                    let note = format!("no instructions for {}: {error}", candidate.name);
                    events(&LabEvent::Note(note.clone()));
                    found.notes.push(note);
                    failed[index] = true;
                }
            }
        }
    }
    if found.of_candidates.iter().any(|counts| !counts.is_empty()) {
        found.description = Some(format!(
            "user instructions were counted all the same, under {} ({counts} counts of each)",
            emulator.version()
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occasion() -> Occasion {
        Occasion {
            wanted: None,
            rounds: None,
            has_counters: false,
            has_load_command: false,
            allowance: Duration::from_secs(150),
            overhead: Duration::from_millis(50),
            operations: 1,
            candidates: 3,
        }
    }

    fn counts(occasion: &Occasion) -> u32 {
        match decide(occasion, Some(PathBuf::from("/usr/bin/valgrind"))) {
            Decision::Count { counts, .. } => counts,
            Decision::No => 0,
            Decision::NoTime(_) => u32::MAX,
        }
    }

    /// Goal: counted by itself where nothing else counts, it is here, and there is time; never beyond the
    /// rounds; always if the user says so, and never if he says 0.
    #[test]
    fn counting_is_for_machines_without_counters() {
        let usual = occasion();
        assert_eq!(counts(&usual), 7);
        assert_eq!(decide(&usual, None), Decision::No);
        let counted = Occasion {
            has_counters: true,
            ..occasion()
        };
        assert_eq!(counts(&counted), 0);
        let wanted = Occasion {
            wanted: Some(12),
            ..counted
        };
        assert_eq!(counts(&wanted), 12);
        let few = Occasion {
            rounds: Some(3),
            ..occasion()
        };
        assert_eq!(counts(&few), 3);
        let none = Occasion {
            wanted: Some(0),
            ..occasion()
        };
        assert_eq!(counts(&none), 0);
        let own = Occasion {
            has_load_command: true,
            ..occasion()
        };
        assert_eq!(counts(&own), 0);
        let hasty = Occasion {
            allowance: Duration::from_secs(20),
            ..occasion()
        };
        assert!(matches!(
            decide(&hasty, Some(PathBuf::from("/usr/bin/valgrind"))),
            Decision::NoTime(why) if why.contains("about 21") && why.contains("--emulated-counts")
        ));
    }
}

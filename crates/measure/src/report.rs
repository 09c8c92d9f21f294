//! Reports for people: the same record for a terminal, for a browser, and in wrk's format.
//!
//! The last station. Everything here only reads; no number is computed that is not in the record,
//! so that two readers of one record cannot disagree.

pub mod terminal;
pub mod html;
pub mod wrk;
pub mod csv;
pub mod ab;
pub mod hlog;
pub mod curve;
mod deploy;
mod settings_front;
pub mod junit;

use crate::record::{ComparisonRecord, Measure, Quantity};
use crate::statistics::{Comparison, Verdict};
use crate::units::format_bytes;

/// One character for the result of a comparison.
pub(crate) const fn mark(verdict: &Verdict) -> char {
    match verdict {
        Verdict::Better => '+',
        Verdict::Worse => '-',
        Verdict::Equivalent => '=',
        Verdict::Undecided { .. } => '?',
        Verdict::NotTrusted { .. } => '!',
    }
}

/// The meaning of the marks.
pub(crate) const MARKS: &str =
    "+ better, - worse than the baseline, = equivalent, ? undecided, ! not to be trusted";

/// The comparison of one candidate among those of a measure.
pub(crate) fn find<'a>(comparisons: &'a [Comparison], candidate: &str) -> Option<&'a Comparison> {
    comparisons.iter().find(|one| one.candidate == candidate)
}

/// On how many CPUs it was measured, and what that leaves out; `None` for a record without its machine.
pub(crate) fn cpus_line(record: &ComparisonRecord) -> Option<String> {
    let cpus = record.environment.cpus;
    let placement = record.settings.placement.as_ref().filter(|_| cpus > 0)?;
    let plural = if cpus == 1 { "" } else { "s" };
    let arenas = record.settings.as_cpus;
    let arenas = arenas.map_or_else(String::new, |count| format!(", arenas as on {count}"));
    let unpinned = Measure::whole(Quantity::UnpinnedMemory);
    let is_bound = placement.starts_with("server");
    let has_unpinned = record
        .candidates
        .iter()
        .any(|one| one.median(unpinned).is_some());
    let memory = match is_bound && !has_unpinned && record.settings.load_command.is_none() {
        true => ", memory on all CPUs not measured",
        false => "",
    };
    Some(format!(
        "{cpus} CPU{plural} ({placement}){arenas}{memory}: what contention on many more does to an allocator is not shown here"
    ))
}

/// Limits by the user that are below the machine's.
pub(crate) fn limits(record: &ComparisonRecord) -> Vec<String> {
    let settings = &record.settings;
    let memory = settings.memory_limit_bytes;
    let memory = memory.map(|bytes| format!("memory limited to {}", format_bytes(bytes as f64)));
    let pages = settings.huge_pages.map(|may_have| {
        let word = if may_have { "on" } else { "off" };
        format!("transparent huge pages {word} for every candidate (--thp)")
    });
    memory.into_iter().chain(pages).collect()
}

/// The smallest memory limit of each candidate, if searched for.
pub(crate) fn limit_sentences(record: &ComparisonRecord) -> Vec<String> {
    let candidates = record.candidates.iter();
    candidates
        .filter_map(|one| Some(one.limit?.sentence(&one.name)))
        .collect()
}

/// How sure the least sure of the intervals is; `None` without any.
pub(crate) fn least_confidence<'a>(
    comparisons: impl IntoIterator<Item = &'a Comparison>,
) -> Option<f64> {
    let known = comparisons
        .into_iter()
        .filter(|one| one.estimate().is_some() && one.rounds > 1);
    known
        .map(|one| one.confidence)
        .reduce(f64::min)
        .filter(|least| *least > 0.0)
}

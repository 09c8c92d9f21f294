//! The plan in sentences, before the first round.

use std::fmt::Write as _;
use std::time::Duration;

use millpond_measure::statistics::Looks;
use millpond_measure::units::{format_duration_ns, format_percent, format_rate};

use super::{Known, Plan, RATE_SHARE};
use crate::config::ROUNDS_DEFAULT;

impl Plan {
    /// The decisions as sentences.
    #[must_use]
    pub fn describe(&self, operations: &[&str], candidates: u32, known: &Known) -> Vec<String> {
        let nanoseconds = |duration: Duration| format_duration_ns(duration.as_nanos() as f64);
        let at_most = if self.looks.len() > 1 { "at most " } else { "" };
        let mut lines = vec![format!(
            "{at_most}{} rounds of {candidates} candidates, about {} each: {} in all",
            self.rounds,
            nanoseconds(self.run),
            nanoseconds(self.duration(candidates)),
        )];
        lines.extend(self.describe_looks());
        if let Some(phased) = &self.phased {
            lines.extend(phased.describe(self.rate_per_s.first().copied()));
            lines.extend(self.describe_warm_up(operations));
        } else if known.load_command.is_some() {
            lines.push(format!(
                "in each run the load command, about {} with its warm-up",
                nanoseconds(self.throughput_phase)
            ));
        } else {
            lines.extend(self.describe_phases(operations, known));
        }
        lines.extend(self.describe_limits(known));
        lines
    }

    /// When it ends, and what looking costs.
    fn describe_looks(&self) -> Option<String> {
        let (last, earlier) = self.looks.split_last()?;
        if earlier.is_empty() {
            return None;
        }
        let earlier: Vec<String> = earlier.iter().map(u32::to_string).collect();
        let looks = Looks::planned(self.looks.len());
        Some(format!(
            "over when every verdict is decided, after {} or {last} rounds: each look may err in {} of \
             the 5 % of comparisons",
            earlier.join(", "),
            format_percent(looks.significance())
        ))
    }

    fn describe_warm_up(&self, operations: &[&str]) -> Option<String> {
        let parts: Vec<String> = operations
            .iter()
            .zip(&self.warm_up_requests)
            .filter(|(_, requests)| **requests > 0)
            .map(|(operation, requests)| format!("{requests} {}", plural(operation)))
            .collect();
        let why = if self.warm_up_is_cut {
            "less than it took until all were steady, to keep the time budget"
        } else {
            "what it took until all were steady"
        };
        (!parts.is_empty()).then(|| format!("warm-up per run: {} ({why})", parts.join(", ")))
    }

    fn describe_writes(&self, operations: &[&str]) -> Option<String> {
        let place = (0..operations.len()).find(|&place| self.has_long_slices(place))?;
        let ([closed, paced, _], [slice, latency, _]) = (self.counts(place), self.windows(place));
        Some(format!(
            "but for {}: {closed} of {} ms, {paced} of {} ms and no block, so that each has its flushes and a compaction",
            operations.get(place)?,
            slice.as_millis(),
            latency.as_millis(),
        ))
    }

    fn describe_phases(&self, operations: &[&str], known: &Known) -> Vec<String> {
        let milliseconds = |duration: Duration| format!("{} ms", duration.as_millis());
        let mut work = String::from("memory after equal work:");
        let mut rates = String::from("the same rate for all:");
        for (index, operation) in operations.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            let requests = self.requests.get(index).copied().unwrap_or(0);
            let rate = self.rate_per_s.get(index).copied().unwrap_or(0.0);
            let name = plural(operation);
            let _ = write!(work, "{separator} {requests} {name}");
            let _ = write!(rates, "{separator} {name} at {}", format_rate(rate));
        }
        let block = match self.block.is_zero() {
            true => ", unchecked by blocks, for which there is no time".to_owned(),
            false => format!(
                " and one block of {} which they have to agree with",
                milliseconds(self.block)
            ),
        };
        let slices = format!(
            "slices on fresh connections, in each round and for each candidate: in the closed loop {} of {}{block}; \
             at the constant rate {} of {}; each after {} to settle",
            self.cycles,
            milliseconds(self.slice),
            self.paced,
            milliseconds(self.latency_phase),
            milliseconds(self.settle),
        );
        let mut lines = vec![slices, work, rates];
        lines.extend(self.describe_writes(operations));
        lines.extend(self.describe_warm_up(operations));
        if known.rate_per_s.is_none() {
            lines.push(format!(
                "(that is {RATE_SHARE} of what the slowest candidate can do)"
            ));
        }
        lines
    }

    /// What a reader has to know of the number of rounds.
    fn describe_limits(&self, known: &Known) -> Vec<String> {
        let mut lines = Vec::new();
        if known.rounds.is_none() && self.rounds < ROUNDS_DEFAULT {
            lines.push(format!(
                "fewer than the usual {ROUNDS_DEFAULT} rounds, to keep the time budget; small \
                 differences may stay undecided"
            ));
        }
        if let Some(floor) = self.missed_floor {
            lines.push(format!(
                "memory gets no verdict: a run has no time for the {floor} requests that it would take; a longer \
                 --time-budget has"
            ));
        }
        lines.extend(self.describe_unpinned(known));
        if self.rounds < self.rounds_min {
            lines.push(format!(
                "below {} rounds no difference between so many candidates can be called \
                 significant, however large",
                self.rounds_min
            ));
        }
        if self.over_budget {
            lines.push(
                "this is longer than the time budget allows: fewer candidates (--allocators, \
                 --pools) or a larger --time-budget help"
                    .to_owned(),
            );
        }
        lines
    }
}

/// What many of an operation are called: methods have no plural.
fn plural(operation: &str) -> &str {
    match operation {
        "request" => "requests",
        method => method,
    }
}

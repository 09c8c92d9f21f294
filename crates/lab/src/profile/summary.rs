//! A profile in words, for a terminal.

use std::fmt::{self, Display, Formatter};

use millpond_measure::units::{format_bytes, format_count};

use super::cost::{Cost, Spread};
use super::{AllocationFigures, CandidateProfile, CpuFigures, ProfileOutcome};

impl Display for ProfileOutcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.record.subject)?;
        for candidate in &self.record.candidates {
            candidate.fmt(f)?;
        }
        if !self.record.notes.is_empty() {
            writeln!(f)?;
        }
        for note in &self.record.notes {
            writeln!(f, "note: {note}")?;
        }
        writeln!(f)?;
        for file in &self.files {
            writeln!(f, "{}", file.display())?;
        }
        Ok(())
    }
}

impl Display for CandidateProfile {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", self.name)?;
        if let Some(cpu) = &self.cpu {
            write_cpu(f, cpu)?;
        }
        if let Some(allocations) = &self.allocations {
            write_allocations(f, allocations)?;
        }
        Ok(())
    }
}

fn write_cpu(f: &mut Formatter<'_>, cpu: &CpuFigures) -> fmt::Result {
    writeln!(
        f,
        "  CPU: {} samples of {} at {} Hz; {}",
        cpu.samples, cpu.event, cpu.samples_per_s, cpu.unwind
    )?;
    write_heaviest(f, &cpu.heaviest)?;
    write_cost(f, cpu.cost.as_ref())
}

fn write_allocations(f: &mut Formatter<'_>, found: &AllocationFigures) -> fmt::Result {
    // Of independent samples.
    let error = 1.0 / (found.samples.max(1) as f64).sqrt();
    writeln!(
        f,
        "  allocations: {} in {} calls, estimated from {} samples (one in {}; the sum of bytes is good \
         to about {:.1} %)",
        format_bytes(found.bytes as f64),
        format_count(found.calls as f64),
        found.samples,
        format_bytes(found.sample_bytes as f64),
        200.0 * error,
    )?;
    write_heaviest(f, &found.heaviest)?;
    write_cost(f, found.cost.as_ref())
}

fn write_heaviest(f: &mut Formatter<'_>, heaviest: &[(String, f64)]) -> fmt::Result {
    for (name, share) in heaviest {
        writeln!(f, "    {:5.1} %  {name}", 100.0 * share)?;
    }
    Ok(())
}

fn write_cost(f: &mut Formatter<'_>, cost: Option<&Cost>) -> fmt::Result {
    let Some(cost) = cost else { return Ok(()) };
    let words = |spread: &Spread| {
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        format!(
            "{:+.1} % ({:+.1} to {:+.1} %)",
            percent(spread.ratio),
            percent(spread.low),
            percent(spread.high)
        )
    };
    let mut parts = Vec::new();
    if let Some(cpu_time) = &cost.cpu_time {
        parts.push(format!("{} of the server's CPU time", words(cpu_time)));
    }
    if let Some(time) = &cost.time {
        parts.push(format!("{} of the time for the same work", words(time)));
    }
    writeln!(
        f,
        "    this profiler took {}, in {} pairs of runs with and without it",
        parts.join(" and "),
        cost.pairs
    )?;
    if cost.is_noisy {
        writeln!(
            f,
            "    (noisy: runs without it differ by {:.0} % among themselves)",
            100.0 * (cost.without_varies - 1.0)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: totals, the heaviest, what it cost and that it is noisy are all said.
    #[test]
    fn a_candidate_in_words() {
        let spread = |ratio: f64| Spread {
            ratio,
            low: ratio - 0.01,
            high: ratio + 0.01,
        };
        let candidate = CandidateProfile {
            name: "mimalloc".to_owned(),
            cpu: None,
            allocations: Some(AllocationFigures {
                samples: 10_000,
                dropped: 0,
                without_stack: 0,
                sample_bytes: 524_288,
                calls: 2_000_000,
                bytes: 5 << 30,
                heaviest: vec![("parse".to_owned(), 0.25)],
                cost: Some(Cost {
                    pairs: 5,
                    time: Some(spread(1.02)),
                    cpu_time: Some(spread(1.03)),
                    without_varies: 1.4,
                    is_noisy: true,
                }),
            }),
        };
        let text = candidate.to_string();
        for part in [
            "5.00 GiB in 2.00M calls, estimated from 10000 samples (one in 512 KiB",
            "good to about 2.0 %",
            " 25.0 %  parse",
            "+3.0 % (+2.0 to +4.0 %) of the server's CPU time and +2.0 %",
            "in 5 pairs",
            "noisy: runs without it differ by 40 %",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}

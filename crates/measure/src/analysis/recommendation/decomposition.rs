//! Where the cost of a request differs: in instructions, in stalls, in the kernel.
//!
//! With hardware counters the cost is cycles, and its difference is taken apart by identities, so
//! that the parts add up to the whole:
//!
//! ```text
//! cycles = user + kernel;  user = instructions * (cycles for each instruction)
//! instructions: what the change in their number costs at the baseline's cycles for each
//! stalls:       what is left of the change in user mode: caches, TLB, branches
//! kernel:       page faults, system calls
//! ```
//!
//! Without them it is CPU time, in user mode and in the kernel. Page faults, misses and heap calls
//! stand beside the part that they belong to, with their own verdicts; what a fault or a miss costs
//! is not known, and not assumed.

use super::super::Field;
use super::super::question::measures_of;
use crate::record::{CostDifference, CostPart, Quantity};
use crate::statistics::{Comparison, Verdict};
use crate::units::{format_percent, format_three_digits};

/// A part smaller than this share of the whole is not mentioned.
const PART_MIN: f64 = 0.005;

/// The comparisons of one candidate with the baseline, by quantity, all operations together.
pub(super) struct Evidence<'a, 'b> {
    field: &'a Field<'b>,
    candidate: &'a str,
}

/// Ratio, baseline's value, and whether the rounds decide.
#[derive(Clone, Copy)]
struct Cost {
    ratio: f64,
    baseline: f64,
    decided: bool,
}

impl<'a, 'b> Evidence<'a, 'b> {
    pub(super) fn new(field: &'a Field<'b>, candidate: &'a str) -> Self {
        Self { field, candidate }
    }

    pub(super) fn comparison(&self, quantity: Quantity) -> Option<Comparison> {
        let measures = measures_of(self.field, &[quantity]);
        let comparisons = self.field.compare(&measures);
        comparisons
            .into_iter()
            .find(|one| one.candidate == self.candidate)
    }

    fn cost(&self, quantity: Quantity) -> Option<Cost> {
        let comparison = self.comparison(quantity)?;
        if matches!(comparison.verdict, Verdict::NotTrusted { .. }) {
            return None;
        }
        Some(Cost {
            ratio: comparison.ratio?,
            baseline: comparison.baseline_value?,
            decided: !matches!(comparison.verdict, Verdict::Undecided { .. }),
        })
    }

    /// The difference taken apart, as far as was counted; `None` if no cost was.
    pub(super) fn difference(&self) -> Option<CostDifference> {
        self.in_cycles().or_else(|| self.in_cpu_time())
    }

    fn in_cycles(&self) -> Option<CostDifference> {
        let user = self.cost(Quantity::Cycles)?;
        let instructions = self.cost(Quantity::Instructions)?;
        let kernel = self.cost(Quantity::KernelCycles);
        let kernel_cycles = kernel.map_or(0.0, |kernel| kernel.baseline);
        let whole = user.baseline + kernel_cycles;
        if whole <= 0.0 {
            return None;
        }
        let share = user.baseline / whole;
        let mut parts = vec![
            part(
                "instructions",
                (instructions.ratio - 1.0) * share,
                instructions.decided,
            ),
            part(
                "stalls",
                (user.ratio - instructions.ratio) * share,
                user.decided && instructions.decided,
            ),
        ];
        if let Some(kernel) = kernel {
            let change = (kernel.ratio - 1.0) * kernel_cycles / whole;
            parts.push(part("kernel", change, kernel.decided));
        }
        Some(sum(
            CostDifference::new(self.candidate, Quantity::Cycles),
            parts,
        ))
    }

    fn in_cpu_time(&self) -> Option<CostDifference> {
        let user = self.cost(Quantity::UserCpu);
        let system = self.cost(Quantity::SystemCpu);
        let empty = CostDifference::new(self.candidate, Quantity::CpuTime);
        if let Some((user, system)) = user.zip(system)
            && user.baseline + system.baseline > 0.0
        {
            let whole = user.baseline + system.baseline;
            let change = |cost: Cost| (cost.ratio - 1.0) * cost.baseline / whole;
            let parts = vec![
                part("user", change(user), user.decided),
                part("system", change(system), system.decided),
            ];
            return Some(sum(empty, parts));
        }
        let cpu = self.cost(Quantity::CpuTime)?;
        let parts = vec![part("user and system", cpu.ratio - 1.0, cpu.decided)];
        Some(sum(empty, parts))
    }

    /// The words for it, after "because" or "although": `None` if it shows nothing, or nothing certain.
    pub(super) fn words(&self, difference: &CostDifference) -> Option<String> {
        let in_cycles = difference.unit == Quantity::Cycles.key();
        if difference.change.abs() < PART_MIN
            || self.proved(difference, in_cycles) * difference.change <= 0.0
        {
            return None;
        }
        let (amount, more) = amount(difference.change);
        let (more, unit) = match (in_cycles, more) {
            (true, "less") => ("fewer", "cycles"),
            (true, _) => (more, "cycles"),
            (false, _) => (more, "CPU time"),
        };
        let told: Vec<String> = difference
            .parts
            .iter()
            .filter(|part| part.decided && part.change.abs() >= PART_MIN)
            .map(|part| self.part_words(part))
            .collect();
        let open = difference
            .parts
            .iter()
            .any(|part| !part.decided && part.change.abs() >= PART_MIN);
        let mut text = format!("it needs {amount} {more} {unit} per request");
        if !told.is_empty() {
            text += &format!(": {}", told.join(", "));
        }
        if open {
            text += "; the rounds do not distinguish the rest";
        }
        if !in_cycles {
            text += &self.without_counters();
        }
        Some(text)
    }

    /// What emulated instructions show of a difference in CPU time, or that nothing does.
    fn without_counters(&self) -> String {
        match self.comparison(Quantity::EmulatedInstructions) {
            Some(one) if one.verdict.is_difference() => format!(
                "; of its instructions in user mode (by valgrind) there are {}, and what caches add \
                 is unknown without hardware counters",
                one.ratio_text()
            ),
            Some(one) if one.verdict == Verdict::Equivalent => {
                "; it takes as many instructions in user mode (by valgrind), so the difference lies \
                 in caches or in the kernel"
                    .to_owned()
            }
            _ => "; without hardware counters the allocator's own work and caches cannot be \
                  distinguished"
                .to_owned(),
        }
    }

    /// The change of what is certainly different. Cycles in user mode and in the kernel are judged each on
    /// its own; CPU time has a verdict as a whole.
    fn proved(&self, difference: &CostDifference, in_cycles: bool) -> f64 {
        let certain = |quantity| {
            self.comparison(quantity)
                .filter(|one| one.verdict.is_difference())
        };
        if !in_cycles {
            let ratio = certain(Quantity::CpuTime).and_then(|one| one.ratio);
            return ratio.map_or(0.0, |ratio| ratio - 1.0);
        }
        let user = certain(Quantity::Cycles).is_some();
        let kernel = certain(Quantity::KernelCycles).is_some();
        let parts = difference.parts.iter();
        parts
            .filter(|part| if part.part == "kernel" { kernel } else { user })
            .map(|part| part.change)
            .sum()
    }

    fn part_words(&self, part: &CostPart) -> String {
        let (amount, more) = amount(part.change);
        match part.part.as_str() {
            "instructions" => format!("{amount} {more} by its instructions{}", self.calls()),
            "stalls" => format!("{amount} {more} by stalls{}", self.misses()),
            "kernel" | "system" => format!("{amount} {more} in the kernel{}", self.faults()),
            _ => format!("{amount} {more} in user mode{}", self.calls()),
        }
    }

    /// Heap calls are counted once: with pools on and off they differ by themselves, otherwise not.
    fn calls(&self) -> String {
        let both = self
            .comparison(Quantity::HeapCalls)
            .and_then(|one| one.candidate_value.zip(one.baseline_value));
        match both {
            Some((own, baseline)) if (own / baseline - 1.0).abs() > 0.01 => format!(
                " ({} heap calls per request, not {})",
                format_three_digits(own),
                format_three_digits(baseline)
            ),
            _ => String::new(),
        }
    }

    fn faults(&self) -> String {
        match self.comparison(Quantity::PageFaults) {
            Some(one) if one.verdict.is_difference() => {
                format!(" (page faults {})", one.ratio_text())
            }
            Some(one) if one.verdict == Verdict::Equivalent => {
                " (not by page faults: they are equal)".to_owned()
            }
            _ => String::new(),
        }
    }

    fn misses(&self) -> String {
        let changed: Vec<String> = [
            Quantity::L1dMisses,
            Quantity::CacheMisses,
            Quantity::DtlbMisses,
            Quantity::BranchMisses,
        ]
        .into_iter()
        .filter_map(|quantity| {
            let one = self.comparison(quantity)?;
            let name = quantity.label().trim_end_matches("/req");
            one.verdict
                .is_difference()
                .then(|| format!("{name} {}", one.ratio_text()))
        })
        .collect();
        if changed.is_empty() {
            " (the counters do not show which of caches, TLB and branches)".to_owned()
        } else {
            format!(" ({})", changed.join(", "))
        }
    }
}

fn part(name: &str, change: f64, decided: bool) -> CostPart {
    CostPart {
        part: name.to_owned(),
        change,
        decided,
    }
}

fn sum(empty: CostDifference, parts: Vec<CostPart>) -> CostDifference {
    CostDifference {
        change: parts.iter().map(|part| part.change).sum(),
        parts,
        ..empty
    }
}

fn amount(change: f64) -> (String, &'static str) {
    let more = if change < 0.0 { "less" } else { "more" };
    (format_percent(change.abs()), more)
}

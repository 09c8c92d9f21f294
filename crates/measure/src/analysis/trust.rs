//! When numbers must not be trusted: failed runs, a noisy machine, a baseline unlike itself.

use std::collections::BTreeMap;

use crate::record::{
    CandidateRounds, ComparisonRecord, Measure, MeasureComparisons, NoiseFlag, NoiseKind,
    Operation, Quantity, QuestionVerdict, RoundMeasures, RoundStatus, Unit, UnpinnedMemory,
    Verdicts,
};
use crate::statistics::{
    Comparison, PairedRounds, RoundPair, Rule, TwoSamples, Verdict, at_least_p, correct_for_all,
    holm, median,
};
use crate::units::{format_bytes, format_percent};

use super::{Design, Field};

/// A server that uses less of its CPUs in a closed loop waits for something else.
const IDLE_SERVER_SHARE: f64 = 0.10;
/// The chance of calling a candidate's bad luck its own doing.
const OWN_DISTURBANCE_P: f64 = 0.01;
/// More than this share of flagged or failed rounds makes them untrusted.
pub(super) const TROUBLE_SHARE_MAX: f64 = 0.20;

/// The reason why a comparison of these two in these measures must not be trusted, if there is one.
pub(super) fn trouble(
    candidate: &CandidateRounds,
    baseline: &CandidateRounds,
    measures: &[Measure],
    pairs: usize,
) -> Option<String> {
    for side in [candidate, baseline] {
        let failures: Vec<&str> = side.rounds.iter().filter_map(failure).collect();
        let share = failures.len() as f64 / side.rounds.len().max(1) as f64;
        if share > TROUBLE_SHARE_MAX {
            let (failed, begun) = (failures.len(), side.rounds.len());
            let reason = failures[0];
            return Some(format!(
                "{failed} of {begun} runs of {} failed: {reason}",
                side.name
            ));
        }
    }
    if pairs == 0 {
        let both = "it was not measured in the same round";
        let missing = [candidate, baseline].into_iter().find(|side| {
            !side
                .rounds
                .iter()
                .any(|round| measures.iter().all(|&m| round.get(m).is_some()))
        });
        return Some(missing.map_or_else(
            || both.to_owned(),
            |side| format!("it was not measured for {}", side.name),
        ));
    }
    noise(candidate, baseline, measures)
}

fn failure(round: &RoundMeasures) -> Option<&str> {
    match &round.status {
        RoundStatus::Failed { reason, .. } => Some(reason),
        RoundStatus::Done | RoundStatus::Interrupted => None,
    }
}

/// Counts rounds in which either side was disturbed; names the disturbance seen most often.
fn noise(
    candidate: &CandidateRounds,
    baseline: &CandidateRounds,
    measures: &[Measure],
) -> Option<String> {
    let mut rounds = 0_usize;
    let mut flagged = 0_usize;
    let mut by_kind: BTreeMap<NoiseKind, (usize, f64)> = BTreeMap::new();
    for round in &candidate.rounds {
        let Some(other) = baseline
            .rounds
            .iter()
            .find(|other| other.round == round.round)
        else {
            continue;
        };
        rounds += 1;
        let flags: Vec<&NoiseFlag> = round
            .noise
            .iter()
            .chain(&other.noise)
            .filter(|flag| measures.iter().any(|&measure| taints(flag, measure)))
            .collect();
        flagged += usize::from(!flags.is_empty());
        let mut seen: BTreeMap<NoiseKind, f64> = BTreeMap::new();
        for flag in flags {
            let worst = seen.entry(flag.kind).or_default();
            *worst = worst.max(flag.value);
        }
        for (kind, value) in seen {
            let entry = by_kind.entry(kind).or_default();
            *entry = (entry.0 + 1, entry.1.max(value));
        }
    }
    if rounds == 0 || flagged as f64 <= TROUBLE_SHARE_MAX * rounds as f64 {
        return None;
    }
    let (kind, (count, worst)) = by_kind.into_iter().max_by_key(|(_, (count, _))| *count)?;
    let worst = match kind {
        NoiseKind::GeneratorInvalid => String::new(),
        NoiseKind::LittleWork => format!(" (at most {worst:.0})"),
        NoiseKind::GeneratorCpu => format!(" ({} of its CPU)", format_percent(worst)),
        NoiseKind::LateSends => format!(" (up to {} of requests)", format_percent(worst)),
        NoiseKind::Frequency => format!(" (by up to {})", format_percent(worst)),
        NoiseKind::ForeignCpu | NoiseKind::Steal | NoiseKind::Pressure => {
            format!(" (up to {})", format_percent(worst))
        }
    };
    Some(format!(
        "{}{worst} in {count} of {rounds} rounds",
        kind.label()
    ))
}

/// Whether a disturbance can have changed a measure.
fn taints(flag: &NoiseFlag, measure: Measure) -> bool {
    let quantity = measure.quantity;
    let is_latency = matches!(
        quantity,
        Quantity::ResponseP50 | Quantity::ResponseP99 | Quantity::ServiceP50 | Quantity::ServiceP99
    );
    let is_throughput = quantity == Quantity::Throughput;
    let by_kind = match flag.kind {
        NoiseKind::ForeignCpu | NoiseKind::Steal | NoiseKind::Frequency | NoiseKind::Pressure => {
            quantity.depends_on_wall_clock()
        }
        NoiseKind::GeneratorCpu => is_throughput,
        NoiseKind::LittleWork => quantity.unit() == Unit::Bytes && quantity != Quantity::HeapBytes,
        NoiseKind::LateSends => is_latency,
        NoiseKind::GeneratorInvalid => is_throughput || is_latency,
    };
    let in_phase = flag.phase.as_deref().is_none_or(|phase| {
        phase.split(' ').all(|word| match word {
            "throughput" => !is_latency,
            "latency" => !is_throughput,
            "memory" => !is_latency && !is_throughput,
            word => Operation::ALL
                .into_iter()
                .find(|operation| operation.key() == word)
                .is_none_or(|operation| measure.operation.is_none_or(|own| own == operation)),
        })
    });
    by_kind && in_phase
}

/// If the A/A candidate shows a difference, so might anything: all differences of this measure lose
/// their verdict. "Equivalent" and "undecided" stand, they claim nothing that the A/A disproves.
pub(super) fn distrust_if_baseline_differs_from_itself(
    field: &Field<'_>,
    comparisons: &mut [Comparison],
    rule: &Rule,
) {
    let Some(reason) = self_difference_reason(field, comparisons) else {
        return;
    };
    for comparison in comparisons {
        if comparison.verdict.is_difference() && !field.is_baseline_again(&comparison.candidate) {
            comparison.verdict = Verdict::NotTrusted {
                reason: reason.clone(),
            };
            comparison.describe(&rule.label);
        }
    }
}

/// Why this measure should not be trusted at all, if the A/A candidate shows a difference.
pub(super) fn self_difference_reason(
    field: &Field<'_>,
    comparisons: &[Comparison],
) -> Option<String> {
    let figures = self_difference(field, comparisons)?;
    Some(format!(
        "the baseline run twice differs from itself ({figures})"
    ))
}

fn self_difference(field: &Field<'_>, comparisons: &[Comparison]) -> Option<String> {
    comparisons
        .iter()
        .find(|one| field.is_baseline_again(&one.candidate) && one.verdict.is_difference())
        .map(Comparison::ratio_text)
}

/// The same, for the list of warnings.
pub(super) fn self_difference_warning(
    field: &Field<'_>,
    label: &str,
    comparisons: &[Comparison],
) -> Option<String> {
    let figures = self_difference(field, comparisons)?;
    Some(format!(
        "{label}: the baseline run twice differs from itself ({figures}); differences in {label} \
         are not to be trusted"
    ))
}

/// The sentence on the A/A candidate: whether it behaved, in every question that could have called
/// it different. Too few rounds, or noise, could not: then nothing was checked and nothing is said.
pub(super) fn self_check(field: &Field<'_>, verdicts: &Verdicts) -> String {
    let mut same = Vec::new();
    let mut differs = Vec::new();
    for (what, question) in [
        ("throughput", &verdicts.throughput),
        ("latency", &verdicts.latency),
        ("memory", &verdicts.memory),
    ] {
        let again = question
            .comparisons
            .iter()
            .find(|one| field.is_baseline_again(&one.candidate));
        let Some(comparison) = again.filter(|one| one.detectable.is_some()) else {
            continue;
        };
        if matches!(comparison.verdict, Verdict::NotTrusted { .. }) {
            continue;
        }
        let text = format!("{what} {}", comparison.ratio_text());
        if comparison.verdict.is_difference() {
            &mut differs
        } else {
            &mut same
        }
        .push(text);
    }
    let baseline = &field.baseline.name;
    match (differs.as_slice(), same.as_slice()) {
        ([], []) => String::new(),
        ([], same) => {
            format!(
                "Self-check: {baseline} run twice is not called different: {}.",
                same.join(", ")
            )
        }
        (differs, _) => format!(
            "Self-check FAILED: {baseline} run twice differs from itself: {}.",
            differs.join(", ")
        ),
    }
}

/// For each operation in whose closed loop every server was idle for nearly all of the time: then throughput is
/// what its waiting lets it be, and nothing that an allocator does changes it.
pub(super) fn idle_server_warnings(field: &Field<'_>) -> Vec<String> {
    let busiest = |operation: Operation| {
        let shares = field.all().filter_map(|candidate| {
            let rounds = candidate.rounds.iter();
            let mut shares: Vec<f64> = rounds
                .filter_map(|round| round.server_busy.get(operation.key()).copied())
                .collect();
            median(&mut shares)
        });
        shares.reduce(f64::max)
    };
    Operation::ALL
        .into_iter()
        .filter_map(|operation| Some((operation, busiest(operation)?)))
        .filter(|&(_, share)| share < IDLE_SERVER_SHARE)
        .map(|(operation, share)| {
            format!(
                "{} throughput: the servers used only {} of their CPUs in the closed loop; what limits them is \
                 waiting (a disk, a sleep, another service) or the number of connections, and no allocator \
                 changes that",
                operation.label(),
                format_percent(share)
            )
        })
        .collect()
}

/// Of each candidate whose slices were disturbed more often than those of the others, by more than chance.
pub(super) fn own_disturbance_warnings(field: &Field<'_>) -> Vec<String> {
    let disturbed = |candidate: &CandidateRounds| -> u32 {
        let rounds = candidate.rounds.iter();
        rounds.map(|round| round.disturbed_slices).sum()
    };
    let all: u32 = field.all().map(disturbed).sum();
    let candidates = field.all().count() as f64;
    let chances: Vec<f64> = field
        .all()
        .map(|candidate| at_least_p(disturbed(candidate), all, 1.0 / candidates))
        .collect();
    let unusual = field.all().zip(holm(&chances));
    let unusual = unusual.filter(|&(_, p)| p < OWN_DISTURBANCE_P);
    unusual
        .map(|(candidate, _)| {
            format!(
                "{}: {} of all {all} disturbed slices were its own, more than chance; what disturbs it may be \
                 itself, so they count as they are and are not repeated once that is known",
                candidate.name,
                disturbed(candidate)
            )
        })
        .collect()
}

/// Events in the runs as such.
pub(super) fn warnings_of_runs(field: &Field<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for candidate in field.all() {
        let name = &candidate.name;
        let begun = candidate.rounds.len();
        let failures: Vec<&str> = candidate.rounds.iter().filter_map(failure).collect();
        if let Some(reason) = failures.first() {
            warnings.push(format!(
                "{name}: {} of {begun} runs failed: {reason}",
                failures.len()
            ));
        }
        let errors: u64 = candidate.rounds.iter().map(|round| round.errors).sum();
        let requests: u64 = candidate.rounds.iter().map(|round| round.requests).sum();
        if errors > 0 {
            let all = errors + requests;
            warnings.push(format!(
                "{name}: {errors} of {all} requests failed; they are in no other figure"
            ));
        }
    }
    let rounds: Vec<&RoundMeasures> = field.all().flat_map(|one| &one.rounds).collect();
    for kind in [
        NoiseKind::ForeignCpu,
        NoiseKind::Steal,
        NoiseKind::GeneratorCpu,
        NoiseKind::LateSends,
        NoiseKind::GeneratorInvalid,
        NoiseKind::Frequency,
        NoiseKind::Pressure,
        NoiseKind::LittleWork,
    ] {
        let has = |round: &&&RoundMeasures| round.noise.iter().any(|flag| flag.kind == kind);
        let count = rounds.iter().filter(has).count();
        if count > 0 {
            warnings.push(format!(
                "in {count} of {} runs {}",
                rounds.len(),
                kind.label()
            ));
        }
    }
    if !field.others.is_empty()
        && !field
            .others
            .iter()
            .any(|one| field.is_baseline_again(&one.name))
    {
        warnings.push("the baseline was not run twice, so the method was not checked here".into());
    }
    warnings
}

// Memory of servers that may use all CPUs beside that of those bound to some: allocators and runtimes size themselves by
// the CPUs that they see.

/// Every candidate's memory both ways, if that of one is proved to differ and does so by more than the margin; in the
/// order of reports. `memory`: the answer for bound servers. `details`: every measure.
///
/// Both ways are processes of their own, so they are two samples and not pairs: a claim takes fewer processes on all
/// CPUs than there are rounds (four beside eight rounds, where seven are compared).
pub(super) fn differences(
    field: &Field<'_>,
    memory: &QuestionVerdict,
    details: &[MeasureComparisons],
) -> Vec<UnpinnedMemory> {
    let Some(&pinned) = memory.measures.first().filter(|_| memory.trusted) else {
        return Vec::new();
    };
    let unpinned = Measure::whole(Quantity::UnpinnedMemory);
    let Some(rule) = rule(&[unpinned], field.design) else {
        return Vec::new();
    };
    let reason = self_difference_reason(field, &field.compare(&[pinned]));
    let measured = field
        .all_candidates()
        .filter(|one| one.median(unpinned).is_some());
    let mut samples: Vec<TwoSamples> = measured
        .map(|one| both_ways(one, pinned, unpinned, &rule, reason.as_ref()))
        .collect();
    correct_for_all(samples.iter_mut().collect());
    let found: Vec<Comparison> = samples.iter().map(TwoSamples::judge).collect();
    if !found.iter().any(is_worth_a_line) {
        return Vec::new();
    }
    let of_all = details.iter().find(|one| one.measure == unpinned);
    let described = found.iter().filter_map(|change| {
        let mut comparisons = of_all.into_iter().flat_map(|all| &all.comparisons);
        let against = comparisons.find(|one| one.candidate == change.candidate);
        describe(change, against, &field.baseline.name)
    });
    described.collect()
}

/// A difference that is proved and larger than the margin.
fn is_worth_a_line(change: &Comparison) -> bool {
    let is_proved = matches!(change.verdict, Verdict::Better | Verdict::Worse);
    let size = change.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    is_proved && size > change.margin.ln_1p()
}

/// One candidate: on all CPUs against bound.
fn both_ways(
    candidate: &CandidateRounds,
    pinned: Measure,
    unpinned: Measure,
    rule: &Rule,
    reason: Option<&String>,
) -> TwoSamples {
    let logarithms = |measure: Measure| -> Vec<f64> {
        let values = candidate.values(measure).into_iter();
        values.filter(|&bytes| bytes > 0.0).map(f64::ln).collect()
    };
    let (values, reference_values) = (logarithms(unpinned), logarithms(pinned));
    let fewest = values.len().min(reference_values.len());
    let trouble = trouble(candidate, candidate, &[pinned, unpinned], fewest);
    TwoSamples {
        name: candidate.name.clone(),
        reference: "bound to the server's CPUs".to_owned(),
        relative_to: None,
        values,
        reference_values,
        rule: rule.clone(),
        trouble: trouble.or_else(|| reason.cloned()),
        medians: [unpinned, pinned].map(|measure| candidate.median(measure)),
        missing: "it was not measured both ways",
        p: 1.0,
        p_adjusted: 1.0,
        family: 1,
    }
}

/// One line. `change`: on all CPUs against bound. `against`: the baseline, both on all CPUs.
fn describe(
    change: &Comparison,
    against: Option<&Comparison>,
    baseline: &str,
) -> Option<UnpinnedMemory> {
    let (on_all, bound) = (change.candidate_value?, change.baseline_value?);
    let mut sentence = format!(
        "{} needs {} where it may use all CPUs, {} bound to the server's: {} ({})",
        change.candidate,
        format_bytes(on_all),
        format_bytes(bound),
        change.ratio_text(),
        label(&change.verdict),
    );
    if let Some(against) = against {
        sentence += &format!(
            "; against {baseline} there {} ({})",
            against.ratio_text(),
            against.verdict.label()
        );
    }
    Some(UnpinnedMemory {
        candidate: change.candidate.clone(),
        pinned_bytes: bound as u64,
        unpinned_bytes: on_all as u64,
        sentence: sentence + ".",
    })
}

/// Neither way is the better one.
fn label(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "less",
        Verdict::Worse => "more",
        other => other.label(),
    }
}

// Runs of the same round, side by side.

/// The rule of decision for measures of one quantity; `None` for an empty list.
pub(super) fn rule(measures: &[Measure], design: Design) -> Option<Rule> {
    let quantity = measures.first()?.quantity;
    debug_assert!(measures.iter().all(|measure| measure.quantity == quantity));
    let label = if let [single] = measures {
        single.label()
    } else {
        quantity.label().to_owned()
    };
    Some(Rule {
        label,
        direction: quantity.direction(),
        margin: design.margins.of(quantity),
        looks: design.looks,
    })
}

/// The rounds in which both have all of `measures`; several are taken as their geometric mean, so
/// that a ratio in one counts as much as the same ratio in another.
pub(super) fn pair(
    candidate: &CandidateRounds,
    baseline: &CandidateRounds,
    measures: &[Measure],
) -> PairedRounds {
    let pairs: Vec<RoundPair> = candidate
        .rounds
        .iter()
        .filter_map(|round| {
            Some(RoundPair {
                candidate: geometric_mean(measures, |measure| round.get(measure))?,
                baseline: geometric_mean(measures, |m| baseline.value(round.round, m))?,
            })
        })
        .collect();
    let trouble = trouble(candidate, baseline, measures, pairs.len());
    PairedRounds {
        candidate: candidate.name.clone(),
        baseline: baseline.name.clone(),
        pairs,
        trouble,
    }
}

/// `None` if one is missing. A single value comes back unchanged, to the last bit.
fn geometric_mean(measures: &[Measure], value: impl Fn(Measure) -> Option<f64>) -> Option<f64> {
    if let [single] = measures {
        return value(*single);
    }
    let mut sum_of_logs = 0.0;
    for &measure in measures {
        sum_of_logs += value(measure)?.ln();
    }
    Some((sum_of_logs / measures.len() as f64).exp())
}

// The data that a comparison with another session needs: the runs of each candidate beside the baseline's, the reasons
// not to trust them, and whether the baseline differed from itself.

/// The runs of `name` beside those of `against` in the same rounds; `None` if one is not there.
pub(crate) fn rounds_of(
    candidates: &[CandidateRounds],
    name: &str,
    against: &str,
    measures: &[Measure],
) -> Option<PairedRounds> {
    let find = |name: &str| candidates.iter().find(|one| one.name == name);
    Some(pair(find(name)?, find(against)?, measures))
}

/// The name of the candidate that ratios are against.
pub(crate) fn baseline_of(candidates: &[CandidateRounds]) -> Option<&str> {
    Field::new(candidates, Design::default()).map(|field| field.baseline.name.as_str())
}

/// Why no ratio of this session counts: the baseline run twice differs from itself.
pub(crate) fn across_self_difference(
    record: &ComparisonRecord,
    measures: &[Measure],
) -> Option<String> {
    let field = Field::new(&record.candidates, Design::of(&record.settings))?;
    self_difference_reason(&field, &field.compare(measures))
}

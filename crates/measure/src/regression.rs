//! This comparison against an earlier one: did a candidate get worse, beyond the margin?
//!
//! `lab` or `cli` has two records of the same question and calls [`check`]; the answer is put into
//! the newer one and shown with it.
//!
//! Rounds of two sessions are not paired: what disturbed round 3 of one did not disturb round 3 of the
//! other. Worse, a machine is not the same from one day to the next (which physical pages, what else is
//! on the host), and two sessions are two observations of that, too few to estimate it (Kalibera &
//! Jones, "Rigorous benchmarking in reasonable time", ISMM 2013: repeat at the highest level that
//! varies). So each measure is compared by what survives it:
//!
//! - **by ratio** what a clock or a cache has a part in: throughput, latency, CPU time, cycles. Each run
//!   is divided by the baseline's run of the same round, and the ratios of both sessions are compared.
//!   The machine's drift cancels, as it does in duet benchmarking (Bulej et al., ICPE 2020). So does what
//!   changed for all candidates alike, hence the baseline's own drift is shown, and never judged.
//! - **by value** what the program alone decides: memory after the same work, instructions, page
//!   faults, heap calls.
//!
//! Two samples: `rank_sum`'s exact test, estimate and interval; Holm over everything that is judged,
//! so that one check has one error rate. A session whose baseline differs from itself (A/A), or that was
//! disturbed, has no ratios to compare.

use thiserror::Error;

use crate::analysis;
use crate::record::{
    ComparisonRecord, Measure, Operation, Quantity, Regression, RegressionBy, RegressionQuestion,
    Role,
};
use crate::statistics::{
    Comparison, InterimAnalyses, PairedRounds, Rule, TwoSamples, Verdict, correct_for_all,
};
use crate::units::{format_bytes, format_percent, format_rate};

/// How the other record is called where a baseline's name stands.
pub const EARLIER: &str = "the earlier record";

/// A question and its possible evidence, the best first.
const QUESTIONS: [(&str, &[Quantity]); 4] = [
    ("throughput", &[Quantity::Throughput]),
    ("latency", &[Quantity::ResponseP99, Quantity::ResponseP50]),
    (
        "memory",
        // The common part of both records: earlier ones have RSS alone.
        &[
            Quantity::MemoryAfterWork,
            Quantity::RssAfterWork,
            Quantity::PeakRss,
        ],
    ),
    (
        "work",
        &[
            Quantity::Instructions,
            Quantity::EmulatedInstructions,
            Quantity::CpuTime,
        ],
    ),
];

/// The settings of a check.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RegressionRule {
    /// Compare the clock's values themselves: detects changes that hit all candidates alike, and takes the machine's
    /// own drift for a change.
    pub by_value: bool,
}

/// Compares every candidate that both records have with itself.
///
/// # Errors
/// If the records are not of the same question on the same machine.
pub fn check(
    now: &ComparisonRecord,
    earlier: &ComparisonRecord,
    rule: RegressionRule,
) -> Result<Regression, Incomparable> {
    check_circumstances(now, earlier)?;
    let sessions = Sessions::new(now, earlier)?;
    let mut questions: Vec<(RegressionQuestion, Vec<TwoSamples>)> = QUESTIONS
        .iter()
        .filter_map(|(name, quantities)| sessions.question(name, quantities, rule))
        .collect();
    let all: Vec<&mut TwoSamples> = questions
        .iter_mut()
        .flat_map(|(_, samples)| samples)
        .collect();
    correct_for_all(all);
    let questions: Vec<RegressionQuestion> = questions
        .into_iter()
        .map(|(mut question, samples)| {
            question.comparisons = samples.iter().map(TwoSamples::judge).collect();
            sessions.distrust_if_baseline_differs_from_itself(&mut question);
            question
        })
        .collect();
    let mut warnings = warnings(now, earlier);
    warnings.extend(sessions.missing());
    warnings.extend(
        questions
            .iter()
            .filter_map(|one| drift_warning(one, &sessions)),
    );
    let regressed = questions
        .iter()
        .any(|question| question.comparisons.iter().any(Comparison::is_regression));
    let mut regression = Regression {
        earlier_started_unix_s: earlier.started_unix_s,
        earlier_version: earlier.version.clone(),
        earlier_commit: earlier.commit.clone(),
        earlier_rounds: earlier.settings.rounds_done,
        sentence: String::new(),
        regressed,
        questions,
        warnings,
    };
    regression.sentence = sentence(&regression);
    Ok(regression)
}

/// Two records, and the candidates that are in both.
struct Sessions<'a> {
    now: &'a ComparisonRecord,
    earlier: &'a ComparisonRecord,
    baseline: &'a str,
    shared: Vec<&'a str>,
}

impl<'a> Sessions<'a> {
    fn new(now: &'a ComparisonRecord, earlier: &'a ComparisonRecord) -> Result<Self, Incomparable> {
        let names = |record: &'a ComparisonRecord| -> Vec<&'a str> {
            let names = record.candidates.iter().map(|one| one.name.as_str());
            names.collect()
        };
        let there = names(earlier);
        let shared: Vec<&str> = names(now)
            .into_iter()
            .filter(|name| there.contains(name))
            .collect();
        let baseline = analysis::baseline_of(&now.candidates).unwrap_or_default();
        let before = analysis::baseline_of(&earlier.candidates).unwrap_or_default();
        if shared.is_empty() {
            return Err(Incomparable::Candidates {
                earlier: there.join(", "),
            });
        }
        if baseline != before {
            return Err(Incomparable::Subject {
                what: "the candidate that ratios are against",
                earlier: before.to_owned(),
                now: baseline.to_owned(),
            });
        }
        Ok(Self {
            now,
            earlier,
            baseline,
            shared,
        })
    }

    /// Candidates that only one of them has.
    fn missing(&self) -> Vec<String> {
        let lines = [
            (self.earlier, "is in the earlier record only"),
            (self.now, "is not in the earlier record"),
        ];
        lines
            .into_iter()
            .flat_map(|(record, words)| {
                let alone = |name: &&str| !self.shared.contains(name);
                let names = record.candidates.iter().map(|one| one.name.as_str());
                names
                    .filter(alone)
                    .map(move |name| format!("{name} {words}"))
            })
            .collect()
    }

    /// The measures of the first of `quantities` that the baseline has in both.
    fn measures(&self, quantities: &[Quantity]) -> Vec<Measure> {
        let has = |record: &ComparisonRecord, measure: Measure| {
            let mut candidates = record.candidates.iter();
            candidates
                .find(|one| one.name == self.baseline)
                .is_some_and(|one| one.median(measure).is_some())
        };
        let in_both = |measure: &Measure| has(self.now, *measure) && has(self.earlier, *measure);
        quantities
            .iter()
            .map(|&quantity| {
                let each = Operation::ALL.map(|operation| Measure::of(operation, quantity));
                let all = [Measure::whole(quantity)].into_iter().chain(each);
                all.filter(in_both).collect::<Vec<_>>()
            })
            .find(|measures| !measures.is_empty())
            .unwrap_or_default()
    }

    fn question(
        &self,
        name: &str,
        quantities: &[Quantity],
        rule: RegressionRule,
    ) -> Option<(RegressionQuestion, Vec<TwoSamples>)> {
        let measures = self.measures(quantities);
        let quantity = measures.first()?.quantity;
        let by = if rule.by_value || survives_a_session(quantity) {
            RegressionBy::Value
        } else {
            RegressionBy::Ratio
        };
        let unlike_itself = self
            .unlike_itself(&measures)
            .filter(|_| by == RegressionBy::Ratio);
        let names = self.shared.iter();
        let samples = names
            .filter(|&&name| by == RegressionBy::Value || name != self.baseline)
            .filter_map(|name| {
                let mut samples = self.samples(name, &measures, by)?;
                samples.trouble = samples.trouble.or_else(|| unlike_itself.clone());
                Some(samples)
            })
            .collect();
        let question = RegressionQuestion {
            name: name.to_owned(),
            baseline_drift: self.drift(&measures).filter(|_| by == RegressionBy::Ratio),
            measures,
            by,
            comparisons: Vec::new(),
        };
        Some((question, samples))
    }

    fn samples(&self, name: &str, measures: &[Measure], by: RegressionBy) -> Option<TwoSamples> {
        let against = match by {
            RegressionBy::Ratio => self.baseline,
            RegressionBy::Value => name,
        };
        let rounds = |record: &ComparisonRecord| {
            analysis::rounds_of(&record.candidates, name, against, measures)
        };
        let (now, earlier) = (rounds(self.now)?, rounds(self.earlier)?);
        let before = || earlier.trouble.as_ref().map(|reason| in_earlier(reason));
        let trouble = now.trouble.clone().or_else(before);
        let quantity = measures.first()?.quantity;
        Some(TwoSamples {
            name: name.to_owned(),
            relative_to: (by == RegressionBy::Ratio).then(|| self.baseline.to_owned()),
            reference: EARLIER.to_owned(),
            values: logarithms(&now, by),
            reference_values: logarithms(&earlier, by),
            rule: Rule {
                label: label(measures),
                direction: quantity.direction(),
                margin: self.now.settings.margins.of(quantity),
                looks: InterimAnalyses::ONE,
            },
            trouble,
            medians: [middle(&now), middle(&earlier)],
            missing: "it was not measured in both records",
            p: 1.0,
            p_adjusted: 1.0,
            family: 1,
        })
    }

    /// The baseline over itself is 1 in every session. If that ratio changed from one session to the
    /// other, so might any.
    fn distrust_if_baseline_differs_from_itself(&self, question: &mut RegressionQuestion) {
        if question.by == RegressionBy::Value {
            return;
        }
        let again = |name: &str| {
            let mut candidates = self.now.candidates.iter();
            candidates.any(|one| one.name == name && one.role == Role::BaselineAgain)
        };
        let mut comparisons = question.comparisons.iter();
        let Some(figures) = comparisons
            .find(|one| again(&one.candidate) && one.verdict.is_difference())
            .map(Comparison::ratio_text)
        else {
            return;
        };
        let label = label(&question.measures);
        let differences = question.comparisons.iter_mut();
        for one in differences.filter(|one| one.verdict.is_difference()) {
            one.verdict = Verdict::NotTrusted {
                reason: format!(
                    "what the baseline run twice differs by is not the same in both records \
                     ({figures})"
                ),
            };
            one.describe(&label);
        }
    }

    /// Why no ratio counts: in one of the sessions the baseline run twice differed from itself.
    fn unlike_itself(&self, measures: &[Measure]) -> Option<String> {
        let reason = |record: &ComparisonRecord| analysis::self_difference(record, measures);
        reason(self.now).or_else(|| reason(self.earlier).map(|reason| in_earlier(&reason)))
    }

    fn drift(&self, measures: &[Measure]) -> Option<f64> {
        let value = |record: &ComparisonRecord| {
            let name = self.baseline;
            let rounds = analysis::rounds_of(&record.candidates, name, name, measures)?;
            middle(&rounds)
        };
        Some(value(self.now)? / value(self.earlier)?).filter(|drift| drift.is_finite())
    }
}

fn in_earlier(reason: &str) -> String {
    format!("in {EARLIER} {reason}")
}

/// Whether a number says the same on another day: what the program decides, not the machine.
const fn survives_a_session(quantity: Quantity) -> bool {
    matches!(
        quantity,
        Quantity::MemoryAfterWork
            | Quantity::MemoryAfterIdle
            | Quantity::PeakMemory
            | Quantity::RssAfterWork
            | Quantity::PeakRss
            | Quantity::CgroupPeak
            | Quantity::RssAfterIdle
            | Quantity::PssAfterWork
            | Quantity::Instructions
            | Quantity::EmulatedInstructions
            | Quantity::HeapCalls
            | Quantity::HeapBytes
            | Quantity::PageFaults
    )
}

fn label(measures: &[Measure]) -> String {
    match measures {
        [single] => single.label(),
        [first, ..] => first.quantity.label().to_owned(),
        [] => String::new(),
    }
}

fn logarithms(rounds: &PairedRounds, by: RegressionBy) -> Vec<f64> {
    let pairs = rounds.pairs.iter();
    match by {
        RegressionBy::Ratio => pairs.filter_map(|pair| pair.log_ratio()).collect(),
        RegressionBy::Value => pairs
            .filter(|pair| pair.log_ratio().is_some())
            .map(|pair| pair.candidate.ln())
            .collect(),
    }
}

/// The median of the candidate's own values.
fn middle(rounds: &PairedRounds) -> Option<f64> {
    let values = rounds.pairs.iter().map(|pair| pair.candidate);
    crate::statistics::median(&mut values.filter(|value| value.is_finite()).collect::<Vec<_>>())
}

/// The changes that ratios cannot show, if they exceed the margin.
fn drift_warning(question: &RegressionQuestion, sessions: &Sessions<'_>) -> Option<String> {
    let drift = question.baseline_drift?;
    let quantity = question.measures.first()?.quantity;
    let margin = sessions.now.settings.margins.of(quantity);
    (drift.ln().abs() > margin.ln_1p()).then(|| {
        format!(
            "{} of {} itself is {drift:.2}x of the earlier one: either the machine or the server \
             changed for all candidates alike, which ratios do not see",
            label(&question.measures),
            sessions.baseline
        )
    })
}

fn sentence(regression: &Regression) -> String {
    let all = || {
        let questions = regression.questions.iter();
        questions.flat_map(|question| &question.comparisons)
    };
    let worse: Vec<&str> = all()
        .filter(|one| one.is_regression())
        .map(|one| one.sentence.as_str())
        .collect();
    if !worse.is_empty() {
        return format!("Regression: {}.", worse.join("; "));
    }
    let blind = all().filter(|one| one.is_blind()).count();
    if !regression.is_judged() {
        if blind > 0 {
            return format!(
                "Regression check: no answer: {blind} of {} comparisons with the earlier record have too \
                 few rounds to show any difference, however large.",
                all().count()
            );
        }
        let reason = all().find_map(|one| match &one.verdict {
            Verdict::NotTrusted { reason } => Some(reason.as_str()),
            _ => None,
        });
        let reason = reason.unwrap_or("nothing was measured in both records");
        return format!("Regression check: not to be trusted: {reason}.");
    }
    let count = |label: &str| all().filter(|one| one.verdict.label() == label).count();
    let parts: Vec<String> = ["better", "worse", "equivalent", "undecided", "not trusted"]
        .into_iter()
        .map(|label| (count(label), label))
        .filter(|(count, _)| *count > 0)
        .map(|(count, label)| format!("{count} {label}"))
        .collect();
    let blind = match blind {
        0 => String::new(),
        _ => format!("; {blind} of them have too few rounds to show any difference"),
    };
    let seen = would_have_shown(all());
    format!(
        "No regression beyond the margins: of {} comparisons with the earlier record {}{blind}{seen}.",
        all().count(),
        parts.join(", ")
    )
}

/// The smallest detectable change: by the coarsest of those that could see anything, and whether all could. Empty if
/// none could.
fn would_have_shown<'a>(all: impl Iterator<Item = &'a Comparison>) -> String {
    let (mut seen, mut is_everywhere): (Option<f64>, bool) = (None, true);
    for one in all {
        let is_believed = !matches!(one.verdict, Verdict::NotTrusted { .. });
        match one.detectable.filter(|_| is_believed) {
            Some(share) => seen = Some(seen.map_or(share, |most| most.max(share))),
            None => is_everywhere = false,
        }
    }
    let place = match is_everywhere {
        true => "everywhere",
        false => "in those that could be judged",
    };
    seen.filter(|share| *share > 0.0)
        .map_or_else(String::new, |share| {
            format!(
                "; one of {} would have shown {place}",
                format_percent(share)
            )
        })
}

// Whether two records asked the same question on the same machine.
//
// Differences that would change every number are refused, with a sentence that says what to do;
// differences that may have changed them give a warning. The change itself is the reason for the
// check.

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
        /// The part of it.
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
        /// The part of it.
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
        /// The part of it.
        what: &'static str,
        /// Then.
        earlier: String,
        /// Now.
        now: String,
    },
    /// No candidate is in both.
    #[error("no candidate is in both records; the earlier one has {earlier}")]
    Candidates {
        /// The names.
        earlier: String,
    },
}

fn shown<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "none".to_owned(), T::to_string)
}

/// Refuses what is known to be another question. Values that `now` does not know yet (rates and work, before they are
/// planned) are passed over.
///
/// # Errors
/// With the first thing that differs.
pub fn check_circumstances(
    now: &ComparisonRecord,
    earlier: &ComparisonRecord,
) -> Result<(), Incomparable> {
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

/// Differences that may have changed the numbers without changing the question.
fn warnings(now: &ComparisonRecord, earlier: &ComparisonRecord) -> Vec<String> {
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

/// Fields that old records lack: they differ only where both have them.
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

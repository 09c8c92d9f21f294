//! The comparison on a terminal: what to use and the answers first, then one table, then the warnings.
//!
//! At most 100 columns: measures that do not fit are left to the HTML report. Colour only if asked
//! for, and never as the only carrier of a meaning.

use crate::environment::InheritedVariables;
use crate::record::{
    CandidateRounds, ComparisonRecord, Measure, Operation, Quantity, Regression, Role,
    SettingEffect, Unit,
};
use crate::statistics::{Comparison, Verdict};
use crate::units::{format_bytes, format_confidence, format_count, format_duration_ns, format_utc};

use super::{
    MARKS, cpus_line, deploy, find, least_confidence, limit_sentences, limits, mark, settings_front,
};

/// How to print.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TerminalOptions {
    /// ANSI colours.
    pub colour: bool,
    /// Columns to use at most.
    pub width: usize,
    /// Where the HTML report was written.
    pub report_path: Option<String>,
}

impl Default for TerminalOptions {
    fn default() -> Self {
        Self {
            colour: false,
            width: 100,
            report_path: None,
        }
    }
}

/// The whole text.
#[must_use]
pub fn render(record: &ComparisonRecord, options: &TerminalOptions) -> String {
    let width = options.width.clamp(40, 100);
    let mut text = String::new();
    for sentence in record.reach_sentences() {
        text += &wrapped(&sentence, width, "  ");
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let advice = &record.analysis.recommendation;
    for sentence in [&advice.sentence, &advice.reason, &advice.caution] {
        if !sentence.is_empty() {
            text += &wrapped(sentence, width, "  ");
        }
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let verdicts = &record.analysis.verdicts;
    for question in [&verdicts.throughput, &verdicts.latency, &verdicts.memory] {
        text += &wrapped(&question.sentence, width, "  ");
        if !question.resolution.is_empty() {
            let mut shown = question.resolution.trim_end_matches('.').to_owned();
            if let Some(least) = least_confidence(&question.comparisons) {
                shown += &format!("; intervals of {}", format_confidence(least));
            }
            text += &wrapped(&format!("  ({shown})"), width, "   ");
        }
    }
    text += &settings_front::text(record, width, options.colour);
    text += &sections(record, width);
    if let Some(regression) = &record.regression {
        text += &against_earlier(regression, width);
    }
    text.push('\n');
    if !record.analysis.self_check.is_empty() {
        text += &wrapped(&record.analysis.self_check, width, "  ");
    }
    text += &wrapped(&circumstances(record), width, "  ");
    for line in [machine(record), identities(record)].into_iter().flatten() {
        text += &wrapped(&line, width, "  ");
    }
    text.push('\n');
    text += &table(record, width, options.colour);
    text += &wrapped(&legend(record), width, "  ");
    text += &left_out(record, width);
    if !record.analysis.warnings.is_empty() {
        text += "\nWarnings:\n";
        for warning in &record.analysis.warnings {
            text += &wrapped(&format!("- {warning}"), width, "  ");
        }
    }
    if let Some(path) = &options.report_path {
        text += &format!("\nReport: {path}\n");
    }
    text
}

/// Findings beside the three answers.
fn sections(record: &ComparisonRecord, width: usize) -> String {
    let analysis = &record.analysis;
    let effects = analysis.pools_effect.iter().map(|one| &one.sentence);
    let mut text = section(
        "What memory pools change (pools on against pools off)",
        effects,
        width,
    );
    let phases = analysis.phases.iter();
    let phases = phases.flat_map(|one| [&one.sentence, &one.heap_sentence]);
    text += &section(
        "Memory over the phases",
        phases.filter(|sentence| !sentence.is_empty()),
        width,
    );
    // Settings have lines of their own.
    let deployments = match analysis.settings_front {
        Some(_) => Vec::new(),
        None => deploy::recommended(record),
    };
    let lines = deployments
        .iter()
        .filter(|one| !one.variables.is_empty())
        .map(|one| format!("{}: {} ./server", one.candidate, one.shell()));
    let lines: Vec<String> = lines.collect();
    text += &section(
        "To use it (the report has it for systemd, containers and linking)",
        lines.iter(),
        width,
    );
    let limits = limit_sentences(record);
    text += &section("Smallest memory limit", limits.iter(), width);
    let growth = analysis.growth.iter().map(|one| &one.sentence);
    text += &section("What memory does while work goes on", growth, width);
    let unpinned = analysis.unpinned.iter().map(|one| &one.sentence);
    text += &section("Memory without pinning", unpinned, width);
    text
}

/// Sentences under a title; nothing if there are none.
fn section<'a>(title: &str, sentences: impl Iterator<Item = &'a String>, width: usize) -> String {
    let lines: String = sentences
        .map(|sentence| wrapped(&format!("  {sentence}"), width, "    "))
        .collect();
    match lines.is_empty() {
        true => lines,
        false => format!("\n{title}:\n{lines}"),
    }
}

/// The change of each candidate since the earlier record.
fn against_earlier(regression: &Regression, width: usize) -> String {
    let mut text = format!(
        "\nAgainst the earlier record ({}, millpond {}):\n",
        format_utc(regression.earlier_started_unix_s),
        regression.earlier_version
    );
    text += &wrapped(&format!("  {}", regression.sentence), width, "    ");
    for question in &regression.questions {
        for one in &question.comparisons {
            if one.verdict.is_difference() || matches!(one.verdict, Verdict::Undecided { .. }) {
                text += &wrapped(
                    &format!("  {} {}", mark(&one.verdict), one.sentence),
                    width,
                    "    ",
                );
            }
        }
    }
    for warning in &regression.warnings {
        text += &wrapped(&format!("  - {warning}"), width, "    ");
    }
    text
}

/// One sentence on how the numbers came about.
fn circumstances(record: &ComparisonRecord) -> String {
    let settings = &record.settings;
    let mut text = if record.interrupted {
        let (done, planned) = (settings.rounds_done, settings.rounds_planned);
        format!("Interrupted after {done} of {planned} rounds")
    } else {
        format!("{} rounds", settings.rounds_done)
    };
    text += &format!(" of {} candidates", record.candidates.len());
    if settings.connections > 0 {
        text += &format!(", {} connections", settings.connections);
    }
    if let Some(requests) = &record.subject.requests {
        text += &format!(", {requests}");
    }
    if record.duration_ns > 0 {
        text += &format!(", {}", format_duration_ns(record.duration_ns as f64));
    }
    if !settings.looks.stopped.is_empty() {
        text += &format!(" ({})", settings.looks.stopped);
    }
    if let Some(cpus) = cpus_line(record) {
        text += &format!("; {cpus}");
    }
    for limit in limits(record) {
        text += &format!("; {limit}");
    }
    if let Some(engine) = &record.subject.engine {
        text += &format!("; {} {} ({})", engine.name, engine.version, engine.linkage);
    }
    if let Some(driver) = &record.subject.driver {
        text += &format!("; {driver} driver");
    }
    if !record.counters.is_empty() {
        text += &format!("; {}", record.counters);
    }
    text + "."
}

/// Facts about the machine that change what allocators do. `None` of old records, which do not have it.
fn machine(record: &ComparisonRecord) -> Option<String> {
    let machine = &record.environment;
    let page = machine.page_size()?;
    let huge = machine.transparent_huge_pages.as_deref();
    let mut text = format!(
        "On {} CPUs; pages of {page}, transparent huge pages: {}",
        machine.cpus,
        huge.unwrap_or("unknown")
    );
    if let Some(version) = &machine.c_library {
        text += &format!("; C library {version}");
    }
    let inherited = machine.inherited_variables.as_ref();
    if let Some(found) = inherited.and_then(InheritedVariables::describe) {
        text += &format!("; of the shell: {found}");
    }
    Some(text + ".")
}

/// The description of each candidate beside its name; two of one family differ by it.
fn identities(record: &ComparisonRecord) -> Option<String> {
    // A setting is its name, of the version that the baseline is.
    let once =
        |one: &&CandidateRounds| one.role != Role::BaselineAgain && one.what_it_changes.is_empty();
    let candidates = record.candidates.iter().filter(once);
    let parts: Vec<String> = candidates
        .filter(|one| !one.describe().is_empty())
        .map(|one| format!("{}: {}", one.name, one.describe()))
        .collect();
    (!parts.is_empty()).then(|| format!("Candidates: {}.", parts.join("; ")))
}

fn legend(record: &ComparisonRecord) -> String {
    let baseline = record
        .candidates
        .iter()
        .find(|one| one.role == Role::Baseline);
    let mut text = format!("Medians over rounds. {MARKS}");
    if let Some(baseline) = baseline {
        text = text.replace("the baseline", &baseline.name);
    }
    if record
        .candidates
        .iter()
        .any(|one| one.role == Role::BaselineAgain)
    {
        text += ". \"(again)\" is the baseline run twice: a difference there is a false alarm";
    }
    let memory = Measure::whole(Quantity::MemoryAfterWork);
    if record
        .candidates
        .iter()
        .any(|one| one.median(memory).is_some())
    {
        text += ". Memory is what the processes keep by themselves, shared pages once, mapped files apart";
    }
    let is_scaled = |one: &CandidateRounds| one.rounds.iter().any(|round| !round.scaled.is_empty());
    if record.candidates.iter().any(is_scaled) {
        text += ". ~ is scaled: the hardware counter took turns with others";
    }
    text + "."
}

/// Why candidates have no figures.
fn left_out(record: &ComparisonRecord, width: usize) -> String {
    let mut text = String::new();
    for one in &record.left_out {
        if text.is_empty() {
            text += "\nLeft out:\n";
        }
        // Last words have lines of their own, which end where this text is wrapped.
        let words: Vec<&str> = one.sentence.split_whitespace().collect();
        let sentence = format!("- {}, {}: {}", one.candidate, one.label(), words.join(" "));
        text += &wrapped(&sentence, width, "  ");
    }
    text
}

/// A column: its measure and its two header lines.
struct Column {
    measure: Measure,
    head: [String; 2],
    cells: Vec<(String, Option<Verdict>)>,
}

impl Column {
    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|(text, _)| text.len() + 2);
        cells
            .chain(self.head.iter().map(String::len))
            .max()
            .unwrap_or(0)
    }
}

fn table(record: &ComparisonRecord, width: usize, colour: bool) -> String {
    let names: Vec<&str> = record
        .candidates
        .iter()
        .map(|one| row_name(record, one))
        .collect();
    // Those of settings are long, and have lines of their own.
    let name_width_max = match record.analysis.settings_front {
        Some(_) => settings_front::NAME_COLUMNS_MAX,
        None => usize::MAX,
    };
    let left_out = record.left_out.iter().map(|one| one.candidate.as_str());
    let name_width = names
        .iter()
        .copied()
        .chain(left_out)
        .map(|name| name.chars().count())
        .filter(|&length| length <= name_width_max)
        .max()
        .unwrap_or(0)
        .max(9);
    // The columns beside each other in one table, with its width; a second one only for what must not be missing.
    let mut blocks: Vec<(usize, Vec<Column>)> = vec![(name_width, Vec::new())];
    // All operations of a quantity or none: half a comparison misleads.
    for group in interesting(record).chunk_by(|a, b| a.quantity == b.quantity) {
        let is_needed = group
            .iter()
            .any(|measure| NEEDED.contains(&measure.quantity));
        let group: Vec<Column> = group
            .iter()
            .map(|&measure| column(record, measure))
            .collect();
        let more: usize = group.iter().map(|column| column.width() + 2).sum();
        let has_room = |(used, columns): &&mut (usize, Vec<Column>)| {
            *used + more <= width || columns.is_empty()
        };
        match blocks.iter_mut().find(has_room) {
            Some((used, columns)) => {
                *used += more;
                columns.extend(group);
            }
            None if is_needed => blocks.push((name_width + more, group)),
            None => {}
        }
    }
    let blocks = blocks.iter();
    let mut texts: Vec<String> = blocks
        .map(|(_, columns)| block(&names, name_width, columns, colour))
        .collect();
    if let Some(first) = texts.first_mut() {
        for one in &record.left_out {
            let row = format!("{:<name_width$}  {}", one.candidate, one.label());
            first.extend(row.chars().take(width));
            first.push('\n');
        }
    }
    texts.join("\n")
}

/// These have a column however long the names of candidates are.
const NEEDED: [Quantity; 4] = [
    Quantity::MemoryAfterWork,
    Quantity::MemoryAfterIdle,
    Quantity::RssAfterWork,
    Quantity::RssAfterIdle,
];

/// The label of a row: of a setting without the allocator's name, which all have.
fn row_name<'a>(record: &'a ComparisonRecord, candidate: &'a CandidateRounds) -> &'a str {
    let found = record.analysis.settings_front.iter();
    let mut settings = found.flat_map(|found| &found.settings);
    let setting = settings
        .find(|one| one.candidate == candidate.name && one.effect != SettingEffect::Default);
    setting.map_or(&candidate.name, |one| &one.setting)
}

fn block(names: &[&str], name_width: usize, columns: &[Column], colour: bool) -> String {
    let mut text = String::new();
    for line in 0..2 {
        let first = if line == 1 { "candidate" } else { "" };
        let mut row = format!("{first:<name_width$}");
        for column in columns {
            row += &format!("  {:>width$}", column.head[line], width = column.width());
        }
        text += row.trim_end();
        text.push('\n');
    }
    for (index, name) in names.iter().enumerate() {
        text += &format!("{name:<name_width$}");
        if name.chars().count() > name_width {
            text += &format!("\n{:name_width$}", "");
        }
        for column in columns {
            let (value, verdict) = &column.cells[index];
            let mark = verdict.as_ref().map_or(' ', mark);
            let cell = format!(
                "{:>width$}",
                format!("{value} {mark}"),
                width = column.width()
            );
            text += "  ";
            text += &paint(&cell, verdict.as_ref(), colour);
        }
        while text.ends_with(' ') {
            text.pop();
        }
        text.push('\n');
    }
    text
}

pub(super) fn paint(cell: &str, verdict: Option<&Verdict>, colour: bool) -> String {
    let chosen = match verdict {
        _ if !colour => None,
        Some(Verdict::Better) => Some(Colour::Good),
        Some(Verdict::Worse) => Some(Colour::Bad),
        Some(Verdict::NotTrusted { .. }) => Some(Colour::Doubtful),
        Some(Verdict::Undecided { .. }) => Some(Colour::Quiet),
        Some(Verdict::Equivalent) | None => None,
    };
    chosen.map_or_else(|| cell.to_owned(), |colour| colour.paint(cell))
}

/// The measures worth a column, the most important first; only those that were taken.
fn interesting(record: &ComparisonRecord) -> Vec<Measure> {
    let taken = |measure: &Measure| {
        record
            .candidates
            .iter()
            .any(|candidate| candidate.median(*measure).is_some())
    };
    let per_operation = |quantity: Quantity| -> Vec<Measure> {
        Operation::ALL
            .map(|operation| Measure::of(operation, quantity))
            .into_iter()
            .chain([Measure::whole(quantity)])
            .filter(taken)
            .collect()
    };
    let mut measures = per_operation(Quantity::Throughput);
    let p99 = per_operation(Quantity::ResponseP99);
    measures.extend(if p99.is_empty() {
        per_operation(Quantity::ResponseP50)
    } else {
        p99
    });
    let custom = |measure: &Measure| matches!(measure.quantity, Quantity::Custom(_));
    let details = record.analysis.details.iter().map(|detail| detail.measure);
    measures.extend(details.filter(custom));
    let [after_work, after_idle, peak] = [
        &[
            Quantity::FloorAfterBurst,
            Quantity::MemoryAfterWork,
            Quantity::RssAfterWork,
        ][..],
        &[
            Quantity::TimeToFloor,
            Quantity::MemoryAfterIdle,
            Quantity::RssAfterIdle,
        ],
        &[Quantity::PeakMemory, Quantity::PeakRss],
    ]
    .map(|of_kind| {
        let mut of_kind = of_kind.iter().copied().map(per_operation);
        of_kind.find(|one| !one.is_empty()).unwrap_or_default()
    });
    measures.extend(after_work);
    measures.extend(after_idle);
    measures.extend(peak);
    let work = [
        Quantity::Instructions,
        Quantity::EmulatedInstructions,
        Quantity::CpuTime,
    ];
    let mut work = work.into_iter().map(per_operation);
    measures.extend(work.find(|one| !one.is_empty()).unwrap_or_default());
    measures.extend(per_operation(Quantity::HeapCalls));
    measures.extend(per_operation(Quantity::PageFaults));
    measures
}

fn column(record: &ComparisonRecord, measure: Measure) -> Column {
    let details = record
        .analysis
        .details
        .iter()
        .find(|detail| detail.measure == measure);
    let comparisons: &[Comparison] = details.map_or(&[], |detail| &detail.comparisons);
    let cell = |candidate: &CandidateRounds| {
        let value = candidate
            .median(measure)
            .map_or_else(|| "-".to_owned(), |v| short(measure, v));
        let value = if candidate.is_scaled(measure) {
            format!("~{value}")
        } else {
            value
        };
        (
            value,
            // Values counted once have no verdict.
            find(comparisons, &candidate.name)
                .filter(|one| one.rounds != 1)
                .map(|one| one.verdict.clone()),
        )
    };
    Column {
        measure,
        head: heads(measure),
        cells: record.candidates.iter().map(cell).collect(),
    }
    .without_idle_marks()
}

impl Column {
    /// A value that was not measured needs no mark.
    fn without_idle_marks(mut self) -> Self {
        for (text, verdict) in &mut self.cells {
            if text == "-" {
                *verdict = None;
            }
        }
        debug_assert!(
            self.head
                .iter()
                .all(|line| line.chars().count() <= HEAD_WIDTH),
            "{}",
            self.measure
        );
        self
    }
}

/// No heading is wider.
const HEAD_WIDTH: usize = 12;

fn heads(measure: Measure) -> [String; 2] {
    if let Quantity::Custom(custom) = measure.quantity {
        let fit = |word: &str| word.chars().take(HEAD_WIDTH).collect();
        return [fit(custom.label()), fit(custom.unit())];
    }
    let second = match measure.quantity {
        Quantity::Throughput => "req/s",
        Quantity::ResponseP50 => "p50",
        Quantity::ResponseP99 => "p99",
        Quantity::MemoryAfterWork | Quantity::PeakMemory => "memory",
        Quantity::RssAfterWork | Quantity::PeakRss => "RSS",
        Quantity::MemoryAfterIdle | Quantity::RssAfterIdle => "idle",
        Quantity::Instructions | Quantity::EmulatedInstructions => "instr/req",
        Quantity::CpuTime => "CPU/req",
        Quantity::HeapCalls => "heap/req",
        Quantity::PageFaults => "faults/req",
        other => other.label(),
    };
    let first = match (measure.operation, measure.quantity) {
        (Some(Operation::Request) | None, Quantity::PeakRss | Quantity::PeakMemory) => "peak",
        (Some(Operation::Request) | None, Quantity::MemoryAfterIdle | Quantity::RssAfterIdle) => {
            "after"
        }
        (Some(Operation::Request) | None, Quantity::EmulatedInstructions) => "emulated",
        (Some(Operation::Request) | None, _) => "",
        (Some(operation), _) => operation.label(),
    };
    [first.to_owned(), second.to_owned()]
}

/// Without blanks and without a unit that the heading names already.
fn short(measure: Measure, value: f64) -> String {
    match measure.quantity.unit() {
        Unit::PerSecond | Unit::Count => format_count(value),
        Unit::Nanoseconds => format_duration_ns(value).replace(' ', ""),
        Unit::Bytes => format_bytes(value).replace(' ', "").replace("iB", ""),
        Unit::Ratio | Unit::Custom(_) => format_count(value),
    }
}

// Sentences in lines that a terminal need not break.
//
// Every text that people read, here and in the crates above.

/// Breaks `sentence` at blanks into lines, each with its end, that are no longer than `width` as far as
/// words allow. The first keeps the blanks that the sentence begins with, the others begin with `indent`.
pub fn wrapped(sentence: &str, width: usize, indent: &str) -> String {
    let own_indent = &sentence[..sentence.len() - sentence.trim_start().len()];
    let mut text = String::new();
    let mut line = own_indent.to_owned();
    let mut is_empty = true;
    // A number and its percent sign stay together.
    let glued = sentence.trim_start().replace(" %", "\u{a0}%");
    for word in glued.split([' ', '\n']) {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            text += line.trim_end();
            text.push('\n');
            line = indent.to_owned();
            is_empty = true;
        }
        // Blanks within a line stay, as in a path or a command that is quoted.
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty &= word.is_empty();
    }
    (text + line.trim_end() + "\n").replace('\u{a0}', " ")
}

/// A word as a POSIX shell takes it.
pub(crate) fn shell_quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@%+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

// The few colours of a terminal's text.
//
// The named colours of a terminal (green, yellow, dim) are chosen by its theme for one background, and
// its yellow is next to invisible on white. These come from the fixed part of the table of 256, as
// bright as is halfway between black and white, so they can be read on both. Nothing is said by colour
// alone: without them the same is in marks and words.

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Colour {
    /// Something is better.
    Good,
    /// Something is worse, or wrong.
    Bad,
    /// Something is not to be relied on.
    Doubtful,
    /// Something matters less than what stands around it.
    Quiet,
}

impl Colour {
    const fn index(self) -> u8 {
        match self {
            Self::Good => 28,
            Self::Bad => 160,
            Self::Doubtful => 130,
            Self::Quiet => 243,
        }
    }

    /// `text` in this colour, and what follows in none.
    #[must_use]
    pub fn paint(self, text: &str) -> String {
        format!("\x1b[38;5;{}m{text}\x1b[0m", self.index())
    }
}

#[cfg(test)]
#[path = "tests/lines.rs"]
mod lines_tests;

#[cfg(test)]
#[path = "tests/colour.rs"]
mod colour_tests;

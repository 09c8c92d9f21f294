//! The record for a terminal: a table for each program, then what it says in a sentence.

use crate::candidate::{NO_ALLOCATION, POOL};
use crate::record::{AllocatorRecord, BenchRecord, ProgramRecord, SpeedupRecord};
use millpond_lab::allocator::{GLIBC, MEMPOOL};
use millpond_measure::report::terminal::wrapped;
use millpond_measure::units::{format_bytes, format_three_digits};
use std::fmt::Write;

/// Narrower tables would wrap.
const WIDTH_MIN: usize = 80;

/// The whole report. `width`: columns of the terminal.
#[must_use]
pub fn render(record: &BenchRecord, width: usize) -> String {
    let width = width.clamp(WIDTH_MIN, 100);
    let mut text = String::new();
    for program in &record.programs {
        paragraph(&mut text, width, &title(program));
        table(&mut text, &TIME, program);
        if is_counted(program) {
            text.push('\n');
            table(&mut text, &COUNTS, program);
        }
        retention_table(&mut text, program);
        connection_table(&mut text, program);
        for sentence in sentences(program) {
            paragraph(&mut text, width, &sentence);
        }
        text.push('\n');
    }
    for sentence in footnotes(record) {
        paragraph(&mut text, width, &sentence);
    }
    text
}

fn title(program: &ProgramRecord) -> String {
    let runs = program
        .allocators
        .iter()
        .map(|it| it.ns_per_iteration_runs.len());
    format!(
        "{}: {}. {} iterations of {} operations, {} runs of each, {} time.",
        program.name,
        program.what,
        program.iterations,
        program.operations_per_iteration,
        runs.max().unwrap_or(0),
        program.clock,
    )
}

/// A column: two heading lines, and its values for an allocator.
struct Column {
    heads: [&'static str; 2],
    cell: fn(&ProgramRecord, &AllocatorRecord) -> String,
}

const fn column(
    first: &'static str,
    second: &'static str,
    cell: fn(&ProgramRecord, &AllocatorRecord) -> String,
) -> Column {
    Column {
        heads: [first, second],
        cell,
    }
}

const TIME: [Column; 8] = [
    column("ns per", "iteration", |_, it| {
        digits(it.ns_per_iteration.mean)
    }),
    column("", "median", |_, it| digits(it.ns_per_iteration.median)),
    column("", "stddev", |_, it| digits(it.ns_per_iteration.stdev)),
    column("", "cv", |_, it| percent(it.ns_per_iteration.cv)),
    column("ns", "per op", |_, it| format_three_digits(it.ns_per_op)),
    column("the pool is", "times as fast", |program, it| {
        speedup(program, &it.allocator).map_or_else(String::new, interval)
    }),
    column("heap", "calls", |_, it| count(it.heap_calls_per_op)),
    column("", "memory", |_, it| format_bytes(it.peak_growth_bytes)),
];
const COUNTS: [Column; 4] = [
    column("instructions", "per op", |_, it| {
        count(it.instructions_per_op)
    }),
    column("cycles", "per op", |_, it| count(it.cycles_per_op)),
    column("branch misses", "per op", |_, it| {
        count(it.branch_misses_per_op)
    }),
    column("cache misses", "per op", |_, it| {
        count(it.cache_misses_per_op)
    }),
];

fn is_counted(program: &ProgramRecord) -> bool {
    let mut allocators = program.allocators.iter();
    allocators.any(|it| it.instructions_per_op.is_some())
}

fn table(text: &mut String, columns: &[Column], program: &ProgramRecord) {
    let mut rows: Vec<Vec<String>> = (0..2)
        .map(|line| {
            let heads = columns.iter().map(|column| column.heads[line].to_owned());
            std::iter::once(String::new()).chain(heads).collect()
        })
        .collect();
    for allocator in &program.allocators {
        let cells = columns
            .iter()
            .map(|column| (column.cell)(program, allocator));
        let name = shown_name(&allocator.allocator);
        rows.push(std::iter::once(name).chain(cells).collect());
    }
    lay_out(text, &rows);
}

fn shown_name(allocator: &str) -> String {
    match allocator {
        NO_ALLOCATION => "(no alloc.)".to_owned(),
        name => name.to_owned(),
    }
}

/// The first column to the left, the others to the right, two blanks in between.
pub(crate) fn lay_out(text: &mut String, rows: &[Vec<String>]) {
    let column_count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..column_count)
        .map(|index| {
            let cells = rows.iter().filter_map(|row| row.get(index));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in rows {
        let mut line = format!("  {:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            // Writing to a String cannot fail.
            let _ = write!(line, "  {cell:>width$}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn retention_table(text: &mut String, program: &ProgramRecord) {
    let heads = [
        [
            "RSS / live bytes",
            "live",
            "RSS",
            "idle",
            "idle",
            "peak given",
            "80 %",
        ],
        [
            "peak  worst  end",
            "at end",
            "at end",
            "live",
            "RSS",
            "back",
            "after",
        ],
    ];
    let mut rows: Vec<Vec<String>> = heads
        .iter()
        .map(|line| {
            let heads = line.iter().map(|&head| head.to_owned());
            std::iter::once(String::new()).chain(heads).collect()
        })
        .collect();
    for it in &program.allocators {
        let Some(kept) = &it.retention else { continue };
        rows.push(vec![
            it.allocator.clone(),
            format!(
                "{:>4.2}  {:>5.2}  {:>4.2}",
                kept.rss_per_live_at_peak, kept.rss_per_live_worst, kept.rss_per_live_end
            ),
            format_bytes(kept.live_end_bytes as f64),
            format_bytes(kept.rss_end_bytes as f64),
            format_bytes(kept.live_idle_bytes as f64),
            format_bytes(kept.rss_idle_bytes as f64),
            percent(kept.returned_share),
            kept.returned_after_s
                .map_or_else(|| "never".to_owned(), |seconds| format!("{seconds} s")),
        ]);
    }
    if rows.len() > heads.len() {
        text.push('\n');
        lay_out(text, &rows);
    }
}

fn connection_table(text: &mut String, program: &ProgramRecord) {
    let mut rows = vec![
        ["", "RSS per", "connection", "asked per", "connection"],
        ["", "active", "idle", "active", "idle"],
    ]
    .into_iter()
    .map(|line| line.map(str::to_owned).to_vec())
    .collect::<Vec<_>>();
    for it in &program.allocators {
        let Some(bytes) = &it.per_connection else {
            continue;
        };
        rows.push(vec![
            it.allocator.clone(),
            format_bytes(bytes.active_bytes),
            format_bytes(bytes.idle_bytes),
            format_bytes(bytes.asked_active_bytes),
            format_bytes(bytes.asked_idle_bytes),
        ]);
    }
    if rows.len() > 2 {
        text.push('\n');
        lay_out(text, &rows);
    }
}

fn sentences(program: &ProgramRecord) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(speedup) = speedup(program, GLIBC) {
        // Ours as malloc is not another one.
        let fastest = program
            .speedups
            .iter()
            .filter(|it| it.allocator != MEMPOOL)
            .min_by(|one, other| one.ratio.ratio.total_cmp(&other.ratio.ratio));
        let mut sentence = format!("The pool is {} times as fast as glibc", interval(speedup));
        if let Some(fastest) = fastest.filter(|fastest| fastest.allocator != GLIBC) {
            let _ = write!(
                sentence,
                ", and {} times as fast as {}, the fastest other one",
                interval(fastest),
                fastest.allocator
            );
        }
        sentences.push(sentence + ".");
    }
    if let Some(rest) = &program.not_allocation {
        let mut sentence = format!(
            "Not allocation: {} ns, which is {} of the pool's time",
            digits(rest.ns_per_iteration),
            percent(rest.share_of_pool)
        );
        if let Some(share) = rest.share_of_glibc {
            let _ = write!(sentence, " and {} of glibc's", percent(share));
        }
        if let Some(speedup) = rest.speedup_of_allocation {
            let _ = write!(
                sentence,
                "; what is left, allocation itself, takes glibc {} times as long",
                format_three_digits(speedup)
            );
        }
        sentences.push(sentence + ".");
    }
    sentences
}

fn footnotes(record: &BenchRecord) -> Vec<String> {
    let mut notes = vec![format!(
        "An op is one allocation or one free; heap calls are malloc's for each op. Ratios are of pairs of one repetition, with the \
         signed-rank interval (95 % from six repetitions on, the range of all pairs below). Memory \
         is what the program had the system add, tables included. Seed {}.",
        record.seed
    )];
    if let Some(sentence) = &record.counters_missing {
        notes.push(format!("No counts: {sentence}."));
    }
    if !record.verdict.is_trusted() {
        notes.push(format!(
            "Times are not to be trusted: {}. Memory and heap calls are.",
            record.verdict.reasons.join(", and ")
        ));
    }
    if record.interrupted {
        notes.push("Interrupted: this is what was measured until then.".to_owned());
    }
    notes
}

fn speedup<'a>(program: &'a ProgramRecord, allocator: &str) -> Option<&'a SpeedupRecord> {
    let is_it = |it: &&SpeedupRecord| it.allocator == allocator && allocator != POOL;
    program.speedups.iter().find(is_it)
}

/// `2.43 [2.40, 2.46]`, or the ratio alone where one pair is all there is.
fn interval(speedup: &SpeedupRecord) -> String {
    let ratio = &speedup.ratio;
    let middle = format_three_digits(ratio.ratio);
    if ratio.pairs < 2 {
        return middle;
    }
    format!(
        "{middle} [{}, {}]",
        format_three_digits(ratio.low),
        format_three_digits(ratio.high)
    )
}

/// Whole nanoseconds where the fraction no longer matters.
fn digits(value: f64) -> String {
    if value >= 1_000.0 {
        format!("{value:.0}")
    } else {
        format_three_digits(value)
    }
}

fn percent(share: f64) -> String {
    millpond_measure::units::format_percent(share)
}

pub(crate) fn count(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.abs() < 0.0005 => "0".to_owned(),
        Some(value) => format_three_digits(value),
    }
}

/// The text between the tables, later lines of a sentence indented.
pub(crate) fn paragraph(text: &mut String, width: usize, sentence: &str) {
    text.push_str(&wrapped(sentence, width, "  "));
}

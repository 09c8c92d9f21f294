//! The live view of a load run: a few lines on the terminal, drawn over four times a second.
//!
//! The drawing is a function of the run's last report and of the terminal's size, so that tests can
//! read it like a user. Nothing has to be restored, so a killed process leaves the terminal as it
//! was. Nothing has to be put back, so a process that is killed leaves the terminal as it was.

use std::collections::VecDeque;
use std::io;
use std::io::{IsTerminal, Write};

use millpond_load::{Progress, Second};
use millpond_measure::histogram::LatencySummary;
use millpond_measure::record::LoadErrors;
use millpond_measure::report::terminal::Colour;
use millpond_measure::units::{format_count, format_duration_ns, format_rate};

use crate::output::whole_seconds;

/// Samples that a curve shows at most.
const CURVE_MAX: usize = 60;
/// Columns in front of a curve.
const CURVE_START: usize = 24;
/// The least room that a curve is worth.
const CURVE_MIN: usize = 8;
/// Lines of a terminal below which one line has to do.
const ROWS_MIN: usize = 10;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A terminal as far as it matters here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Screen {
    columns: usize,
    rows: usize,
    has_colour: bool,
}

impl Screen {
    fn of_stderr() -> Self {
        let (columns, rows) = terminal_size::terminal_size_of(io::stderr())
            .map_or((80, 24), |(width, height)| {
                (width.0.into(), height.0.into())
            });
        let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            columns,
            rows,
            has_colour: !is_refused,
        }
    }
}

/// What has been heard of the run.
#[derive(Debug, Default)]
pub(super) struct Live {
    title: String,
    rates: VecDeque<f64>,
    p99s: VecDeque<f64>,
    /// Clocks of the last whole second.
    last: Option<(LatencySummary, LatencySummary)>,
    /// Lengths of the lines on the screen now.
    drawn: Vec<usize>,
}

impl Live {
    /// A view, if stderr is a terminal that can be drawn on.
    pub(super) fn on_terminal(title: String) -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
        (io::stderr().is_terminal() && !is_dumb).then(|| Self {
            title,
            ..Self::default()
        })
    }

    pub(super) fn second(&mut self, second: &Second<'_>) {
        let figures = second.figures;
        if figures.requests > 0 {
            keep(&mut self.p99s, figures.response_ns.p99 as f64);
            self.last = Some((figures.response_ns, figures.slip_ns));
        }
    }

    /// Draws what is known now.
    pub(super) fn progress(&mut self, now: &Progress) {
        if !now.is_warm_up {
            keep(&mut self.rates, now.rate_per_s);
        }
        let screen = Screen::of_stderr();
        self.draw(&self.lines(now, &screen), &screen);
    }

    /// Draws that connections are being opened.
    pub(super) fn connecting(&mut self, line: &str) {
        let screen = Screen::of_stderr();
        let line = line.chars().take(screen.columns).collect();
        self.draw(&[(line, None)], &screen);
    }

    fn draw(&mut self, lines: &[(String, Option<Colour>)], screen: &Screen) {
        let mut text = self.back(screen);
        // Lines are cut at the right edge, not wrapped, so that each takes one row.
        text += "\x1b[?7l";
        for (line, tone) in lines {
            match tone.filter(|_| screen.has_colour) {
                Some(colour) => text += &format!("\x1b[K{}\n", colour.paint(line)),
                None => text += &format!("\x1b[K{line}\n"),
            }
        }
        text += "\x1b[?7h\x1b[J";
        self.drawn = lines.iter().map(|(line, _)| line.chars().count()).collect();
        // A terminal that cannot be written to shows nothing; the run does not mind.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    /// Takes the view away, before results are printed.
    pub(super) fn clear(&mut self) {
        if !self.drawn.is_empty() {
            let text = self.back(&Screen::of_stderr()) + "\x1b[J";
            self.drawn.clear();
            let _ = io::stderr().lock().write_all(text.as_bytes());
        }
    }

    /// To where the view begins. A terminal that has become narrower has wrapped its lines.
    fn back(&self, screen: &Screen) -> String {
        let rows_of = |len: &usize| len.div_ceil(screen.columns.max(1)).max(1);
        match self.drawn.iter().map(rows_of).sum::<usize>() {
            0 => String::new(),
            rows => format!("\r\x1b[{rows}A"),
        }
    }

    fn lines(&self, now: &Progress, screen: &Screen) -> Vec<(String, Option<Colour>)> {
        let mut lines = vec![(head(now), None)];
        if screen.rows >= ROWS_MIN {
            let curve_columns = screen.columns.saturating_sub(CURVE_START);
            lines.insert(0, (self.title.clone(), Some(Colour::Quiet)));
            let rate = format!("{:<10}{}", "rate", format_rate(now.rate_per_s));
            lines.push((with_curve(&rate, &self.rates, curve_columns), None));
            let (response, slip) = match &self.last {
                None => ("-".to_owned(), "-".to_owned()),
                Some((response, slip)) => (times(response), times(slip)),
            };
            lines.push((format!("{:<10}{response}", "response"), None));
            let worst = self.p99s.iter().copied().fold(0.0, f64::max);
            let label = format!("{:<10}to {}", "  p99", format_duration_ns(worst));
            lines.push((with_curve(&label, &self.p99s, curve_columns), None));
            lines.push((format!("{:<10}{slip}", "delay"), None));
        }
        let tone = if now.errors.total() > 0 {
            Some(Colour::Bad)
        } else {
            None
        };
        lines.push((format!("{:<10}{}", "errors", errors(&now.errors)), tone));
        for (line, _) in &mut lines {
            *line = line.chars().take(screen.columns).collect();
        }
        lines
    }
}

fn keep(values: &mut VecDeque<f64>, value: f64) {
    if values.len() == CURVE_MAX {
        values.pop_front();
    }
    values.push_back(value);
}

fn head(now: &Progress) -> String {
    let phase = if now.is_warm_up {
        "warming up"
    } else {
        "measuring"
    };
    let mut line = format!(
        "{phase}, {} gone, {} requests",
        whole_seconds(now.elapsed_ns),
        format_count(now.completed as f64)
    );
    if let Some(remaining_ns) = now.remaining_ns {
        line += &format!(", {} left", whole_seconds(remaining_ns));
        let whole_ns = now.elapsed_ns + remaining_ns;
        if let Some(percent) = (now.elapsed_ns * 100).checked_div(whole_ns) {
            line += &format!(" ({percent} %)");
        }
    }
    line
}

fn times(clock: &LatencySummary) -> String {
    let time = |value_ns: u64| format_duration_ns(value_ns as f64);
    format!(
        "p50 {}   p90 {}   p99 {}   max {}",
        time(clock.p50),
        time(clock.p90),
        time(clock.p99),
        time(clock.max)
    )
}

fn errors(errors: &LoadErrors) -> String {
    let kinds = [
        ("connect", errors.connect),
        ("read", errors.read),
        ("write", errors.write),
        ("timeout", errors.timeout),
        ("status", errors.status),
        ("content", errors.validation),
    ];
    let occurred = kinds.into_iter().filter(|(_, count)| *count > 0);
    let words: Vec<String> = occurred
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join(", ")
    }
}

/// The newest samples behind a label, from zero to the largest of them.
fn with_curve(label: &str, values: &VecDeque<f64>, columns: usize) -> String {
    let count = values.len().min(columns);
    if count == 0 || columns < CURVE_MIN {
        return label.to_owned();
    }
    let largest = values.iter().copied().fold(0.0, f64::max);
    let newest = values.iter().skip(values.len() - count);
    let curve: String = newest.map(|&value| LEVELS[level(value, largest)]).collect();
    format!("{label:<CURVE_START$}{curve}")
}

fn level(value: f64, largest: f64) -> usize {
    if largest <= 0.0 {
        return 0;
    }
    let top = LEVELS.len() - 1;
    ((value / largest * top as f64).round() as usize).min(top)
}

#[cfg(test)]
#[path = "tests/live.rs"]
mod tests;

//! How much was seen below each stack.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::Unit;
use super::svg::{Look, percent, render};

/// Weights by stack: frames from the outermost to the innermost, `;` in between, as the folded
/// format of flame graphs has them. Equal stacks are one, with the sum of their weights.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Stacks(BTreeMap<String, u64>);

/// A line that is not `frame;frame WEIGHT`.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line} of the folded stacks does not end in a blank and a whole number: {text:?}")]
pub struct FoldedError {
    /// Counted from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
}

/// A function with what was seen in it and below it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeavyFunction {
    /// Its name.
    pub name: String,
    /// Seen with this function innermost.
    pub own: u64,
    /// Seen with this function anywhere in the stack, each stack once.
    pub total: u64,
}

impl Stacks {
    /// Adds one stack, its outermost frame first. A `;` in a name becomes `:`, for `;` separates.
    pub fn add<'a>(&mut self, frames: impl IntoIterator<Item = &'a str>, weight: u64) {
        let mut stack = String::new();
        for frame in frames {
            if !stack.is_empty() {
                stack.push(';');
            }
            stack.extend(frame.chars().map(|letter| match letter {
                ';' => ':',
                letter if letter.is_control() => ' ',
                letter => letter,
            }));
        }
        if !stack.is_empty() && weight > 0 {
            self.add_folded(stack, weight);
        }
    }

    fn add_folded(&mut self, stack: String, weight: u64) {
        let sum = self.0.entry(stack).or_default();
        *sum = sum.saturating_add(weight);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (stack, weight) in other.iter() {
            self.add_folded(stack.to_owned(), weight);
        }
    }

    /// Every stack with its weight, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0
            .iter()
            .map(|(stack, &weight)| (stack.as_str(), weight))
    }

    /// The weight of just this stack.
    pub(super) fn weight(&self, stack: &str) -> u64 {
        self.0.get(stack).copied().unwrap_or(0)
    }

    /// True if nothing was seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sum of all weights.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0
            .values()
            .fold(0, |sum, &weight| sum.saturating_add(weight))
    }

    /// One line for each stack, `outer;inner WEIGHT`: what flamegraph.pl, inferno and speedscope read.
    #[must_use]
    pub fn to_folded(&self) -> String {
        let mut text = String::new();
        for (stack, weight) in self.iter() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{stack} {weight}");
        }
        text
    }

    /// Reads what [`Self::to_folded`] writes; empty lines are passed over.
    pub fn parse_folded(text: &str) -> Result<Self, FoldedError> {
        let mut stacks = Self::default();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let parsed = line
                .rsplit_once(' ')
                .and_then(|(stack, weight)| Some((stack, weight.parse::<u64>().ok()?)))
                .filter(|(stack, _)| !stack.is_empty());
            let Some((stack, weight)) = parsed else {
                return Err(FoldedError {
                    line: index + 1,
                    text: line.to_owned(),
                });
            };
            stacks.add_folded(stack.to_owned(), weight);
        }
        Ok(stacks)
    }

    /// The `count` functions in which most was seen themselves, the heaviest first.
    #[must_use]
    pub fn heaviest(&self, count: usize) -> Vec<HeavyFunction> {
        let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (stack, weight) in self.iter() {
            // A function that calls itself is in the stack more than once.
            let names: BTreeSet<&str> = stack.split(';').collect();
            for name in names {
                let (_, total) = sums.entry(name).or_default();
                *total = total.saturating_add(weight);
            }
            let innermost = stack.rsplit(';').next().unwrap_or(stack);
            let (own, _) = sums.entry(innermost).or_default();
            *own = own.saturating_add(weight);
        }
        let mut functions: Vec<HeavyFunction> = sums
            .into_iter()
            .filter(|&(_, (own, _))| own > 0)
            .map(|(name, (own, total))| HeavyFunction {
                name: name.to_owned(),
                own,
                total,
            })
            .collect();
        functions.sort_by(|one, other| other.own.cmp(&one.own).then(one.name.cmp(&other.name)));
        functions.truncate(count);
        functions
    }
}

// Stacks that begin alike, laid upon each other.

/// A frame with all that was called from it. A single profile has weights of `after` alone.
#[derive(Debug, Default)]
pub(super) struct Frame<'a> {
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) callees: BTreeMap<&'a str, Frame<'a>>,
}

impl<'a> Frame<'a> {
    /// The root above the stacks of both sides.
    pub(super) fn root(before: &'a Stacks, after: &'a Stacks) -> Self {
        let mut root = Self::default();
        for (stack, weight) in before.iter() {
            root.add(stack, |frame| &mut frame.before, weight);
        }
        for (stack, weight) in after.iter() {
            root.add(stack, |frame| &mut frame.after, weight);
        }
        root
    }

    fn add(&mut self, stack: &'a str, side: fn(&mut Self) -> &mut u64, weight: u64) {
        let mut frame = self;
        let mut names = stack.split(';');
        loop {
            let sum = side(frame);
            *sum = sum.saturating_add(weight);
            let Some(name) = names.next() else { return };
            frame = frame.callees.entry(name).or_default();
        }
    }

    /// The value that decides how wide it is drawn.
    pub(super) fn width(&self) -> u64 {
        self.before.saturating_add(self.after)
    }

    /// The weight of the function itself.
    pub(super) fn own(&self) -> u64 {
        let called: u64 = self
            .callees
            .values()
            .fold(0, |sum, callee| sum.saturating_add(callee.width()));
        self.width().saturating_sub(called)
    }
}

// One picture of two profiles: what costs more, what costs less.
//
// A box is as wide as both sides together, so that nothing vanishes that only one of them has.
// Red: more on the second side; blue: less; the stronger, the larger the part of the box that
// differs. Pale: the difference is no larger than what two samplings of the same thing would show,
// by twice the standard error of their difference.

/// The compared stacks.
#[derive(Clone, Copy, Debug)]
pub struct Difference<'a> {
    /// The title, in a line.
    pub title: &'a str,
    /// The first side's name.
    pub before: &'a str,
    /// The second side's.
    pub after: &'a str,
    /// The unit of the weights.
    pub unit: Unit,
    /// The value of a sample, in that unit: 1 for samples; for bytes, their sum divided by the
    /// number of samples.
    pub weight_per_sample: f64,
}

/// Draws the difference. Both sides have to have done the same work.
#[must_use]
pub fn draw_difference(before: &Stacks, after: &Stacks, what: &Difference<'_>) -> String {
    let root = Frame::root(before, after);
    let note = format!(
        "{} {}, {} {}; red: more under {}, blue: less, pale: within the noise of sampling",
        what.before,
        what.unit.format(root.before),
        what.after,
        what.unit.format(root.after),
        what.after,
    );
    render(&root, what.title, &note, &look_of_two(&root, what))
}

/// The colours of a difference's boxes.
pub(super) fn look_of_two<'a>(
    root: &'a Frame<'_>,
    what: &'a Difference<'_>,
) -> impl Fn(&str, &Frame<'_>) -> Look + 'a {
    move |_, frame| Look {
        fill: colour(frame, what.weight_per_sample),
        words: words(frame, root, what),
    }
}

/// Both weights behind each stack, `outer;inner BEFORE AFTER`: what difffolded.pl writes.
#[must_use]
pub fn fold_difference(before: &Stacks, after: &Stacks) -> String {
    let stacks: BTreeSet<&str> = before
        .iter()
        .chain(after.iter())
        .map(|(stack, _)| stack)
        .collect();
    let mut text = String::new();
    for stack in stacks {
        let (before, after) = (before.weight(stack), after.weight(stack));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{stack} {before} {after}");
    }
    text
}

fn words(frame: &Frame<'_>, root: &Frame<'_>, what: &Difference<'_>) -> String {
    let (sign, change) = match frame.after.cmp(&frame.before) {
        std::cmp::Ordering::Less => ("-", frame.before - frame.after),
        _ => ("+", frame.after - frame.before),
    };
    format!(
        "{} {} ({}), {} {} ({}): {sign}{}{}",
        what.before,
        what.unit.format(frame.before),
        percent(frame.before, root.before),
        what.after,
        what.unit.format(frame.after),
        percent(frame.after, root.after),
        what.unit.format(change),
        if is_noise(frame, what.weight_per_sample) {
            ", within the noise of sampling"
        } else {
            ""
        },
    )
}

/// The variance of a sum of samples is about the sum times what each stands for.
fn is_noise(frame: &Frame<'_>, weight_per_sample: f64) -> bool {
    let change = frame.after as f64 - frame.before as f64;
    let standard_error = (frame.width() as f64 * weight_per_sample.max(1.0)).sqrt();
    change.abs() <= 2.0 * standard_error
}

fn colour(frame: &Frame<'_>, weight_per_sample: f64) -> String {
    if is_noise(frame, weight_per_sample) {
        return "hsl(40,10%,84%)".to_owned();
    }
    let change = frame.after as f64 - frame.before as f64;
    let part = (change.abs() / frame.width().max(1) as f64).min(1.0);
    let hue = if change > 0.0 { 6 } else { 212 };
    format!("hsl({hue},85%,{:.0}%)", 86.0 - 24.0 * part)
}

// perf's samples as stacks: what `perf script -F comm,ip,sym,dso` (or `ip,sym,dso`) prints.
//
// A sample is a line with the thread's name, if that was asked for, a line for each frame from the
// innermost out, `address symbol (file)`, and an empty line.

/// The text below the outermost frame of every stack.
#[derive(Clone, Copy, Debug)]
pub enum Root<'a> {
    /// The thread's name, as the sample has it.
    Thread,
    /// A title of ours; `;` separates several.
    Title(&'a str),
}

impl Stacks {
    /// Adds every sample of a script; returns how many there were.
    pub fn add_perf_script(&mut self, script: &str, root: Root<'_>) -> u64 {
        let mut samples = 0;
        for sample in script.split("\n\n") {
            let mut thread = "";
            let mut frames: Vec<Cow<'_, str>> = Vec::new();
            for line in sample.lines() {
                match frame(line) {
                    Some(name) => frames.push(name),
                    None if !line.starts_with([' ', '\t']) => thread = line.trim(),
                    None => {}
                }
            }
            // Code that has no names is one box, however many frames it is deep.
            frames.dedup_by(|one, other| one == other && one.starts_with('['));
            if frames.is_empty() {
                continue;
            }
            samples += 1;
            let outermost_first = frames.iter().rev().map(|frame| &**frame);
            match root {
                Root::Thread => self.add([thread].into_iter().chain(outermost_first), 1),
                Root::Title(title) => self.add(title.split(';').chain(outermost_first), 1),
            }
        }
        samples
    }
}

/// The function of a frame's line `  55d0c0ffee name (/usr/lib/file)`; for code without a name, the
/// file's in brackets.
fn frame(line: &str) -> Option<Cow<'_, str>> {
    if !line.starts_with([' ', '\t']) {
        return None;
    }
    let (address, rest) = line.trim().split_once(' ')?;
    u64::from_str_radix(address, 16).ok()?;
    // A function's own brackets come before those of the file.
    let (name, file) = match rest.trim().rsplit_once(" (") {
        Some((name, file)) => (name.trim(), file.trim_end_matches(')')),
        None => (rest.trim(), "[unknown]"),
    };
    if name != "[unknown]" && !name.is_empty() {
        return Some(without_hash(name).into());
    }
    Some(place(file))
}

/// Where code without a name is.
fn place(file: &str) -> Cow<'_, str> {
    if file.starts_with("[kernel") || file.ends_with(".ko") {
        "[kernel]".into()
    } else if file == "[unknown]" || file.is_empty() {
        "[unknown]".into()
    } else if file.starts_with("//") || file.contains("anon") || file.starts_with("/tmp/perf-") {
        "[generated code]".into()
    } else if file.starts_with("[vdso") {
        "[vdso]".into()
    } else {
        let name = file.rsplit('/').next().unwrap_or(file);
        format!("[{name}]").into()
    }
}

/// A Rust name without the hash that the compiler appends.
#[must_use]
pub fn without_hash(name: &str) -> &str {
    let is_hash = |tail: &str| {
        tail.len() == 17
            && tail.starts_with('h')
            && tail[1..].bytes().all(|it| it.is_ascii_hexdigit())
    };
    match name.rsplit_once("::") {
        Some((path, tail)) if is_hash(tail) => path,
        _ => name,
    }
}

#[cfg(test)]
#[path = "tests/stacks.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/difference.rs"]
mod difference_tests;

#[cfg(test)]
#[path = "tests/perf_script.rs"]
mod perf_script_tests;

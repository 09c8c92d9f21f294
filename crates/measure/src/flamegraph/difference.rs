//! One picture of two profiles: what costs more, what costs less.
//!
//! A box is as wide as both sides together, so that nothing vanishes that only one of them has.
//! Red: more on the second side; blue: less; the stronger, the larger the part of the box that
//! differs. Pale: the difference is no larger than what two samplings of the same thing would show,
//! by twice the standard error of their difference.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::svg::{Look, percent, render};
use super::tree::Frame;
use super::{Stacks, Unit};

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub struct Difference<'a> {
    /// What is shown, in a line.
    pub title: &'a str,
    /// The first side's name.
    pub before: &'a str,
    /// The second side's.
    pub after: &'a str,
    /// What the weights count.
    pub unit: Unit,
    /// What a sample stands for, in that unit: 1 for samples; for bytes, their sum divided by the
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

/// How the boxes of a difference look.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sides() -> (Stacks, Stacks) {
        let parse = |text| Stacks::parse_folded(text).unwrap();
        (
            parse("main;malloc 400\nmain;work 1000\nmain;old 200\n"),
            parse("main;malloc 100\nmain;work 1010\nmain;new 90\n"),
        )
    }

    /// Goal: both weights of every stack of either side.
    #[test]
    fn both_sides_are_folded() {
        let (before, after) = sides();
        let golden = "main;malloc 400 100\nmain;new 0 90\nmain;old 200 0\nmain;work 1000 1010\n";
        assert_eq!(fold_difference(&before, &after), golden);
    }

    /// Goal: more is red, less is blue, noise is neither, and nothing of either side is missing.
    #[test]
    fn colours_say_what_changed() {
        let (before, after) = sides();
        let what = Difference {
            title: "test",
            before: "glibc",
            after: "other",
            unit: Unit::Samples,
            weight_per_sample: 1.0,
        };
        let picture = draw_difference(&before, &after, &what);
        let fill = |name: &str| {
            let (_, rest) = picture.split_once(&format!("<title>{name}\n")).unwrap();
            let (_, rest) = rest.split_once("fill=\"hsl(").unwrap();
            rest.split_once(',').unwrap().0.parse::<u32>().unwrap()
        };
        assert_eq!(
            ["malloc", "new", "old", "work"].map(fill),
            [212, 6, 212, 40],
            "{picture}"
        );
        let words = "glibc 400 samples (25.00 %), other 100 samples (8.33 %): -300 samples<";
        assert!(picture.contains(words), "{picture}");
        assert!(
            picture.contains("+10 samples, within the noise"),
            "{picture}"
        );
        let coarse = Difference {
            weight_per_sample: 1e6,
            ..what
        };
        let picture = draw_difference(&before, &after, &coarse);
        assert!(!picture.contains("hsl(6,") && !picture.contains("hsl(212,"));
    }
}

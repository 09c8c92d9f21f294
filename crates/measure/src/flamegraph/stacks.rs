//! How much was seen below each stack.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

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
    /// What it says.
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

    /// What was seen in just this stack.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: equal stacks add up, separators inside names do no harm, and folded text comes back.
    #[test]
    fn stacks_add_up_and_come_back_from_text() {
        let mut stacks = Stacks::default();
        stacks.add(["main", "operator;", "new u8"], 2);
        stacks.add(["main", "operator;", "new u8"], 3);
        stacks.add(["main"], 1);
        stacks.add(["nothing"], 0);
        stacks.add([], 9);
        let mut again = Stacks::default();
        again.merge(&stacks);
        assert_eq!(again.to_folded(), "main 1\nmain;operator:;new u8 5\n");
        assert_eq!(Stacks::parse_folded(&again.to_folded()), Ok(stacks));
        assert_eq!(again.total(), 6);
    }

    #[test]
    fn lines_that_are_no_stacks_are_named() {
        for (text, line) in [("a;b 1\nc\n", 2), ("a -1", 1), (" 1", 1), ("a 1.5", 1)] {
            let error = Stacks::parse_folded(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}");
        }
        assert_eq!(Stacks::parse_folded("\n\n"), Ok(Stacks::default()));
    }

    /// Goal: what a function did itself and what it caused are apart, recursion counted once.
    #[test]
    fn own_and_caused() {
        let stacks = Stacks::parse_folded("a;b;a 5\na;c 3\na 1\n").unwrap();
        let found: Vec<(String, u64, u64)> = stacks
            .heaviest(2)
            .into_iter()
            .map(|function| (function.name, function.own, function.total))
            .collect();
        assert_eq!(found, [("a".to_owned(), 6, 9), ("c".to_owned(), 3, 3)]);
    }
}

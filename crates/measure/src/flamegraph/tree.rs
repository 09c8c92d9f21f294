//! Stacks that begin alike, laid upon each other.

use std::collections::BTreeMap;

use super::Stacks;

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

    /// What decides how wide it is drawn.
    pub(super) fn width(&self) -> u64 {
        self.before.saturating_add(self.after)
    }

    /// What was seen in the function itself.
    pub(super) fn own(&self) -> u64 {
        let called: u64 = self
            .callees
            .values()
            .fold(0, |sum, callee| sum.saturating_add(callee.width()));
        self.width().saturating_sub(called)
    }
}

//! The widest frames of a profile as a few lines of text: what a record can hold of it.
//!
//! A line is `DEPTH WEIGHT NAME`, callers before their callees; the weight is what was seen in the frame
//! itself and in callees that are left out, so the sum of all lines is the whole.

use super::Stacks;
use super::tree::Frame;

/// Longer names are cut: a template's arguments can fill a page.
const NAME_MAX: usize = 96;

/// At most `frames_max` lines.
#[must_use]
pub fn outline(stacks: &Stacks, frames_max: usize) -> Vec<String> {
    let nothing = Stacks::default();
    let root = Frame::root(&nothing, stacks);
    let mut widths = Vec::new();
    collect_widths(&root, &mut widths);
    widths.sort_unstable_by(|one, other| other.cmp(one));
    // A frame is never wider than its caller, so what is kept hangs together.
    let least = widths.get(frames_max).map_or(1, |width| width + 1);
    let mut lines = Vec::new();
    write(&root, least, 0, &mut lines);
    lines
}

fn collect_widths(frame: &Frame<'_>, widths: &mut Vec<u64>) {
    for callee in frame.callees.values() {
        widths.push(callee.width());
        collect_widths(callee, widths);
    }
}

fn write(frame: &Frame<'_>, least: u64, depth: usize, lines: &mut Vec<String>) {
    let kept = || frame.callees.iter().filter(|(_, it)| it.width() >= least);
    for (name, callee) in kept() {
        let below: u64 = callee
            .callees
            .values()
            .map(Frame::width)
            .filter(|width| *width >= least)
            .sum();
        let own = callee.width().saturating_sub(below);
        lines.push(format!("{depth} {own} {}", cut(name)));
        write(callee, least, depth + 1, lines);
    }
}

fn cut(name: &str) -> String {
    if name.chars().count() <= NAME_MAX {
        return name.to_owned();
    }
    name.chars()
        .take(NAME_MAX - 1)
        .chain(['\u{2026}'])
        .collect()
}

impl Stacks {
    /// The widest frames alone; what was seen in others counts for their callers.
    #[must_use]
    pub(crate) fn widest(&self, frames_max: usize) -> Self {
        from_outline(&outline(self, frames_max))
    }
}

/// The stacks of an outline. A line that is none is passed over: a record may be anybody's.
#[must_use]
pub fn from_outline(lines: &[String]) -> Stacks {
    let mut stacks = Stacks::default();
    let mut path: Vec<&str> = Vec::new();
    for line in lines {
        let mut parts = line.splitn(3, ' ');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (Some(depth), Some(own)) = (number(), number()) else {
            continue;
        };
        path.truncate(usize::try_from(depth).unwrap_or(usize::MAX));
        path.push(parts.next().unwrap_or_default());
        stacks.add(path.iter().copied(), own);
    }
    stacks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Stacks {
        Stacks::parse_folded(text).unwrap()
    }

    /// Goal: with room for all, nothing is lost.
    #[test]
    fn a_small_profile_survives() {
        let stacks = parse("a;b c;d 3\na;b c 2\na 1\ne;b c 7\n");
        let lines = outline(&stacks, 100);
        assert_eq!(lines[0], "0 1 a");
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert_eq!(from_outline(&lines), stacks);
    }

    /// Goal: of many frames the widest stay, with their callers, and the sum stays what it was.
    #[test]
    fn the_widest_stay() {
        let many: String = (0..5_000)
            .map(|index| format!("main;work;leaf{index} {}\n", 1 + index % 7))
            .collect();
        let stacks = parse(&format!("{many}main;big;bigger 9000\n"));
        let lines = outline(&stacks, 4);
        assert_eq!(lines.len(), 4, "{lines:?}");
        let kept = from_outline(&lines);
        assert_eq!(kept.total(), stacks.total());
        assert!(kept.to_folded().contains("main;big;bigger 9000"));
        assert!(kept.to_folded().contains("main;work "));
        assert!(outline(&stacks, 0).is_empty());
    }

    /// Goal: names without end are cut, and lines that say nothing harm nobody.
    #[test]
    fn odd_lines() {
        let long = format!("{} 1\n", "x".repeat(4_000));
        assert!(outline(&parse(&long), 10)[0].chars().count() < 140);
        let lines = ["", "x y z", "9 4 deep", "0", "1 2 a b"].map(str::to_owned);
        assert_eq!(from_outline(&lines).to_folded(), "deep 4\ndeep;a b 2\n");
    }
}

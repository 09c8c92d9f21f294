//! A page of Markdown, as far as commands and links go.

use std::collections::BTreeSet;
use std::path::Path;

/// The line that opens and closes a block of code.
const FENCE: &str = "```";

/// Programs whose commands are checked.
const PROGRAMS: [&str; 4] = ["millpond ", "make ", "cargo ", "scripts/setup "];

pub(crate) struct Page {
    /// Commands of blocks and of code within sentences, with the line they begin in.
    commands: Vec<(usize, String)>,
    links: Vec<(usize, String)>,
    /// Anchors that a link may name behind `#`, as GitHub makes them from the headings.
    anchors: BTreeSet<String>,
    blocks: Vec<Block>,
}

/// A block of code.
pub(crate) struct Block {
    pub(crate) line: usize,
    /// Empty for what is printed, and for commands in a table.
    pub(crate) language: String,
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn read(path: &Path) -> Self {
        Self::of(&std::fs::read_to_string(path).unwrap())
    }

    pub(crate) fn of(text: &str) -> Self {
        let mut page = Self {
            commands: Vec::new(),
            links: Vec::new(),
            anchors: BTreeSet::new(),
            blocks: Vec::new(),
        };
        let mut prose = String::new();
        let mut lines = text.lines().zip(1..);
        while let Some((line, number)) = lines.next() {
            let Some(language) = line.trim_start().strip_prefix(FENCE) else {
                if line.starts_with('#') {
                    page.anchors.insert(anchor_of(line));
                }
                prose.push_str(line);
                prose.push('\n');
                continue;
            };
            let block: Vec<(&str, usize)> = lines
                .by_ref()
                .take_while(|(line, _)| line.trim_start() != FENCE)
                .collect();
            // The prose keeps its line numbers, and no code span reaches over a block.
            prose.push_str(&"\n".repeat(block.len() + 2));
            if ["", "sh", "yaml"].contains(&language) {
                page.read_block(&block);
            }
            let text: Vec<&str> = block.iter().map(|(line, _)| *line).collect();
            page.blocks.push(Block {
                line: number,
                language: language.to_owned(),
                text: text.join("\n"),
            });
        }
        page.read_prose(&prose);
        page.commands.sort_by_key(|command| command.0);
        page
    }

    pub(crate) fn commands(&self) -> impl Iterator<Item = (usize, String)> {
        self.commands.iter().cloned()
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    pub(crate) fn has_anchor(&self, anchor: &str) -> bool {
        self.anchors.contains(anchor)
    }

    /// Targets within the repository, with what stands behind `#`; nothing in front of it is this page.
    pub(crate) fn links(&self) -> impl Iterator<Item = (usize, String)> {
        self.links.iter().cloned()
    }

    fn read_block(&mut self, block: &[(&str, usize)]) {
        let mut lines = block.iter();
        while let Some(&(line, number)) = lines.next() {
            let mut whole = line.trim().to_owned();
            while whole.ends_with('\\') {
                whole.pop();
                let next = lines.next().map_or("", |(line, _)| line.trim());
                whole = format!("{} {next}", whole.trim_end());
            }
            let whole = whole.strip_prefix("- run: ").unwrap_or(&whole);
            if is_command(whole) {
                self.commands.push((number, without_remark(whole)));
            }
        }
    }

    fn read_prose(&mut self, prose: &str) {
        let (mut line, mut is_code) = (1, false);
        for part in prose.split('`') {
            // A blank line ends an unclosed span.
            if is_code && !part.contains("\n\n") {
                let text = part.split_whitespace().collect::<Vec<_>>().join(" ");
                let text = text.replace("\\|", "|");
                if is_command(&text) || text.starts_with("--") {
                    self.commands.push((line, text));
                }
                is_code = false;
            } else {
                is_code = true;
                self.read_links(part, line);
            }
            line += part.matches('\n').count();
        }
    }

    fn read_links(&mut self, text: &str, first_line: usize) {
        for (start, _) in text.match_indices("](") {
            let target = &text[start + 2..];
            let target = &target[..target.find(')').unwrap_or(target.len())];
            if !target.is_empty() && !target.contains("://") {
                let line = first_line + text[..start].matches('\n').count();
                self.links.push((line, target.to_owned()));
            }
        }
    }
}

/// `## On a cluster` becomes `on-a-cluster`.
fn anchor_of(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter_map(|it| match it {
        ' ' => Some('-'),
        it => (it.is_alphanumeric() || it == '-' || it == '_').then_some(it),
    });
    kept.collect()
}

fn is_command(text: &str) -> bool {
    PROGRAMS.iter().any(|program| text.starts_with(program))
}

/// Without a comment, and without the column of a table that says what the command does: text behind two spaces that
/// resembles no argument.
fn without_remark(line: &str) -> String {
    let line = line.split(" # ").next().unwrap_or_default();
    let mut columns = line.split("  ").map(str::trim).filter(|it| !it.is_empty());
    let mut command = columns.next().unwrap_or_default().to_owned();
    for column in columns.take_while(|column| column.starts_with(['-', '['])) {
        command = format!("{command} {column}");
    }
    command
}

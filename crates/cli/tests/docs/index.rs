//! docs/README.md as an index: every page below docs is in it, and every question has an answer that is there.

use crate::page::Page;
use crate::root;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Questions that the index promises.
const QUESTIONS: usize = 20;

/// All pages below a directory.
fn pages_below(directory: &Path) -> BTreeSet<PathBuf> {
    let mut pages = BTreeSet::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => pages.extend(pages_below(&path)),
            false => {
                pages.insert(path);
            }
        }
    }
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages
}

/// The files that a page links to, without what stands behind `#`.
fn targets(path: &Path) -> BTreeSet<PathBuf> {
    let links: Vec<String> = Page::read(path).links().map(|(_, link)| link).collect();
    let files = links.iter().filter_map(|link| link.split('#').next());
    let directory = path.parent().unwrap();
    let files = files.filter(|file| !file.is_empty());
    files
        .filter_map(|file| directory.join(file).canonicalize().ok())
        .collect()
}

/// Goal: a reader who begins at the index gets to every page in two clicks.
#[test]
fn every_page_is_two_clicks_from_the_index() {
    let docs = root().join("docs").canonicalize().unwrap();
    let index = docs.join("README.md");
    let first = targets(&index);
    let second = first
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .flat_map(|path| targets(path));
    let reached: BTreeSet<PathBuf> = second.chain(first.clone()).chain([index]).collect();
    let pages = pages_below(&docs);
    let missed: Vec<&PathBuf> = pages.difference(&reached).collect();
    assert!(missed.is_empty(), "not in docs/README.md: {missed:#?}");
    assert!(pages.len() > 20, "{} pages", pages.len());
}

/// Goal: each question has a link to its answer, and there are as many as the heading says.
#[test]
fn every_question_has_an_answer() {
    let text = std::fs::read_to_string(root().join("docs/README.md")).unwrap();
    let questions = text.split("\n## Twenty questions\n").nth(1).unwrap();
    let rows = questions.lines().filter(|line| line.starts_with("| "));
    let rows: Vec<&str> = rows.filter(|line| line.contains("? |")).collect();
    assert_eq!(rows.len(), QUESTIONS, "{rows:#?}");
    for row in rows {
        let answer = row.rsplit("| ").next().unwrap();
        assert!(answer.starts_with('['), "no link to an answer: {row}");
    }
}

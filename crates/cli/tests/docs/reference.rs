//! docs/operating.md as a reference: it leaves out no flag of any command, and no metric of any server.

use crate::commands::{flags_described, helps};
use crate::dashboard::exported;
use crate::root;
use std::collections::BTreeSet;

/// What every command has.
const OF_ALL: [&str; 2] = ["--help", "--version"];

fn operating() -> String {
    std::fs::read_to_string(root().join("docs/operating.md")).unwrap()
}

/// What a page says of one command: the sections whose heading names it, or all of the page.
fn section<'a>(page: &'a str, command: &str) -> Vec<&'a str> {
    let name = format!("`millpond {command}`");
    let mut is_inside = false;
    let lines = page.lines().filter(|line| {
        if line.starts_with('#') {
            is_inside = line.contains(&name);
        }
        is_inside
    });
    let lines: Vec<&str> = lines.collect();
    match lines.is_empty() {
        true => page.lines().collect(),
        false => lines,
    }
}

/// Whether a line has a flag as a whole word.
fn has_flag(line: &str, flag: &str) -> bool {
    line.match_indices(flag).any(|(start, _)| {
        let is_word = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
        let before = line[..start].chars().next_back();
        let after = line[start + flag.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

fn flags_left_out(page: &str) -> Vec<String> {
    let mut left_out = Vec::new();
    for (words, help) in helps() {
        let command = words.join(" ");
        let lines = section(page, &command);
        for flag in flags_described(help).filter(|flag| !OF_ALL.contains(flag)) {
            if !lines.iter().any(|line| has_flag(line, flag)) {
                left_out.push(format!("millpond {command} {flag}"));
            }
        }
    }
    left_out
}

/// Names of metrics in one line, written out: of `millpond_a_b_total`, `_c_total` also `millpond_a_c_total` and
/// `millpond_c_total`, and `{a,b}` in a name stands for each of them. Braces at the end are labels.
fn metrics_named(line: &str) -> BTreeSet<String> {
    let (mut named, mut whole) = (BTreeSet::new(), Vec::new());
    for span in line.split('`').skip(1).step_by(2) {
        if span.starts_with("millpond_") {
            whole = written_out(span);
            named.extend(whole.iter().cloned());
        } else if span.starts_with('_') {
            for name in &whole {
                let starts = name.match_indices('_').map(|(end, _)| &name[..end]);
                named.extend(starts.flat_map(|start| {
                    let shorts = written_out(span).into_iter();
                    shorts.map(move |short| format!("{start}{short}"))
                }));
            }
        }
    }
    named
}

fn written_out(span: &str) -> Vec<String> {
    let choices = span.split_once('{').and_then(|(start, rest)| {
        let (choices, end) = rest.split_once('}')?;
        end.starts_with('_').then_some((start, choices, end))
    });
    match choices {
        None => vec![span.split('{').next().unwrap_or_default().to_owned()],
        Some((start, choices, end)) => choices
            .split(',')
            .flat_map(|choice| written_out(&format!("{start}{choice}{end}")))
            .collect(),
    }
}

/// Goal: whoever runs a command finds each of its flags on the page.
#[test]
fn every_flag_is_on_the_page() {
    let left_out = flags_left_out(&operating());
    assert!(left_out.is_empty(), "\n{}", left_out.join("\n"));
}

/// Goal: a flag that is left out is missed, though a longer one or another command's section has it.
#[test]
fn a_flag_left_out_is_missed() {
    let page = operating();
    let is_missed = |page: &str, flag: &str| flags_left_out(page).iter().any(|it| it == flag);
    let planted = page.replace("`--max-trailer ", "`--max-trailer-not ");
    assert!(is_missed(&planted, "millpond serve files --max-trailer"));
    let line = page
        .lines()
        .find(|line| line.starts_with("| `--time-budget "));
    let planted = page.replace(line.unwrap(), "");
    assert!(is_missed(&planted, "millpond compare --time-budget"));
}

/// Goal: whoever looks at `/metrics` finds each name on the page.
#[test]
fn every_metric_is_on_the_page() {
    let page = operating();
    let named: BTreeSet<String> = page.lines().flat_map(metrics_named).collect();
    let left_out: Vec<&str> = exported()
        .names()
        .filter(|&name| !named.contains(name))
        .collect();
    assert!(left_out.is_empty(), "\n{}", left_out.join("\n"));
    let table = page.split("\n## GET /metrics\n").nth(1).unwrap();
    let table = table.split("\n## ").next().unwrap();
    // The other way round for names that are whole; shortened ones may be read in several ways.
    for span in table.split('`').skip(1).step_by(2) {
        for name in written_out(span)
            .iter()
            .filter(|name| name.starts_with("millpond_") && !name.ends_with("_..."))
        {
            assert!(
                exported().names().any(|it| it == name),
                "nobody exports {name}"
            );
        }
    }
}

/// Goal: shortened names are read as somebody would read them.
#[test]
fn shortened_names_are_written_out() {
    let named = metrics_named("| `millpond_a_b_total{kind}`, `_c_{d,e}_bytes` | text | `_f` |");
    for name in [
        "millpond_a_b_total",
        "millpond_a_c_d_bytes",
        "millpond_c_e_bytes",
        "millpond_a_b_f",
    ] {
        assert!(named.contains(name), "{name} is not in {named:?}");
    }
    assert!(!named.contains("millpond_b_total"));
}

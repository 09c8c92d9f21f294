//! docs/reference against the program: it leaves out no flag of any command and no metric of any server, and what is made
//! from the definitions of the flags is as they are now.

use crate::commands::{flags_described, helps};
use crate::dashboard::exported;
use crate::{pages, root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The common flags of every command.
const OF_ALL: [&str; 2] = ["--help", "--version"];

/// Names of metrics begin with `millpond_` and one of these.
const FAMILIES: [&str; 13] = [
    "build", "driver", "entity", "files", "http", "io", "mirror", "pool", "pools", "proxy",
    "thread", "tls", "upstream",
];

fn reference(name: &str) -> PathBuf {
    root().join("docs/reference").join(name)
}

/// The text of each page in a directory, by its name.
fn texts(directory: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let text = |path: &Path| std::fs::read_to_string(path).unwrap();
    entries
        .map(Result::unwrap)
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                text(&entry.path()),
            )
        })
        .collect()
}

/// Goal: the pages about commands are what `millpond pages` makes now.
#[test]
fn pages_of_commands_are_as_the_flags_are() {
    let directory = tempfile::tempdir().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_millpond"))
        .arg("pages")
        .arg(directory.path())
        .status();
    assert!(status.unwrap().success());
    let made = texts(
        &directory
            .path()
            .join("doc/millpond/docs/reference/commands"),
    );
    assert_eq!(made.len(), helps().len(), "{:?}", made.keys());
    let place = reference("commands");
    if std::env::var_os("UPDATE_DOCS").is_some_and(|value| value == "1") {
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(&place).unwrap();
        for (name, text) in &made {
            std::fs::write(place.join(name), text).unwrap();
        }
    }
    let kept = texts(&place);
    let names: BTreeSet<&String> = made.keys().chain(kept.keys()).collect();
    let stale: Vec<_> = names
        .into_iter()
        .filter(|&name| made.get(name) != kept.get(name))
        .collect();
    assert!(
        stale.is_empty(),
        "not as the flags are: {stale:?} in {}; `UPDATE_DOCS=1 cargo test -p millpond --test docs` writes them",
        place.display()
    );
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

/// Flags that the help of a command describes, and that begin no item of its page.
fn flags_left_out(pages: &BTreeMap<String, String>) -> Vec<String> {
    let mut left_out = Vec::new();
    for (words, help) in helps() {
        let name = match words.is_empty() {
            true => "README.md".to_owned(),
            false => format!("{}.md", words.join("-")),
        };
        let page = pages.get(&name).map_or("", String::as_str);
        // Later mentions are no description.
        let items = page.lines().filter(|line| line.starts_with("- `-"));
        let items: Vec<&str> = items.filter_map(|line| line.split("`: ").next()).collect();
        for flag in flags_described(help).filter(|flag| !OF_ALL.contains(flag)) {
            if !items.iter().any(|item| has_flag(item, flag)) {
                left_out.push(format!("millpond {} {flag}", words.join(" ")));
            }
        }
    }
    left_out
}

/// Goal: each flag of a command is on its page.
#[test]
fn every_flag_is_on_the_page() {
    let left_out = flags_left_out(&texts(&reference("commands")));
    assert!(left_out.is_empty(), "\n{}", left_out.join("\n"));
    // Fewer would mean that they are not found any more.
    let described = helps().values().map(|help| flags_described(help).count());
    let described: usize = described.sum();
    assert!(described > 400, "{described} flags");
}

/// Goal: a flag that is left out is missed, though a longer one, another sentence or another page has it.
#[test]
fn a_flag_left_out_is_missed() {
    let pages = texts(&reference("commands"));
    for (name, old, new, flag) in [
        (
            "serve-files.md",
            "- `--max-trailer ",
            "- `--max-trailer-not ",
            "millpond serve files --max-trailer",
        ),
        (
            "compare.md",
            "- `--time-budget ",
            "- the `--time-budget ",
            "millpond compare --time-budget",
        ),
    ] {
        let mut planted = pages.clone();
        let page = planted.get_mut(name).unwrap();
        assert!(page.contains(old), "{name} has no {old}");
        *page = page.replace(old, new);
        assert_eq!(flags_left_out(&planted), [flag]);
    }
}

/// Type and labels of each metric in the tables of a page: `| name | type | labels | meaning |`.
fn metrics_in(page: &str) -> BTreeMap<&str, (&str, BTreeSet<String>)> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter(|row| row.starts_with("millpond_") || row.starts_with("process_"))
        .map(|row| {
            let mut columns = row.split(" | ");
            let mut next = || columns.next().unwrap_or_default();
            let (name, kind, labels) = (next(), next(), next());
            let labels = labels.split('`').skip(1).step_by(2);
            let labels = labels.map(str::to_owned).collect();
            (name.trim_end_matches('`'), (kind, labels))
        })
        .collect()
}

/// Goal: each name of `/metrics` is on the page with its type and labels, and no other name.
#[test]
fn every_metric_is_on_the_page() {
    let page = std::fs::read_to_string(reference("metrics.md")).unwrap();
    let told = metrics_in(&page);
    let mut complaints = Vec::new();
    for name in exported().names() {
        let (kind, labels) = exported().facts(name).unwrap();
        match told.get(name) {
            None => complaints.push(format!("{name} ({kind}, {labels:?}) is left out")),
            Some((told_kind, told_labels)) if (*told_kind, told_labels) != (kind, labels) => {
                complaints.push(format!("{name} is a {kind} with {labels:?}"));
            }
            Some(_) => {}
        }
    }
    let known: BTreeSet<&str> = exported().names().collect();
    let unknown = told.keys().filter(|name| !known.contains(*name));
    complaints.extend(unknown.map(|name| format!("nobody exports {name}")));
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    let planted = metrics_in("| `millpond_a_total` | counter | `shard`, `b` | text `c` |\n");
    let labels = BTreeSet::from(["shard".to_owned(), "b".to_owned()]);
    assert_eq!(planted["millpond_a_total"], ("counter", labels));
}

/// Names of metrics in a text, whole ones: not those that end in `_`, which stand for several.
fn metrics_named(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    words.filter(|word| {
        let family = word
            .strip_prefix("millpond_")
            .and_then(|it| it.split_once('_'));
        family.is_some_and(|(family, rest)| FAMILIES.contains(&family) && !rest.is_empty())
            && !word.ends_with('_')
    })
}

/// Goal: no page mentions a metric that does not exist.
#[test]
fn metrics_named_anywhere_are_exported() {
    let known: BTreeSet<&str> = exported().names().collect();
    let (mut complaints, mut checked) = (Vec::new(), 0);
    for path in pages() {
        let text = std::fs::read_to_string(&path).unwrap();
        for name in metrics_named(&text) {
            checked += 1;
            if !known.contains(exported().family(name)) {
                complaints.push(format!("{}: nobody exports {name}", path.display()));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    assert!(checked > 150, "{checked}");
    let planted: Vec<&str> =
        metrics_named("`millpond_http_a{b}` millpond_http::c millpond_pool_").collect();
    assert_eq!(planted, ["millpond_http_a"]);
}

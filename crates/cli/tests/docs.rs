//! The claims of README.md and docs: each command is one that this `millpond` understands, each link leads somewhere,
//! the dashboard asks for metrics that there are, and the reference has every flag and every metric.
//!
//! `--help` behind a command line makes the command read every word of it as it would any day, refuse what it does not
//! know, and do nothing. This cannot detect a missing flag, or two that exclude each other:
//! `cargo bench-suite newcomer` runs the recipes. Blocks of Rust are run as tests of `millpond-http`, others read by
//! what reads their language.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "docs/commands.rs"]
mod commands;
#[path = "docs/dashboard.rs"]
mod dashboard;
#[path = "docs/index.rs"]
mod index;
#[path = "docs/page.rs"]
mod page;
#[path = "docs/reference.rs"]
mod reference;
#[allow(dead_code, reason = "the other test program uses the rest")]
#[path = "cli/support.rs"]
mod support;

use commands::Commands;
use page::{Block, Page};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages for readers that want to know what to type: all of docs, and those of the folders with examples.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = ["README.md", "benches/README.md", "examples/README.md"]
        .map(|name| root().join(name))
        .into();
    pages.retain(|page| page.is_file());
    pages.extend(files_below(root().join("docs")));
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    pages
}

fn files_below(directory: PathBuf) -> Vec<PathBuf> {
    let (mut files, mut directories) = (Vec::new(), vec![directory]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => directories.push(path),
                false => files.push(path),
            }
        }
    }
    files
}

/// The mistake in a link of a page: no file, or no heading of that name in it.
fn broken(page: &Page, path: &Path, target: &str) -> Option<String> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let no_heading = || format!("there is no heading for {target}");
    if file.is_empty() {
        return (!page.has_anchor(anchor)).then(no_heading);
    }
    let file = path.parent().unwrap().join(file);
    match file.exists() {
        false => Some(format!("there is no {target}")),
        true if anchor.is_empty() || Page::read(&file).has_anchor(anchor) => None,
        true => Some(no_heading()),
    }
}

/// Goal: whatever a page says to type is valid, and whatever it links to is there.
#[test]
fn documented_commands_are_understood() {
    let commands = Commands::new(&root());
    let (mut complaints, mut checked) = (Vec::new(), 0);
    for path in pages() {
        let page = Page::read(&path);
        for (line, words) in page.commands() {
            checked += 1;
            if let Err(why) = commands.check(&words) {
                complaints.push(format!("{}:{line}: `{words}`: {why}", path.display()));
            }
        }
        for (line, target) in page.links() {
            if let Some(why) = broken(&page, &path, &target) {
                complaints.push(format!("{}:{line}: {why}", path.display()));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    // Fewer would mean that they are not found any more.
    assert!(checked > 80, "{checked} commands");
}

/// The objections of a block's own language; blocks of Rust are compiled and run elsewhere.
fn complaint(block: &Block) -> Option<String> {
    match &*block.language {
        "" | "text" | "rust" | "rust,standalone_crate" => None,
        "sh" => {
            let output = Command::new("bash")
                .args(["-n", "-c", &block.text])
                .output();
            let stderr = output.unwrap().stderr;
            (!stderr.is_empty()).then(|| String::from_utf8_lossy(&stderr).into_owned())
        }
        "toml" => {
            let table = block.text.parse::<toml::Table>();
            table.err().map(|error| error.to_string())
        }
        other => Some(format!("nobody here reads {other}")),
    }
}

/// Goal: a named script or file exists.
#[test]
fn blocks_are_in_their_language() {
    let (mut complaints, mut checked) = (Vec::new(), 0);
    for path in pages() {
        for block in Page::read(&path).blocks() {
            checked += usize::from(!block.language.is_empty());
            if let Some(why) = complaint(block) {
                complaints.push(format!("{}:{}: {why}", path.display(), block.line));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    assert!(checked > 15, "{checked} blocks");
    let planted =
        "```sh\nfor a in b; do\n```\n```toml\na = [\n```\n```perl\n```\n```sh\ntrue\n```\n";
    let complaints: Vec<bool> = Page::of(planted)
        .blocks()
        .iter()
        .map(|block| complaint(block).is_some())
        .collect();
    assert_eq!(complaints, [true, true, true, false]);
}

/// Goal: every kind of mistake is found: a word, a flag, a value, a verb, a target, a link.
#[test]
fn planted_mistakes_are_found() {
    let text = "\
Say `millpond serve plaintext --lissen 127.0.0.1:1`, or `millpond load --driver
kqueue URL`, and `--no-such-flag`; see [nothing](nothing.md), [none](#no-such-heading).

```
millpond grind
make coffee
cargo xtask idle
cargo bench-suite check
millpond load -c 64 http://127.0.0.1:8080/     as it should be
millpond serve files DIR [flags]   # the same
```

| `millpond serve plaintext --driver auto\\|uring\\|kqueue` | one of three |

```sh
millpond compare --rounds 4 \\
    --allocator glibc
```
";
    let commands = Commands::new(&root());
    let page = Page::of(text);
    let wrong: Vec<(usize, String)> = page
        .commands()
        .filter(|(_, words)| commands.check(words).is_err())
        .collect();
    let expected = [
        (1, "millpond serve plaintext --lissen 127.0.0.1:1"),
        (1, "millpond load --driver kqueue URL"),
        (2, "--no-such-flag"),
        (5, "millpond grind"),
        (6, "make coffee"),
        (7, "cargo xtask idle"),
        (8, "cargo bench-suite check"),
        (13, "millpond serve plaintext --driver auto|uring|kqueue"),
        (16, "millpond compare --rounds 4 --allocator glibc"),
    ];
    let expected = expected.map(|(line, words)| (line, words.to_owned()));
    assert_eq!(wrong, expected);
    let links: Vec<_> = page.links().collect();
    let expected = [(2, "nothing.md"), (2, "#no-such-heading")];
    assert_eq!(
        links,
        expected.map(|(line, target)| (line, target.to_owned()))
    );
    let path = root().join("docs/page.md");
    for (_, target) in links {
        assert!(broken(&page, &path, &target).is_some(), "{target}");
    }
    let page = Page::of("# One, two: `three`\n");
    assert_eq!(broken(&page, &path, "#one-two-three"), None);
}

/// Goal: each file that a page for developers names in the repository is there.
#[test]
fn named_files_are_there() {
    let (mut missing, mut checked) = (Vec::new(), 0);
    for name in ["docs/architecture.md", "CONTRIBUTING.md", "SECURITY.md"] {
        let text = std::fs::read_to_string(root().join(name)).unwrap();
        let quoted = text.split('`').skip(1).step_by(2);
        for path in quoted {
            let is_path = ["crates/", "xtask/", "docs/", "preload/", "benches/"]
                .iter()
                .any(|start| path.starts_with(start));
            if is_path && !path.contains('*') {
                checked += 1;
                if !root().join(path).exists() {
                    missing.push(format!("{name}: {path}"));
                }
            }
        }
    }
    assert!(checked >= 20, "{checked} paths");
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        // A test has the name of its subject, also when that was removed.
        let directory = entry.unwrap().path();
        let mut files = files_below(directory.clone());
        files.retain(|file| {
            let below = file.strip_prefix(&directory).unwrap();
            !below.components().any(|part| part.as_os_str() == "tests")
        });
        for source in &files {
            let text = std::fs::read_to_string(source).unwrap_or_default();
            for line in text.lines().filter(|line| line.starts_with("//!")) {
                for name in named_modules(line).filter(|name| !is_a_module(name, &files)) {
                    missing.push(format!("{}: {name}", source.display()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The words of a module's page that are names of modules: `one.rs`, `a/one.rs`, and of paths those in lower case, as
/// `crate::a::one`.
fn named_modules(line: &str) -> impl Iterator<Item = &str> {
    let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_/:.".contains(c);
    line.split(|c: char| c.is_whitespace() || "`()[],;\"".contains(c))
        .map(|word| word.trim_end_matches(['.', ':']))
        .filter(move |word| word.chars().all(is_of_name) && !word.contains("//"))
        .filter(|word| {
            let extension = Path::new(word).extension();
            extension.is_some_and(|extension| extension == "rs") || word.starts_with("crate::")
        })
}

/// Whether a crate of these files has the module, or in the module around it something of that name.
fn is_a_module(name: &str, files: &[PathBuf]) -> bool {
    let Some(path) = name.strip_prefix("crate::") else {
        return files.iter().any(|file| file.ends_with(name)) || root().join(name).exists();
    };
    let is_there = |path: &str| {
        let place = format!("src/{}.rs", path.replace("::", "/"));
        files.iter().find(|file| file.ends_with(&place))
    };
    let (outer, last) = path.rsplit_once("::").unwrap_or(("lib", path));
    let has_it =
        |file: &PathBuf| std::fs::read_to_string(file).is_ok_and(|text| text.contains(last));
    is_there(path).is_some() || is_there(outer).is_some_and(has_it)
}

/// Goal: of a module's page the names of modules are found and nothing else, and a removed one is noticed.
#[test]
fn modules_that_are_gone_are_noticed() {
    let line = "//! `edge` and `sim/wire.rs` (see `crate::a::one`, [`crate::Two`]); https://docs.rs/x, closing.rs:";
    let found: Vec<&str> = named_modules(line).collect();
    assert_eq!(found, ["sim/wire.rs", "crate::a::one", "closing.rs"]);
    let files = ["/x/src/a/one.rs", "/x/src/sim/wire.rs"].map(PathBuf::from);
    let there: Vec<bool> = found.iter().map(|name| is_a_module(name, &files)).collect();
    assert_eq!(there, [true, true, false]);
}

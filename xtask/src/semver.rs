//! Does the public interface of the crates still have everything that it had?
//!
//! rustdoc tells as JSON what is public; a line for each item, with a digest of its signature, is kept in
//! `docs/api/`. A line that is gone or differs breaks somebody's program; a new one does not. Absent on
//! purpose: judging behaviour, and whether a new bound of a generic parameter excludes anybody: any change of a
//! signature counts.

mod interface;

use crate::step::{cargo, run_command};
use crate::tally::TestTally;
use crate::toolchain::target_directory;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates that docs/embedding.md is about.
const CRATES: [&str; 3] = ["mempool", "io", "http"];

/// An item and the digest of its signature.
type Interface = BTreeMap<String, String>;

/// What differs between what was and what is.
#[derive(Debug, Default, Eq, PartialEq)]
struct Difference {
    gone: Vec<String>,
    changed: Vec<String>,
    added: Vec<String>,
}

/// Compares these crates with their snapshots; with `accepts` takes new ones instead.
pub(crate) fn run(accepts: bool) -> Result<(), String> {
    let mut broken = 0;
    for name in CRATES {
        let document = document(name)?;
        let version = &document["format_version"];
        let header = format!("# format {version}; cargo xtask semver --accept writes this file");
        let now = interface::of(&document)?;
        let file = snapshot(name);
        if accepts {
            let lines = now
                .iter()
                .map(|(item, digest)| format!("{item} {digest}\n"));
            let text = format!("{header}\n{}", lines.collect::<String>());
            let written = fs::write(&file, text);
            written.map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
            println!("millpond-{name}: {} items", now.len());
            continue;
        }
        let text = fs::read_to_string(&file);
        let text = text.map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
        if text.lines().next() != Some(&header) {
            return Err(format!(
                "{} is of another rustdoc: check out what it describes, and run cargo xtask semver --accept there",
                file.display()
            ));
        }
        let difference = Difference::between(&read(&text), &now);
        difference.print(name);
        broken += difference.gone.len() + difference.changed.len();
    }
    match broken {
        0 => Ok(()),
        _ => Err(format!(
            "{broken} items are not what they were: a release that has this needs a new major version, \
             or before 1.0 a new minor one, and a line in CHANGELOG.md; then cargo xtask semver --accept"
        )),
    }
}

fn snapshot(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.join(format!("docs/api/{name}.txt"))
}

/// What rustdoc says of a crate.
fn document(name: &str) -> Result<Value, String> {
    // Crates look whether unstable flags are allowed, and are compiled anew if that changes: not in the
    // directory of the daily build.
    let directory = target_directory()?.join("semver");
    let mut rustdoc = cargo();
    // The JSON of rustdoc is not stable; the first line of a snapshot says which it was.
    rustdoc.env("RUSTC_BOOTSTRAP", "1");
    rustdoc.args(["rustdoc", "--lib", "--locked", "--package"]);
    rustdoc.arg(format!("millpond-{name}"));
    if name == "io" {
        // As everybody above it builds it.
        rustdoc.args(["--features", "tls"]);
    }
    rustdoc.arg("--target-dir").arg(&directory);
    rustdoc.args(["--", "-Zunstable-options", "--output-format", "json"]);
    if !run_command(&mut rustdoc, &mut TestTally::default())? {
        return Err(format!("millpond-{name} cannot be documented: see above"));
    }
    let file = directory.join(format!("doc/millpond_{name}.json"));
    let text = fs::read_to_string(&file);
    let text = text.map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
}

fn read(text: &str) -> Interface {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(item, digest)| (item.to_owned(), digest.to_owned()))
        .collect()
}

impl Difference {
    fn between(before: &Interface, now: &Interface) -> Self {
        let mut difference = Self::default();
        for (item, digest) in before {
            match now.get(item) {
                None => difference.gone.push(item.clone()),
                Some(other) if other != digest => difference.changed.push(item.clone()),
                Some(_) => {}
            }
        }
        let added = now.keys().filter(|item| !before.contains_key(*item));
        difference.added.extend(added.cloned());
        difference
    }

    fn print(&self, name: &str) {
        let (gone, changed, added) = (self.gone.len(), self.changed.len(), self.added.len());
        println!("millpond-{name}: {gone} gone, {changed} changed, {added} added");
        for (what, items) in [
            ("gone", &self.gone),
            ("changed", &self.changed),
            ("added", &self.added),
        ] {
            for item in items {
                println!("  {what:<8} {item}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is gone and what changed is told apart from what is new, and a snapshot reads back.
    #[test]
    fn differences_are_told_apart() {
        let before = read("# format 1\nfn a::b 01\nfn a::c 02\nimpl X for a::D 03\n");
        let now = read("fn a::b 01\nfn a::c 0f\nfn a::e 05\n");
        let expected = Difference {
            gone: vec!["impl X for a::D".to_owned()],
            changed: vec!["fn a::c".to_owned()],
            added: vec!["fn a::e".to_owned()],
        };
        assert_eq!(Difference::between(&before, &now), expected);
    }

    /// Goal: every crate has its snapshot.
    #[test]
    fn each_crate_has_a_snapshot() {
        for name in CRATES {
            let text = fs::read_to_string(snapshot(name)).unwrap();
            assert!(read(&text).len() > 10, "{name}");
        }
    }
}

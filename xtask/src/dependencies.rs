//! What came in from outside: licences, duplicates, sources.
//!
//! cargo-deny does this where it is installed; it takes minutes to compile, so a machine without it
//! gets the same three questions answered here from `cargo metadata`, by the lists in `deny.toml`.
//! Absent on purpose: the advisory database, which needs the network.

mod licence;

use crate::step::{cargo, run_command};
use crate::tally::TestTally;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

/// Runs cargo-deny, or the check that stands in for it.
pub(crate) fn check(tests: &mut TestTally) -> Result<bool, String> {
    let asked = cargo()
        .args(["deny", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if asked.is_ok_and(|status| status.success()) {
        let words = ["deny", "--offline", "check", "licenses", "bans", "sources"];
        // Offline, it works on what is fetched already.
        run_command(cargo().args(["fetch", "--locked"]), tests)?;
        return run_command(cargo().args(words), tests);
    }
    println!(
        "cargo-deny is not installed: checking licences, duplicates and sources from metadata"
    );
    let rules = std::fs::read_to_string("deny.toml")
        .map_err(|error| format!("deny.toml cannot be read: {error}"))?;
    let complaints = complaints(&metadata()?, &Rules::read(&rules)?)?;
    for complaint in &complaints {
        println!("{complaint}");
    }
    Ok(complaints.is_empty())
}

/// Cargo's description of the workspace and all it depends on.
pub(crate) fn metadata() -> Result<Value, String> {
    let words = [
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--all-features",
    ];
    let target = ["--filter-platform", "x86_64-unknown-linux-gnu"];
    let output = cargo()
        .args(words)
        .args(target)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo metadata cannot be run: {error}"))?;
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata gave no readable answer: {error}"))
}

/// What `deny.toml` allows.
#[derive(Debug, Default, Eq, PartialEq)]
struct Rules {
    licences: Vec<String>,
    /// Crates that may be there in two versions, as `name@major` or `name@0.minor`.
    duplicates: Vec<String>,
}

impl Rules {
    /// Reads the two lists; the file is ours, so its shape is known: one entry per line.
    fn read(text: &str) -> Result<Self, String> {
        let mut rules = Self::default();
        let mut list = "";
        for line in text.lines().map(str::trim) {
            match line {
                "allow = [" => list = "allow",
                "skip = [" => list = "skip",
                "]" => list = "",
                _ => {
                    let Some(quoted) = line.split('"').nth(1) else {
                        continue;
                    };
                    match list {
                        "allow" => rules.licences.push(quoted.to_owned()),
                        "skip" => rules.duplicates.push(quoted.to_owned()),
                        _ => {}
                    }
                }
            }
        }
        if rules.licences.is_empty() {
            return Err("deny.toml has no list of licences that this check can read".to_owned());
        }
        Ok(rules)
    }
}

/// One sentence for each thing that the rules forbid.
fn complaints(metadata: &Value, rules: &Rules) -> Result<Vec<String>, String> {
    let packages = metadata["packages"]
        .as_array()
        .ok_or("cargo metadata lists no packages")?;
    let used = shipped(metadata)?;
    let mut complaints = Vec::new();
    let mut registry = None;
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        if !used.contains(text("id")) {
            continue;
        }
        let (name, version) = (text("name"), text("version"));
        let skipped = rules.duplicates.iter().any(|skip| {
            skip.split_once('@').is_some_and(|(skipped, series)| {
                let rest = version.strip_prefix(series);
                skipped == name && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        });
        if !skipped {
            versions.entry(name).or_default().push(version);
        }
        if !licence::allowed(text("license"), &rules.licences) {
            complaints.push(format!(
                "{name} {version} has licence `{}`, which deny.toml does not allow",
                text("license")
            ));
        }
        // A path of ours has no source. One registry serves all: `.cargo/config.toml` names no other.
        if let Some(source) = package["source"].as_str() {
            let registry = *registry.get_or_insert(source);
            if source != registry || !source.starts_with("registry+") {
                complaints.push(format!("{name} {version} comes from {source}"));
            }
        }
    }
    for (name, versions) in versions {
        if versions.len() > 1 {
            complaints.push(format!(
                "{name} is there in versions {}",
                versions.join(" and ")
            ));
        }
    }
    Ok(complaints)
}

/// The ids of what is built into our programs, or builds them: as cargo-deny does it, not what only
/// tests use.
fn shipped(metadata: &Value) -> Result<BTreeSet<&str>, String> {
    let nodes = metadata["resolve"]["nodes"]
        .as_array()
        .ok_or("cargo metadata lists no graph")?;
    let members = metadata["workspace_members"]
        .as_array()
        .ok_or("cargo metadata lists no members")?;
    let mut found = BTreeSet::new();
    let mut due: Vec<&str> = members.iter().filter_map(Value::as_str).collect();
    while let Some(id) = due.pop() {
        if !found.insert(id) {
            continue;
        }
        let node = nodes.iter().find(|node| node["id"] == id);
        let uses = node.and_then(|node| node["deps"].as_array());
        due.extend(uses.into_iter().flatten().filter_map(|used| {
            let kinds = used["dep_kinds"].as_array()?;
            let is_for_tests = kinds.iter().all(|kind| kind["kind"] == "dev");
            used["pkg"].as_str().filter(|_| !is_for_tests)
        }));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, version: &str, licence: &str) -> Value {
        json!({ "id": format!("{name}@{version}"), "name": name, "version": version,
                "license": licence, "source": null })
    }

    fn graph(packages: &[Value]) -> Value {
        // Every package is used by the one member, those that are called test- by its tests.
        let deps: Vec<Value> = packages
            .iter()
            .map(|it| {
                let is_for_tests = it["name"].as_str().unwrap().starts_with("test-");
                let kind = is_for_tests.then_some("dev");
                json!({ "pkg": it["id"], "dep_kinds": [{ "kind": kind }] })
            })
            .collect();
        json!({ "packages": packages, "workspace_members": ["ours"],
                "resolve": { "nodes": [{ "id": "ours", "deps": deps }] } })
    }

    fn rules() -> Rules {
        Rules {
            licences: vec!["MIT".to_owned()],
            duplicates: vec!["sluice@1".to_owned()],
        }
    }

    /// Goal: the repository's own list is read, both halves of it.
    #[test]
    fn the_lists_of_this_repository_are_read() {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../deny.toml"));
        let rules = Rules::read(&text.unwrap()).unwrap();
        assert!(rules.licences.iter().any(|licence| licence == "MIT"));
        assert!(rules.duplicates.iter().any(|skip| skip == "syn@2"));
        assert!(Rules::read("[licenses]\nallow = []\n").is_err());
    }

    /// Goal: a licence, a duplicate and a source outside the rules are each named; a duplicate
    /// that is excused is not.
    #[test]
    fn each_breach_is_named() {
        let mut foreign = package("weir", "1.0.0", "MIT");
        foreign["source"] = json!("git+ssh://somewhere");
        let packages = [
            package("sluice", "1.2.0", "MIT"),
            package("sluice", "2.0.0", "MIT"),
            package("leat", "0.1.0", "MIT"),
            package("leat", "0.2.0", "MIT"),
            package("race", "1.0.0", "GPL-3.0-only"),
            package("test-rig", "1.0.0", "GPL-3.0-only"),
            foreign,
        ];
        let found = complaints(&graph(&packages), &rules()).unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("race 1.0.0 has licence `GPL-3.0-only`"));
        assert!(found[1].starts_with("weir 1.0.0 comes from git+ssh"));
        assert_eq!(found[2], "leat is there in versions 0.1.0 and 0.2.0");
    }
}

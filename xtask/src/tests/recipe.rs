use super::*;
use std::fs;
use std::path::Path;

/// Goal: every recipe has its package, uses the crate it names there, and is searched for by the
/// lab; only this test connects the two.
#[test]
fn every_recipe_is_complete() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("a file of ours");
    let members = read("preload/allocators/Cargo.toml");
    let looked_for = read("crates/lab/src/allocator/built.rs");
    for recipe in ALL {
        let Recipe { name, source, .. } = recipe;
        let package = read(&format!("preload/allocators/{name}/Cargo.toml"));
        assert!(package.contains(&format!("name = \"millpond-allocator-{name}\"")));
        assert!(package.contains(&format!("name = \"millpond_{name}\"")));
        assert!(package.contains(source), "{name} does not use {source}");
        let quoted = format!("\"{name}\"");
        assert!(members.contains(&quoted), "{name} is no member");
        assert!(
            looked_for.contains(&quoted),
            "the lab does not look for {name}"
        );
    }
}

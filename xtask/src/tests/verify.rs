use super::*;

/// Goal: a part is found by its name, a crate leads to its parts, and anything else to the list.
#[test]
fn names_choose_parts() {
    assert_eq!(chosen(&["crash", "loom"]).unwrap().len(), 2);
    let sentence = named("entity").err().unwrap();
    assert!(
        sentence.contains("crash") && sentence.contains("cluster"),
        "{sentence}"
    );
    let sentence = named("grist").err().unwrap();
    assert!(
        sentence.contains("no part") && sentence.contains("soak"),
        "{sentence}"
    );
}

/// Goal: parts that take hours never start unasked, and every crate and preloaded object has a part.
#[test]
fn parts_are_complete() {
    let unasked = chosen(&[]).unwrap();
    assert!(unasked.iter().all(|part| part.start == Start::Always));
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    for entry in std::fs::read_dir(crates).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_guarded = PARTS
            .iter()
            .any(|part| part.guards.contains(&name.as_str()));
        assert!(is_guarded, "no part guards {name}");
    }
}

/// Goal: each verb of a part is one that its program knows: an invalid one would only show at night.
#[test]
fn verbs_are_known() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for verb in PARTS.iter().flat_map(|part| part.verbs) {
        let folder = match verb[0] {
            "xtask" => "xtask",
            _ => "crates/bench-suite",
        };
        let usage = std::fs::read_to_string(root.join(folder).join("src/main.rs")).unwrap();
        let typed = format!("cargo {} {}", verb[0], verb[1]);
        assert!(
            usage.lines().any(|line| line.contains(&typed)),
            "{typed} is not in the usage of {folder}"
        );
    }
}

/// Goal: a verb that fails is named with how it ended, and what it printed is in the log.
#[test]
fn a_failed_verb_is_named() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let deadline = Instant::now() + DEFAULT_TIMEOUT;
    let why = run_verb(&["--no-such-flag"], log.as_file(), deadline).unwrap_err();
    assert!(
        why.starts_with("cargo --no-such-flag: exit status:"),
        "{why}"
    );
    assert!(!std::fs::read(log.path()).unwrap().is_empty());
}

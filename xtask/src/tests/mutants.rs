use super::*;
use std::collections::HashSet;
use std::path::Path;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Goal: the list stays current: each entry applies to the source as it is now, and changes it.
#[test]
fn every_mistake_applies() {
    let mut complaints = Vec::new();
    for mutant in MUTANTS {
        let text = fs::read_to_string(root().join(mutant.file)).unwrap_or_default();
        match mutant.applied_to(&text) {
            Ok(changed) => assert_ne!(changed, text, "{}", mutant.name),
            Err(sentence) => complaints.push(sentence),
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Goal: names are unique, at least twenty mistakes are made, and each is for tests of a package that
/// exists.
#[test]
fn every_package_exists() {
    let workspace = metadata().unwrap();
    let packages: HashSet<&str> = workspace["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|package| package["name"].as_str())
        .collect();
    let names: HashSet<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
    assert!(MUTANTS.len() >= 20 && names.len() == MUTANTS.len());
    for mutant in MUTANTS {
        assert!(packages.contains(mutant.package), "{}", mutant.package);
        assert!(!mutant.why.is_empty() && !mutant.filter.is_empty());
    }
}

/// Goal: a mistake whose place is not unique is refused, with what to do.
#[test]
fn an_ambiguous_mistake_is_refused() {
    let mutant = &MUTANTS[0];
    let once = mutant.before;
    assert_eq!(mutant.applied_to(once).as_deref(), Ok(mutant.after));
    for text in [String::new(), format!("{once}{once}")] {
        let refusal = mutant.applied_to(&text);
        assert!(refusal.is_err_and(|sentence| sentence.contains("no longer applies")));
    }
}

/// Goal: names choose, and an unknown one gives the valid ones.
#[test]
fn names_choose() {
    assert_eq!(chosen(&[]).unwrap().len(), MUTANTS.len());
    let both = chosen(&[MUTANTS[3].name, MUTANTS[1].name]).unwrap();
    assert_eq!(
        (both[0].name, both[1].name),
        (MUTANTS[3].name, MUTANTS[1].name)
    );
    assert!(chosen(&["mistake"]).is_err_and(|sentence| sentence.contains(MUTANTS[0].name)));
}

/// Goal: of a run that failed, its code and its first failed test are known, and its log is kept.
#[test]
fn a_failed_run_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "printf '%s\\n' '---- wheel::turns stdout ----' 'it stands'; exit 100",
    ]);
    let ended = Ended::of(command, log.clone()).unwrap();
    assert_eq!(ended.code, Some(TEST_FAILED));
    assert_eq!(ended.first_failure(), Some("wheel::turns"));
    assert!(fs::read_to_string(log).unwrap().contains("it stands"));
}

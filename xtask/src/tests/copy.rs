use super::*;

fn git(directory: &Path, words: &[&str]) {
    let status = Command::new("git")
        .args(words)
        .current_dir(directory)
        .status();
    assert!(status.unwrap().success(), "{words:?}");
}

/// Goal: the copy has tracked and new files, not ignored ones; removed files are removed, unchanged
/// ones are not written, and a mutation is reverted.
#[test]
fn the_copy_follows_the_tree() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    let target = directory.path().join("copy");
    fs::create_dir_all(source.join("deep")).unwrap();
    for (name, text) in [
        ("deep/a", "1"),
        ("b", "2"),
        ("ignored", "3"),
        (".gitignore", "ignored\n"),
    ] {
        fs::write(source.join(name), text).unwrap();
    }
    git(&source, &["init", "--quiet"]);
    git(&source, &["add", "deep/a"]);
    let copy = Copy::refresh(&source, target.clone()).unwrap();
    assert_eq!(copy.read("deep/a").unwrap(), "1");
    assert_eq!(copy.read("b").unwrap(), "2");
    assert!(copy.read("ignored").is_err());

    let during = copy.with("b", "mistake", || copy.read("b"));
    assert_eq!(during.unwrap(), "mistake");
    let failed: Result<(), String> = copy.with("b", "mistake", || Err("no".to_owned()));
    assert!(failed.is_err());
    assert_eq!(copy.read("b").unwrap(), "2");

    let written = |name: &str| fs::metadata(target.join(name)).unwrap().modified().unwrap();
    let before = written("deep/a");
    fs::remove_file(source.join("b")).unwrap();
    let copy = Copy::refresh(&source, target.clone()).unwrap();
    assert!(copy.read("b").is_err());
    assert_eq!(written("deep/a"), before);
}

/// Goal: a foreign directory is not touched.
#[test]
fn a_foreign_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("letter"), "dear").unwrap();
    let refusal = Copy::refresh(Path::new("."), directory.path().to_owned());
    assert!(refusal.is_err_and(|sentence| sentence.contains("not made by this command")));
    assert!(directory.path().join("letter").exists());
}

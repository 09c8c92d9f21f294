use super::*;

/// Goal: only what carries our mark and has lost its process is removed.
#[test]
fn strangers_directories_stay() {
    let parent = tempfile::tempdir().unwrap();
    let gone = i32::MAX;
    let make = |name: String, is_marked: bool| {
        let path = parent.path().join(name);
        fs::create_dir(&path).unwrap();
        if is_marked {
            OutputDirectory::claim(&path).unwrap();
        }
        fs::write(path.join("file"), "kept?").unwrap();
        path
    };
    let alive = std::process::id();
    let kept = [
        make(format!("{NAME}{gone}-a"), false),
        make(format!("{NAME}{alive}-b"), true),
        make("somebodys".to_owned(), true),
        make(format!("{NAME}{gone}"), true),
    ];
    let abandoned = make(format!("{NAME}{gone}-c"), true);
    remove_abandoned(parent.path());
    assert!(kept.iter().all(|path| path.join("file").exists()));
    assert!(!abandoned.exists());
}

/// Goal: a directory that the user names is ours or untouched; data go with the comparison.
#[test]
fn a_named_directory_is_used() {
    let home = tempfile::tempdir().unwrap();
    let out = OutputDirectory::claim(&home.path().join("out")).unwrap();
    let target = Target::Entity { extra: Vec::new() };
    let named = home.path().join("named");
    let mut place = DataPlace::choose(Some(&named), &out, &target, 3).unwrap();
    assert!(place.path().starts_with(fs::canonicalize(&named).unwrap()));
    assert_eq!(place.note, None);
    fs::write(place.path().join("x"), "x").unwrap();
    place.tidy();
    assert!(!place.path().exists());
    fs::remove_dir_all(&named).unwrap();
    fs::create_dir(&named).unwrap();
    fs::write(named.join("theirs"), "kept").unwrap();
    assert!(DataPlace::choose(Some(&named), &out, &target, 3).is_err());
    assert!(named.join("theirs").exists());
    let mut place = DataPlace::choose(None, &out, &target, 1).unwrap();
    let path = place.path();
    assert!(path.exists() && place.note.is_some());
    place.tidy();
    assert!(!path.exists());
}

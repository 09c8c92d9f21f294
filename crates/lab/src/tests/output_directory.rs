use super::*;

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Goal: a missing or empty directory becomes ours and stays ours; folders of an earlier run are emptied.
#[test]
fn an_empty_directory_becomes_ours() {
    let home = tempfile::tempdir().unwrap();
    let missing = home.path().join("deep/report");
    for path in [home.path().join("empty"), missing] {
        if path.ends_with("empty") {
            fs::create_dir(&path).unwrap();
        }
        let first = OutputDirectory::claim(&path).unwrap();
        let raw = first.fresh_folder("raw").unwrap();
        fs::write(raw.join("runs.ndjson"), "of the first run").unwrap();
        let second = OutputDirectory::claim(&path).unwrap();
        assert_eq!(first, second);
        assert!(names_in(&second.fresh_folder("raw").unwrap()).is_empty());
    }
}

/// Goal: a directory with anything in it that is not marked is refused by name, and nothing in it changes, not
/// even with a file of the mark's name that we did not write.
#[test]
fn what_is_somebodys_stays_untouched() {
    let home = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("data", None),
        ("notes.txt", Some("mine")),
        (MARK, Some("mine")),
    ] {
        let path = home
            .path()
            .join(name.trim_start_matches('.').replace('.', "-"));
        fs::create_dir(&path).unwrap();
        match content {
            None => fs::create_dir(path.join(name)).unwrap(),
            Some(text) => fs::write(path.join(name), text).unwrap(),
        }
        let refused = OutputDirectory::claim(&path).unwrap_err();
        let sentence = refused.to_string();
        assert!(
            matches!(refused, LabError::ForeignOutput { .. }),
            "{refused:?}"
        );
        assert!(
            sentence.contains(name) && sentence.contains("--out"),
            "{sentence}"
        );
        assert_eq!(names_in(&path), [name]);
    }
}

/// Goal: a folder that is a link leads nowhere: the link goes, what it points at stays.
#[test]
fn a_link_is_not_followed() {
    let home = tempfile::tempdir().unwrap();
    let precious = home.path().join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("thesis"), "mine").unwrap();
    let directory = OutputDirectory::claim(&home.path().join("report")).unwrap();
    std::os::unix::fs::symlink(&precious, directory.path().join("logs")).unwrap();
    directory.fresh_folder("logs").unwrap();
    assert_eq!(names_in(&precious), ["thesis"]);
}

//! Every way a data directory can be wrong is one sentence that names it.

use std::fs;
use std::path::{Path, PathBuf};

use millpond_entity::store::rocksdb::RocksDbStore;
use millpond_entity::{DataDirError, EntityConfig, open};

fn open_at(path: &Path) -> Result<RocksDbStore, DataDirError> {
    open(&EntityConfig::new(path.to_owned()))
}

fn refusal(path: &Path) -> DataDirError {
    let error = open_at(path)
        .err()
        .expect("this directory cannot be opened");
    let sentence = error.to_string();
    assert!(
        !sentence.contains('\n') && sentence.contains(path.to_str().unwrap()),
        "{sentence}"
    );
    error
}

/// Goal: a second server on the same directory is refused by the engine's lock.
#[test]
fn directory_in_use_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("data");
    let store = open_at(&path).unwrap();
    let error = refusal(&path);
    assert!(matches!(error, DataDirError::Locked { .. }), "{error}");
    drop(store);
    open_at(&path).unwrap();
}

/// Goal: a path without a parent, a file, and foreign files are refused untouched.
#[test]
fn wrong_paths_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    let missing = refusal(&parent.path().join("missing/data"));
    assert!(
        matches!(missing, DataDirError::MissingParent { .. }),
        "{missing}"
    );

    let file = parent.path().join("file");
    fs::write(&file, "text").unwrap();
    assert!(matches!(refusal(&file), DataDirError::NotADirectory { .. }));

    let foreign = parent.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("letter"), "text").unwrap();
    assert!(matches!(refusal(&foreign), DataDirError::Foreign { .. }));
    assert_eq!(
        fs::read_dir(&foreign).unwrap().count(),
        1,
        "nothing was added"
    );
}

/// Goal: data of a later format or a later engine is recognised as such, not as damage.
#[test]
fn newer_data_is_refused_by_name() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("data");
    drop(open_at(&path).unwrap());
    let marker = path.join("MILLPOND");
    let ours = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, "millpond entity data, format 7\n").unwrap();
    let error = refusal(&path);
    assert!(matches!(error, DataDirError::NewerFormat { .. }), "{error}");
    assert!(error.to_string().contains("format 7"), "{error}");

    fs::write(&marker, ours).unwrap();
    let options = files(&path, "OPTIONS-").pop().unwrap();
    let text = fs::read_to_string(&options).unwrap();
    let line = text
        .lines()
        .find(|line| line.trim().starts_with("rocksdb_version="))
        .unwrap();
    fs::write(&options, text.replace(line, "  rocksdb_version=99.1.0")).unwrap();
    garble_manifest(&path);
    let error = refusal(&path);
    assert!(matches!(error, DataDirError::NewerFormat { .. }), "{error}");
    assert!(error.to_string().contains("RocksDB 99.1.0"), "{error}");
}

/// Goal: real damage is reported as such.
#[test]
fn damage_is_reported() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("data");
    drop(open_at(&path).unwrap());
    garble_manifest(&path);
    let error = refusal(&path);
    assert!(matches!(error, DataDirError::Loss { .. }), "{error}");
}

fn garble_manifest(path: &Path) {
    for manifest in files(path, "MANIFEST-") {
        let mut bytes = fs::read(&manifest).unwrap();
        bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
        fs::write(&manifest, bytes).unwrap();
    }
}

fn files(path: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|file| {
            file.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(prefix)
        })
        .collect();
    files.sort();
    files
}

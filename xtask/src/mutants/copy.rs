//! The copy of the working tree that mistakes are made in: the user's own files are only read.
//!
//! It stays from run to run, and only files that changed are written, so that cargo compiles what
//! changed. Absent on purpose: the copy's time stamps. Cargo takes a file for changed that is newer
//! than what was compiled from it, and a mistake that is taken back has to be compiled anew.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// In a directory that we made, and may overwrite and delete in.
const MARK: &str = ".made-by-xtask-mutants";

/// A copy of the working tree.
pub(super) struct Copy {
    root: PathBuf,
}

impl Copy {
    /// Makes the copy of `source` in `root`, or brings it up to date.
    pub(super) fn refresh(source: &Path, root: PathBuf) -> Result<Self, String> {
        let mark = root.join(MARK);
        if root.exists() && !mark.exists() {
            return Err(format!(
                "{} was not made by this command: delete it, or move it away",
                root.display()
            ));
        }
        let at = |error| cannot("write", &mark, &error);
        fs::create_dir_all(&root).map_err(at)?;
        fs::write(&mark, "Overwritten by `cargo xtask mutants`.\n").map_err(at)?;
        let copy = Self { root };
        let mut kept = HashSet::from([PathBuf::from(MARK)]);
        for file in files_of(source)? {
            if copy.take(source, &file)? {
                kept.insert(file);
            }
        }
        copy.delete_others(&copy.root, &kept)?;
        Ok(copy)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The text of a file of the copy.
    pub(super) fn read(&self, file: &str) -> Result<String, String> {
        let path = self.root.join(file);
        fs::read_to_string(&path).map_err(|error| cannot("read", &path, &error))
    }

    /// Runs `work` while `file` has another text, and gives it back what it had.
    pub(super) fn with<R>(
        &self,
        file: &str,
        text: &str,
        work: impl FnOnce() -> Result<R, String>,
    ) -> Result<R, String> {
        let path = self.root.join(file);
        let original = fs::read(&path).map_err(|error| cannot("read", &path, &error))?;
        let write =
            |bytes: &[u8]| fs::write(&path, bytes).map_err(|error| cannot("write", &path, &error));
        write(text.as_bytes())?;
        let result = work();
        write(&original)?;
        result
    }

    /// Copies a file that differs; false if it is not there: deleted, and not yet out of the index.
    fn take(&self, source: &Path, file: &Path) -> Result<bool, String> {
        let (from, to) = (source.join(file), self.root.join(file));
        let bytes = match fs::read(&from) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(cannot("read", &from, &error)),
        };
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            return Ok(true);
        }
        let at = |error| cannot("write", &to, &error);
        if let Some(directory) = to.parent() {
            fs::create_dir_all(directory).map_err(at)?;
        }
        fs::write(&to, bytes).map_err(at)?;
        let mode = fs::metadata(&from).map_err(at)?.permissions();
        fs::set_permissions(&to, mode).map_err(at)?;
        Ok(true)
    }

    /// Deletes files that are not `kept`: cargo would take what is left of a test for a test.
    fn delete_others(&self, directory: &Path, kept: &HashSet<PathBuf>) -> Result<(), String> {
        let at = |error| cannot("read", directory, &error);
        for entry in fs::read_dir(directory).map_err(at)? {
            let entry = entry.map_err(at)?;
            let path = entry.path();
            if entry.file_type().map_err(at)?.is_dir() {
                self.delete_others(&path, kept)?;
            } else if !path
                .strip_prefix(&self.root)
                .is_ok_and(|file| kept.contains(file))
            {
                fs::remove_file(&path).map_err(|error| cannot("delete", &path, &error))?;
            }
        }
        Ok(())
    }
}

/// All files of a working tree but those that git ignores, relative to it.
fn files_of(source: &Path) -> Result<Vec<PathBuf>, String> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(source)
        .output()
        .map_err(|error| format!("git cannot be run: {error}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git ls-files failed: {}", words.trim()));
    }
    let names = output.stdout.split(|&byte| byte == 0);
    let names = names.filter(|name| !name.is_empty());
    Ok(names
        .map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name)))
        .collect())
}

fn cannot(verb: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {verb} {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(directory: &Path, words: &[&str]) {
        let status = Command::new("git")
            .args(words)
            .current_dir(directory)
            .status();
        assert!(status.unwrap().success(), "{words:?}");
    }

    /// Goal: the copy has what is tracked and what is new, not what is ignored; what is gone goes,
    /// what did not change is not written, and a mistake is taken back.
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

    /// Goal: a directory of somebody else's is not touched.
    #[test]
    fn a_foreign_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("letter"), "dear").unwrap();
        let refusal = Copy::refresh(Path::new("."), directory.path().to_owned());
        assert!(refusal.is_err_and(|sentence| sentence.contains("not made by this command")));
        assert!(directory.path().join("letter").exists());
    }
}

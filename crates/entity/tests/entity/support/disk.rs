//! A disk for one directory: it fails where a test plants it (`preload/disk`), and forgets what it was
//! not made to keep.
//!
//! A file that was created or renamed is there; how much of it is there is what its last sync says.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One call, or all from one on, that fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// `write`, `sync`, `rename`, `link` or `create`.
    pub(crate) kind: &'static str,
    /// Only on paths that contain this.
    pub(crate) only: &'static str,
    /// Of the calls of the kind, from 1.
    pub(crate) number: u64,
    /// All later ones fail too.
    pub(crate) is_lasting: bool,
    /// No room, rather than no response from the disk.
    pub(crate) is_full: bool,
}

/// Content of a directory, and how much of each file is durable.
pub(crate) struct Disk {
    directory: PathBuf,
    journal: PathBuf,
    synced_bytes: HashMap<PathBuf, u64>,
}

impl Disk {
    /// For a directory in `home`, which may not exist yet. Its content is durable.
    pub(crate) fn new(home: &Path, name: &str) -> Self {
        let home = home.canonicalize().unwrap();
        let mut disk = Self {
            directory: home.join(name),
            journal: home.join(format!("{name}.journal")),
            synced_bytes: HashMap::new(),
        };
        disk.settle();
        disk
    }

    /// All that is there now lasts, whatever was synced.
    pub(crate) fn settle(&mut self) {
        let _ = fs::remove_file(&self.journal);
        self.synced_bytes = files(&self.directory).into_iter().collect();
    }

    /// Lets a process that is to be started run on this disk.
    pub(crate) fn put_under(&self, command: &mut Command, fault: Option<Fault>) {
        command
            .env("LD_PRELOAD", object())
            .env("DISK_DIRECTORY", &self.directory)
            .env("DISK_JOURNAL", &self.journal)
            .env_remove("DISK_FAIL");
        if let Some(fault) = fault {
            let lasting = if fault.is_lasting { "+" } else { "" };
            let errno = if fault.is_full { "ENOSPC" } else { "EIO" };
            let plan = format!("{}:{}{lasting}:{errno}", fault.kind, fault.number);
            command.env("DISK_FAIL", plan).env("DISK_ONLY", fault.only);
        }
    }

    /// Takes in what happened since the last time; returns the calls that failed.
    pub(crate) fn read_journal(&mut self) -> Vec<String> {
        let text = fs::read_to_string(&self.journal).expect("the object was preloaded");
        let mut failed = Vec::new();
        for line in text.lines() {
            let (event, rest) = line.split_once(' ').unwrap();
            match event {
                "failed" => failed.push(rest.to_owned()),
                "created" => drop(self.synced_bytes.insert(rest.into(), 0)),
                "synced" => {
                    let (bytes, path) = rest.split_once(' ').unwrap();
                    self.synced_bytes
                        .insert(path.into(), bytes.parse().unwrap());
                }
                "renamed" | "linked" => {
                    let (from, to) = rest.split_once('\t').unwrap();
                    self.copy_names(Path::new(from), Path::new(to), event == "renamed");
                }
                other => panic!("the journal says {other}"),
            }
        }
        File::create(&self.journal).unwrap();
        failed
    }

    /// Of a file, or of a directory and all that is in it.
    fn copy_names(&mut self, from: &Path, to: &Path, is_moved: bool) {
        let known = self.synced_bytes.iter();
        let moved: Vec<(PathBuf, PathBuf, u64)> = known
            .filter_map(|(path, &bytes)| {
                let rest = path.strip_prefix(from).ok()?;
                let to = match rest.as_os_str().is_empty() {
                    true => to.to_owned(),
                    false => to.join(rest),
                };
                Some((path.clone(), to, bytes))
            })
            .collect();
        for (from, to, bytes) in moved {
            if is_moved {
                self.synced_bytes.remove(&from);
            }
            self.synced_bytes.insert(to, bytes);
        }
    }

    /// Takes away what no sync covers: of each file a part of it, or all. A log may have garbage or
    /// zeros there instead, which a file system leaves that kept the length and not the bytes. Returns
    /// how many bytes were in danger.
    pub(crate) fn lose_power(&mut self, random: &mut fastrand::Rng) -> u64 {
        let mut unsynced_bytes = 0;
        for (path, length) in files(&self.directory) {
            let kept = self.synced_bytes.get(&path).copied().unwrap_or(0);
            if kept >= length {
                continue;
            }
            unsynced_bytes += length - kept;
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            let from = random.u64(kept..=length);
            let is_log = path.extension().is_some_and(|kind| kind == "log");
            match random.u8(..3) {
                0 if is_log => {
                    let garbage: Vec<u8> = (from..length).map(|_| random.u8(..)).collect();
                    file.write_all_at(&garbage, from).unwrap();
                }
                1 if is_log => {
                    let zeros = vec![0; usize::try_from(length - from).unwrap()];
                    file.write_all_at(&zeros, from).unwrap();
                }
                _ => file.set_len(from).unwrap(),
            }
        }
        // The rest is the content of the disk.
        self.settle();
        unsynced_bytes
    }
}

/// The shared object. Cargo puts it beside the test program.
fn object() -> PathBuf {
    let test_program = std::env::current_exe().unwrap();
    let object = test_program.with_file_name("libmillpond_disk.so");
    assert!(object.is_file(), "cargo built no {}", object.display());
    object
}

/// All files below a directory, and their lengths.
fn files(directory: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.map(Result::unwrap) {
            let metadata = entry.metadata().unwrap();
            match metadata.is_dir() {
                true => left.push(entry.path()),
                false => found.push((entry.path(), metadata.len())),
            }
        }
    }
    found
}

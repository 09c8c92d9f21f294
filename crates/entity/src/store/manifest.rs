//! What RocksDB's CURRENT and MANIFEST say, read without the engine: which write-ahead logs are still needed.
//!
//! A MANIFEST is a log (`log_file`) of edits; an edit is a sequence of tags with their values (RocksDB,
//! `db/version_edit.cc`). The tags read here stand in front of those of files, at which reading an edit ends.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use super::log_file::{self, Scan};

const COMPARATOR: u64 = 1;
const LOG_NUMBER: u64 = 2;
const NEXT_FILE_NUMBER: u64 = 3;
const LAST_SEQUENCE: u64 = 4;
const PREVIOUS_LOG_NUMBER: u64 = 9;
const LOG_NUMBER_TO_KEEP: u64 = 10;
const COLUMN_FAMILY_MAX: u64 = 203;
/// Tags with this bit have a length in front of their value, so that they can be skipped.
const SKIPPABLE: u64 = 1 << 13;

/// What is known of a MANIFEST.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Manifest {
    /// Its file's name.
    pub name: String,
    /// Logs with this number and higher ones hold what no table holds.
    pub log_number: u64,
    /// The newest change that some table may hold.
    pub last_sequence: u64,
    /// What its records are like.
    pub scan: Scan,
    /// Its length.
    pub size_bytes: u64,
}

/// The name that CURRENT has, without looking at that file. `None`: it is missing or says no name.
///
/// # Errors
/// If it cannot be read.
pub(super) fn current(path: &Path) -> io::Result<Option<String>> {
    let text = match fs::read_to_string(path.join("CURRENT")) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // The engine writes the line end last.
    let name = text.strip_suffix('\n');
    Ok(name
        .filter(|name| number(name).is_some())
        .map(str::to_owned))
}

/// The number in the name of a MANIFEST.
pub(super) fn number(name: &str) -> Option<u64> {
    name.strip_prefix("MANIFEST-")?.parse().ok()
}

/// Reads the MANIFEST of that name; `None`: there is none.
///
/// # Errors
/// If it cannot be read.
pub(super) fn read(path: &Path, name: &str) -> io::Result<Option<Manifest>> {
    let file = match File::open(path.join(name)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut manifest = Manifest {
        name: name.to_owned(),
        size_bytes: file.metadata()?.len(),
        ..Manifest::default()
    };
    let (mut log_number, mut last_sequence) = (0, 0);
    manifest.scan = log_file::scan(BufReader::new(file), &mut |edit, is_behind_damage| {
        if !is_behind_damage {
            read_edit(edit, &mut log_number, &mut last_sequence);
        }
    })?;
    (manifest.log_number, manifest.last_sequence) = (log_number, last_sequence);
    Ok(Some(manifest))
}

/// The MANIFEST with the highest number.
///
/// # Errors
/// If the directory cannot be read.
pub(super) fn newest(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut found: Option<(u64, PathBuf)> = None;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let of_name = entry.file_name().to_str().and_then(number);
        if let Some(of_name) = of_name
            && found.as_ref().is_none_or(|(most, _)| *most < of_name)
        {
            found = Some((of_name, entry.path()));
        }
    }
    Ok(found.map(|(_, path)| path))
}

/// Takes over what one edit says of logs and sequence numbers.
fn read_edit(mut edit: &[u8], log_number: &mut u64, last_sequence: &mut u64) {
    while let Some(tag) = varint(&mut edit) {
        let is_read = match tag {
            LOG_NUMBER | LOG_NUMBER_TO_KEEP | LAST_SEQUENCE => varint(&mut edit).map(|value| {
                let known = match tag {
                    LAST_SEQUENCE => &mut *last_sequence,
                    _ => &mut *log_number,
                };
                *known = value.max(*known);
            }),
            NEXT_FILE_NUMBER | PREVIOUS_LOG_NUMBER | COLUMN_FAMILY_MAX => {
                varint(&mut edit).map(drop)
            }
            COMPARATOR => skip(&mut edit),
            tag if tag & SKIPPABLE != 0 => skip(&mut edit),
            _ => None,
        };
        if is_read.is_none() {
            return;
        }
    }
}

/// A length and so many bytes.
fn skip(bytes: &mut &[u8]) -> Option<()> {
    let len = usize::try_from(varint(bytes)?).ok()?;
    *bytes = bytes.get(len..)?;
    Some(())
}

/// Seven bits a byte, the lowest first.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the engine's own MANIFEST is read: which log is needed, and how far its tables go.
    #[test]
    fn the_engines_manifest_is_read() {
        let data = tempfile::tempdir().unwrap();
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        let db = rocksdb::DB::open(&options, data.path()).unwrap();
        let read_current = || {
            let name = current(data.path()).unwrap().unwrap();
            read(data.path(), &name).unwrap().unwrap()
        };
        let before = read_current();
        assert_eq!(before.scan, Scan::default());
        for key in 0..200_u8 {
            db.put([key], [key; 100]).unwrap();
        }
        db.flush().unwrap();
        let after = read_current();
        assert!(after.log_number > before.log_number, "{after:?}");
        assert_eq!(after.last_sequence, 200);
        let logs: Vec<u64> = fs::read_dir(data.path())
            .unwrap()
            .filter_map(|entry| {
                let name = entry.unwrap().file_name();
                name.to_str()?.strip_suffix(".log")?.parse().ok()
            })
            .collect();
        assert!(logs.contains(&after.log_number), "{logs:?} {after:?}");
        assert_eq!(
            newest(data.path()).unwrap(),
            Some(data.path().join(&after.name))
        );
        assert_eq!(read(data.path(), "MANIFEST-999999").unwrap(), None);
    }

    proptest::proptest! {
        /// Goal: no edit makes reading fail.
        #[test]
        fn any_edit_is_survived(edit in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100)) {
            read_edit(&edit, &mut 0, &mut 0);
        }
    }
}

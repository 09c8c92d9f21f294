//! RocksDB's CURRENT and MANIFEST, read without the engine: which write-ahead logs are still needed.
//!
//! A MANIFEST is a log (`log_file`) of edits; an edit is a sequence of tags with their values (RocksDB,
//! `db/version_edit.cc`). The tags read here come before those of files, at which reading an edit ends.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::{fs, io};

const COMPARATOR: u64 = 1;
const LOG_NUMBER: u64 = 2;
const NEXT_FILE_NUMBER: u64 = 3;
const LAST_SEQUENCE: u64 = 4;
const PREVIOUS_LOG_NUMBER: u64 = 9;
const LOG_NUMBER_TO_KEEP: u64 = 10;
const COLUMN_FAMILY_MAX: u64 = 203;
/// Tags with this bit have a length in front of their value, so that they can be skipped.
const SKIPPABLE: u64 = 1 << 13;

/// Content of a MANIFEST.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Manifest {
    /// Its file's name.
    pub name: String,
    /// Logs with this number and higher ones hold what no table holds.
    pub log_number: u64,
    /// The newest change that some table may hold.
    pub last_sequence: u64,
    /// State of its records.
    pub scan: FileScan,
    /// Its length.
    pub size_bytes: u64,
}

/// The name in CURRENT, without checking that file. `None`: it is missing or contains no name.
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
    manifest.scan = scan(BufReader::new(file), &mut |edit, is_behind_damage| {
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

/// Takes over an edit's logs and sequence numbers.
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

// Records in RocksDB's log format, which its write-ahead logs and its MANIFEST use.
//
// A file is a sequence of blocks of 32 KiB. A record is in one piece (FULL) or in several (FIRST, MIDDLE, LAST), none
// of which crosses a block; each piece has a header of checksum, length and type (RocksDB, `db/log_format.h`). It is
// read here to check a directory before an engine changes it: the engine stops at the first piece that does not match
// its checksum, and does not report whether whole records follow.

const BLOCK_BYTES: usize = 32 << 10;
const HEADER_BYTES: usize = 7;
/// In files that are overwritten, pieces have the number of the log after the type.
const RECYCLABLE_HEADER_BYTES: usize = 11;

/// Content of a file.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct FileScan {
    /// Where the first piece begins that cannot be read, or the record that is not complete at the end.
    pub damaged_at: Option<u64>,
    /// Whole records behind that place.
    pub records_behind: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Piece {
    Full,
    First,
    Middle,
    Last,
    /// None of a record's: a mark of later versions.
    Mark,
}

/// Reads `file` to its end. `visit` gets every whole record, and whether it lies behind damage.
///
/// # Errors
/// If the file cannot be read. Damage is no error.
pub(super) fn scan(
    mut file: impl Read,
    visit: &mut dyn FnMut(&[u8], bool),
) -> io::Result<FileScan> {
    let mut records = Records::default();
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    let mut offset = 0;
    loop {
        block.clear();
        let mut of_block = file.by_ref().take(BLOCK_BYTES as u64);
        let count = of_block.read_to_end(&mut block)?;
        if count == 0 {
            break;
        }
        records.read_block(&block, offset, visit);
        offset += count as u64;
    }
    if records.begun_at.is_some() {
        records.damaged(offset);
    }
    Ok(records.scan)
}

/// The records read so far.
#[derive(Debug, Default)]
struct Records {
    scan: FileScan,
    /// The record whose last piece has not come yet.
    record: Vec<u8>,
    begun_at: Option<u64>,
}

impl Records {
    /// The pieces of one block, `offset` bytes into the file.
    fn read_block(&mut self, block: &[u8], offset: u64, visit: &mut dyn FnMut(&[u8], bool)) {
        let mut at = 0;
        // A rest shorter than a header at the end of a block is padding.
        while block.len() - at >= HEADER_BYTES {
            let place = offset + at as u64;
            let Some((piece, data, next)) = piece_at(block, at) else {
                self.damaged(place);
                // The length may be what is damaged: nothing behind it in this block can be found for sure.
                return;
            };
            match data {
                Some(data) => self.take(piece, data, place, visit),
                None => self.damaged(place),
            }
            at = next;
        }
        if at < block.len() && block.len() < BLOCK_BYTES {
            self.damaged(offset + at as u64);
        }
    }

    fn take(&mut self, piece: Piece, data: &[u8], place: u64, visit: &mut dyn FnMut(&[u8], bool)) {
        match piece {
            Piece::Mark => {}
            Piece::Full | Piece::First => {
                if self.begun_at.is_some() {
                    self.damaged(place);
                }
                self.record.clear();
                self.record.extend_from_slice(data);
                self.begun_at = Some(place);
            }
            Piece::Middle | Piece::Last => {
                // Without a first piece: it was lost, and is counted as damage already, or never written.
                if self.begun_at.is_none() {
                    self.damaged(place);
                    return;
                }
                self.record.extend_from_slice(data);
            }
        }
        if matches!(piece, Piece::Full | Piece::Last) {
            let is_behind = self.scan.damaged_at.is_some();
            self.scan.records_behind += u64::from(is_behind);
            visit(&self.record, is_behind);
            self.begun_at = None;
        }
    }

    /// The first place counts; a record that was begun ends there.
    fn damaged(&mut self, place: u64) {
        let place = self.begun_at.take().unwrap_or(place);
        self.scan.damaged_at.get_or_insert(place);
    }
}

/// The piece that begins at `at`: its kind, its bytes if they match their checksum, and where the next one begins.
/// `None`: no piece can begin so.
fn piece_at(block: &[u8], at: usize) -> Option<(Piece, Option<&[u8]>, usize)> {
    let header = block.get(at..at + HEADER_BYTES)?;
    let checksum = u32::from_le_bytes(header[..4].try_into().ok()?);
    let len = usize::from(u16::from_le_bytes(header[4..6].try_into().ok()?));
    let (piece, header_bytes) = match header[6] {
        1 => (Piece::Full, HEADER_BYTES),
        2 => (Piece::First, HEADER_BYTES),
        3 => (Piece::Middle, HEADER_BYTES),
        4 => (Piece::Last, HEADER_BYTES),
        5 => (Piece::Full, RECYCLABLE_HEADER_BYTES),
        6 => (Piece::First, RECYCLABLE_HEADER_BYTES),
        7 => (Piece::Middle, RECYCLABLE_HEADER_BYTES),
        8 => (Piece::Last, RECYCLABLE_HEADER_BYTES),
        9 | 10 | 128.. => (Piece::Mark, HEADER_BYTES),
        11 => (Piece::Mark, RECYCLABLE_HEADER_BYTES),
        _ => return None,
    };
    let next = at + header_bytes + len;
    let data = block.get(at + header_bytes..next)?;
    // It covers the type and all behind it.
    let is_whole = masked(crc32c::crc32c(block.get(at + 6..next)?)) == checksum;
    Some((piece, is_whole.then_some(data), next))
}

/// As RocksDB stores a checksum (`util/crc32c.h`): a checksum of data that holds checksums would be weak.
fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
#[path = "tests/manifest.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/log_file.rs"]
pub(super) mod log_file_tests;

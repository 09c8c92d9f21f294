//! Backups: the files of one with their sizes and checksums, in a file of ours: `MILLPOND-BACKUP`.
//!
//! The engine checks blocks when it reads them; a backup is read when it is needed, which is too late to find out.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::Path;

use crate::data_dir::{self, DataDirError};

/// The file that holds them.
pub(crate) const FILE: &str = "MILLPOND-BACKUP";

/// The file with the time up to which versions were given out, in microseconds since 1970: a directory's own note of it
/// (`inventory`) is about its files and does not go with a copy of them.
const CLOCK_FILE: &str = "MILLPOND-CLOCK";

const FIRST_LINE: &str = "millpond entity backup, version 1";
const READ_BYTES: usize = 256 << 10;

/// Notes in the backup in `path` that no version in it is of a later time.
///
/// # Errors
/// If the system refuses.
pub(super) fn write_clock(path: &Path, clock_us: u64) -> io::Result<()> {
    let mut file = File::create(path.join(CLOCK_FILE))?;
    file.write_all(format!("{clock_us}\n").as_bytes())?;
    file.sync_all()
}

/// The time in the backup that `path` was restored from; 0: none, or it is in the directory's own note by now.
///
/// # Errors
/// If the system refuses, or it is no time.
pub(super) fn read_clock(path: &Path) -> io::Result<u64> {
    let text = match fs::read_to_string(path.join(CLOCK_FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let clock_us = text.strip_suffix('\n').and_then(|text| text.parse().ok());
    clock_us.ok_or_else(|| {
        let cause = format!("{CLOCK_FILE} is not what was written: restore the backup again");
        io::Error::new(io::ErrorKind::InvalidData, cause)
    })
}

/// The directory's own note has it from now on.
///
/// # Errors
/// If the system refuses.
pub(super) fn remove_clock(path: &Path) -> io::Result<()> {
    match fs::remove_file(path.join(CLOCK_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Lists the files of the backup in `path`. Reads all of them once.
///
/// # Errors
/// If the system refuses.
pub(crate) fn write(path: &Path) -> io::Result<()> {
    let mut text = format!("{FIRST_LINE}\n");
    for name in names(path)? {
        let (bytes, checksum) = sum(&mut File::open(path.join(&name))?, &mut io::sink())?;
        // Writing into a string does not fail.
        let _ = writeln!(text, "{checksum:08x} {bytes} {name}");
    }
    let own = crc32c::crc32c(text.as_bytes());
    let _ = writeln!(text, "{own:08x} end");
    let mut file = File::create(path.join(FILE))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    File::open(path)?.sync_all()
}

/// The engine's files in `path`, in order.
fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_file() && name != FILE && name != data_dir::MARKER {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Size and checksum of a file.
type Sum = (u64, u32);

/// The files of a complete backup; without a checksum only a file's name is known.
#[derive(Debug)]
pub(crate) struct Listed(Vec<(String, Option<Sum>)>);

impl Listed {
    /// Reads the list in `path`; `None`: a backup of a build that made none.
    ///
    /// # Errors
    /// [`DataDirError::DamagedBackup`], if it is not what was written.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, DataDirError> {
        let text = match fs::read(path.join(FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(data_dir::failed(path, "read", error)),
        };
        let listed = String::from_utf8(text).ok().and_then(|text| parse(&text));
        match listed {
            Some(listed) => Ok(Some(listed)),
            None => Err(damaged(path, format!("{FILE} is not what was written"))),
        }
    }

    /// The files of a backup in `path` that has no list: of a build that made none.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(crate) fn without_checksums(path: &Path) -> Result<Self, DataDirError> {
        let names = names(path).map_err(|error| data_dir::failed(path, "read", error))?;
        Ok(Self(names.into_iter().map(|name| (name, None)).collect()))
    }

    /// Reads every file of the backup in `path` and compares it with its checksum; into `copies` each is copied on
    /// the way, and synced.
    ///
    /// # Errors
    /// [`DataDirError::DamagedBackup`] at the first that is missing or different.
    pub(crate) fn verify(&self, path: &Path, copies: Option<&Path>) -> Result<(), DataDirError> {
        for (name, expected) in &self.0 {
            let mut file = match File::open(path.join(name)) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(damaged(path, format!("{name} is missing")));
                }
                Err(error) => return Err(data_dir::failed(path, "read", error)),
            };
            let found = match copies {
                None => sum(&mut file, &mut io::sink())
                    .map_err(|error| data_dir::failed(path, "read", error))?,
                Some(copies) => copy(&mut file, &copies.join(name))
                    .map_err(|error| data_dir::failed(copies, "restore into", error))?,
            };
            if let Some((bytes, _)) = expected.filter(|expected| *expected != found) {
                let found_bytes = found.0;
                let cause = match found_bytes == bytes {
                    true => format!("{name} does not match its checksum"),
                    false => format!("{name} has {found_bytes} bytes instead of {bytes}"),
                };
                return Err(damaged(path, cause));
            }
        }
        if let Some(copies) = copies {
            let synced = File::open(copies).and_then(|directory| directory.sync_all());
            synced.map_err(|error| data_dir::failed(copies, "restore into", error))?;
        }
        Ok(())
    }
}

fn damaged(path: &Path, cause: String) -> DataDirError {
    DataDirError::DamagedBackup {
        path: path.to_owned(),
        cause,
    }
}

fn parse(text: &str) -> Option<Listed> {
    let body = text.strip_suffix(" end\n")?;
    let (covered, own) = body.split_at_checked(body.len().checked_sub(8)?)?;
    if crc32c::crc32c(covered.as_bytes()) != u32::from_str_radix(own, 16).ok()? {
        return None;
    }
    let lines = covered.strip_prefix(FIRST_LINE)?.strip_prefix('\n')?;
    let listed = lines.lines().map(|line| {
        let (checksum, rest) = line.split_once(' ')?;
        let (bytes, name) = rest.split_once(' ')?;
        let checksum = u32::from_str_radix(checksum, 16).ok()?;
        // It is copied to the named path.
        let is_plain = !name.is_empty() && !name.contains('/') && name != "..";
        is_plain.then_some((name.to_owned(), Some((bytes.parse().ok()?, checksum))))
    });
    Some(Listed(listed.collect::<Option<_>>()?))
}

fn copy(from: &mut File, to: &Path) -> io::Result<Sum> {
    let mut copy = File::create_new(to)?;
    let found = sum(from, &mut copy)?;
    copy.sync_all()?;
    Ok(found)
}

/// The sum of what is read, which goes to `to` as well.
fn sum(from: &mut impl Read, to: &mut impl io::Write) -> io::Result<Sum> {
    let mut buffer = vec![0; READ_BYTES];
    let (mut bytes, mut checksum) = (0, 0);
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok((bytes, checksum)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let piece = &buffer[..count];
        checksum = crc32c::crc32c_append(checksum, piece);
        to.write_all(piece)?;
        bytes += count as u64;
    }
}

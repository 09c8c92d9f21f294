//! The data directory before an engine opens it: made if need be, ours, and of a known format.
//!
//! `store/rocksdb` calls [`prepare`] first, so that every fault of a directory is one message that names it. A file of
//! ours, `MILLPOND`, marks the directory as ours, and records whether an engine has begun there: an engine may only
//! begin where none has. Parents are not created, so that a mistyped path is an error.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::store::Loss;

/// The format this build writes and reads. Raise it when stored bytes change their meaning.
///
/// 1: bare values. 2: records (`record`); values of 1 are rewritten at the first opening (`store/upgrade`), under a
/// second line that keeps older builds out and marks the upgrade as under way. 3: records, and long values in parts
/// (`parts`), of which there are none in a directory of format 2.
pub const FORMAT: u32 = 3;

const FORMAT_WITHOUT_PARTS: u32 = 2;

const BACKUP: &str = "backup";
const UPGRADING: &str = "upgrading from format 1";
const CREATING: &str = "creating";

/// The file that marks a directory and its format.
pub(crate) const MARKER: &str = "MILLPOND";
const MARKER_START: &str = "millpond entity data, format ";

/// Why a data directory cannot be used. Each is one sentence with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The directory is missing and so is its parent.
    #[error("the data directory {path} cannot be created: {parent} does not exist; create it or correct the path", path = path.display(), parent = parent.display())]
    MissingParent {
        /// The directory asked for.
        path: PathBuf,
        /// The missing path.
        parent: PathBuf,
    },
    /// Something else has that name.
    #[error("the data directory {path} is not a directory: give --data a directory", path = path.display())]
    NotADirectory {
        /// The path asked for.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("no permission to {operation} the data directory {path}: change its owner or mode, or give another --data", path = path.display())]
    PermissionDenied {
        /// The directory asked for.
        path: PathBuf,
        /// `create`, `read` or `write to`.
        operation: &'static str,
    },
    /// Another server runs on it.
    #[error("the data directory {path} is in use by another process: stop that one, or give another --data", path = path.display())]
    Locked {
        /// The directory asked for.
        path: PathBuf,
    },
    /// It holds files, but none marks them as ours.
    #[error("the directory {path} holds files that are not Millpond's: give --data an empty or a new directory", path = path.display())]
    Foreign {
        /// The directory asked for.
        path: PathBuf,
    },
    /// A later Millpond, or a later engine, wrote it.
    #[error("the data directory {path} was written by {found}, newer than this build's {supported}: open it with a build as new", path = path.display())]
    NewerFormat {
        /// The directory asked for.
        path: PathBuf,
        /// The version that wrote it.
        found: String,
        /// The newest that this build reads.
        supported: String,
    },
    /// A backup: serving it would change it.
    #[error("{path} is a backup: restore it into a new directory with `millpond entity restore`, and give that", path = path.display())]
    IsBackup {
        /// The directory asked for.
        path: PathBuf,
    },
    /// No backup, or half of one.
    #[error("{path} is not a complete backup: give a directory that `millpond entity backup` made", path = path.display())]
    NotABackup {
        /// The directory asked for.
        path: PathBuf,
    },
    /// Something is there already.
    #[error("{path} exists already and is not empty: give a new directory", path = path.display())]
    NotNew {
        /// The directory asked for.
        path: PathBuf,
    },
    /// Acknowledged writes are gone, or cannot be read.
    #[error(
        "the data directory {path} has lost data: {loss}; nothing was changed: restore a backup into a new directory \
         with `millpond entity restore`, or start once with --accept-loss, which puts every file aside and serves what \
         is left",
        path = path.display()
    )]
    Loss {
        /// The directory asked for.
        path: PathBuf,
        /// The missing or damaged files, and how many writes may be lost.
        loss: Loss,
    },
    /// A file of a backup is not what was written.
    #[error("the backup {path} is damaged: {cause}; nothing can be restored from it safely, use another one", path = path.display())]
    DamagedBackup {
        /// The backup.
        path: PathBuf,
        /// Which file, and how.
        cause: String,
    },
    /// It is to be read, and there is something to be done before.
    #[error("the data directory {path} cannot be served for reading alone: {reason}; start once without --read-only", path = path.display())]
    NotReadable {
        /// The directory asked for.
        path: PathBuf,
        /// The file in the way.
        reason: &'static str,
    },
    /// There is no room for what a start writes.
    #[error(
        "there is no room on the disk to open the data directory {path} for writes ({cause}): make room or enlarge the          disk, or serve what is there with --read-only, which takes none",
        path = path.display()
    )]
    NoRoom {
        /// The directory asked for.
        path: PathBuf,
        /// The system's or the engine's sentence.
        cause: String,
    },
    /// A mount for reading alone.
    #[error("the data directory {path} is on a read-only file system: mount it for writing, or serve it with --read-only", path = path.display())]
    ReadOnlyMount {
        /// The directory asked for.
        path: PathBuf,
    },
    /// Any other failure of the file system.
    #[error("cannot {operation} the data directory {path}: {source}", path = path.display())]
    Io {
        /// The directory asked for.
        path: PathBuf,
        /// The operation attempted.
        operation: &'static str,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The system refuses the threads that the engine needs.
    #[error("the data directory {path} cannot be opened: the system refuses the engine's threads ({source}); raise the limit of processes and threads (ulimit -u, systemd's TasksMax=)", path = path.display())]
    Threads {
        /// The directory asked for.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The engine refused it where the process may hardly open a file any more, whatever its message is.
    #[error("the engine cannot open the data directory {path}: too many open files ({cause}); raise the limit of open files (ulimit -n, systemd's LimitNOFILE=)", path = path.display())]
    Descriptors {
        /// The directory asked for.
        path: PathBuf,
        /// The engine's sentence.
        cause: String,
    },
    /// The engine refused it.
    #[error(
        "the engine cannot open the data directory {path}: {cause}; if that is damage, `millpond entity \
         restore` makes a new one from a backup",
        path = path.display()
    )]
    Engine {
        /// The directory asked for.
        path: PathBuf,
        /// The engine's sentence.
        cause: String,
    },
}

/// Contents of a directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Found {
    /// Nothing yet: an engine may begin there.
    New,
    /// This build's format.
    Current,
    /// Format 2: all of it is as this build writes it.
    Format2,
    /// Format 1: `store/upgrade` has to rewrite it.
    Format1,
    /// Partly format 1: an upgrade was interrupted.
    Upgrading,
}

/// Checks that `path` is a data directory of ours, and changes nothing.
///
/// # Errors
/// [`DataDirError`]; [`DataDirError::Foreign`] also where nothing is there.
pub fn check_ours(path: &Path) -> Result<Found, DataDirError> {
    match fs::read_to_string(path.join(MARKER)) {
        Ok(marker) => check_marker(path, &marker),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::InvalidData | ErrorKind::NotADirectory => {
                Err(DataDirError::Foreign {
                    path: path.to_owned(),
                })
            }
            _ => Err(failed(path, "read", error)),
        },
    }
}

/// Checks that `path` is a data directory or a backup that can be served as it is. Changes nothing.
///
/// # Errors
/// [`DataDirError`].
pub fn check_readable(path: &Path) -> Result<(), DataDirError> {
    fs::metadata(path).map_err(|error| failed(path, "read", error))?;
    let reason = match check_ours(path) {
        Ok(Found::Current | Found::Format2) | Err(DataDirError::IsBackup { .. }) => return Ok(()),
        Ok(Found::New) => "nothing was written to it yet",
        Ok(Found::Format1 | Found::Upgrading) => {
            "it is of an older format, which has to be rewritten first"
        }
        Err(error) => return Err(error),
    };
    Err(DataDirError::NotReadable {
        path: path.to_owned(),
        reason,
    })
}

/// Makes `path` a directory that an engine may open: creates it, or checks that we wrote it.
///
/// # Errors
/// [`DataDirError`]; nothing in an existing directory has been changed then.
pub fn prepare(path: &Path) -> Result<Found, DataDirError> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => {
            return Err(DataDirError::NotADirectory {
                path: path.to_owned(),
            });
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => create(path)?,
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return Err(missing_parent(path));
        }
        Err(error) => return Err(failed(path, "read", error)),
    }
    match fs::read_to_string(path.join(MARKER)) {
        Ok(marker) => check_marker(path, &marker),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if is_empty(path)? {
                write_marker(path, Some(CREATING))?;
                Ok(Found::New)
            } else {
                Err(DataDirError::Foreign {
                    path: path.to_owned(),
                })
            }
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(DataDirError::Foreign {
            path: path.to_owned(),
        }),
        Err(error) => Err(failed(path, "read", error)),
    }
}

/// Records that an upgrade begins: from here on older builds refuse the directory.
///
/// # Errors
/// [`DataDirError::Io`] and the like; the directory is of format 1 still.
pub fn mark_upgrading(path: &Path) -> Result<(), DataDirError> {
    write_marker(path, Some(UPGRADING))
}

/// Records that the upgrade is complete, or that an engine has begun there: if a later start finds nothing, data is
/// lost.
///
/// # Errors
/// [`DataDirError::Io`] and the like; the next opening goes on with the upgrade.
pub fn mark_current(path: &Path) -> Result<(), DataDirError> {
    write_marker(path, None)
}

/// Marks the directory as a complete backup.
///
/// # Errors
/// [`DataDirError::Io`] and the like; it is none then.
pub fn mark_backup(path: &Path) -> Result<(), DataDirError> {
    write_marker(path, Some(BACKUP))
}

/// Whether `path` is a complete backup that this build can read.
///
/// # Errors
/// [`DataDirError`], if not.
pub fn check_backup(path: &Path) -> Result<(), DataDirError> {
    let not_a_backup = || DataDirError::NotABackup {
        path: path.to_owned(),
    };
    let marker = fs::read_to_string(path.join(MARKER)).map_err(|_| not_a_backup())?;
    match check_marker(path, &marker) {
        Err(DataDirError::IsBackup { .. }) => Ok(()),
        Err(error @ DataDirError::NewerFormat { .. }) => Err(error),
        Ok(_) | Err(_) => Err(not_a_backup()),
    }
}

/// Whether the name is free.
///
/// # Errors
/// [`DataDirError::NotNew`], if something has.
pub fn check_new(path: &Path) -> Result<(), DataDirError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Err(DataDirError::NotNew {
            path: path.to_owned(),
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(path, "read", error)),
    }
}

/// Whether the engine may remove the files of that name: none, or an incomplete copy.
///
/// # Errors
/// [`DataDirError::NotNew`], if it is anything else.
pub(crate) fn check_left_over(path: &Path) -> Result<(), DataDirError> {
    if check_new(path).is_ok() {
        return Ok(());
    }
    let not_new = || DataDirError::NotNew {
        path: path.to_owned(),
    };
    for entry in fs::read_dir(path).map_err(|_| not_new())? {
        let name = entry.map_err(|_| not_new())?.file_name();
        if !name.to_str().is_some_and(is_of_a_copy) {
            return Err(not_new());
        }
    }
    Ok(())
}

/// Whether the engine uses that name for files of a copy. A complete copy has a mark beside them, and a database a
/// lock.
fn is_of_a_copy(name: &str) -> bool {
    let starts = ["MANIFEST-", "OPTIONS-", "CURRENT"];
    let ends = [".sst", ".log", ".dbtmp"];
    starts.iter().any(|start| name.starts_with(start)) || ends.iter().any(|end| name.ends_with(end))
}

/// Makes sure that `path` is an empty directory: creates it, if need be.
///
/// # Errors
/// [`DataDirError`], also where anything is in it.
pub fn make_empty(path: &Path) -> Result<(), DataDirError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => create(path),
        Err(error) => Err(failed(path, "read", error)),
        Ok(metadata) if metadata.is_dir() && is_empty(path)? => Ok(()),
        Ok(_) => Err(DataDirError::NotNew {
            path: path.to_owned(),
        }),
    }
}

/// Creates the directory and syncs the entry in its parent: a data directory that a power loss
/// takes back would take acknowledged writes with it.
fn create(path: &Path) -> Result<(), DataDirError> {
    // Tokens and modes of single files protect little if other users may read the directory.
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    builder.create(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => missing_parent(path),
        _ => failed(path, "create", error),
    })?;
    File::open(parent_of(path))
        .and_then(|parent| parent.sync_all())
        .map_err(|error| failed(path, "create", error))
}

fn missing_parent(path: &Path) -> DataDirError {
    DataDirError::MissingParent {
        path: path.to_owned(),
        parent: parent_of(path).to_owned(),
    }
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

pub(crate) fn failed(path: &Path, operation: &'static str, source: std::io::Error) -> DataDirError {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::PermissionDenied => DataDirError::PermissionDenied { path, operation },
        ErrorKind::ReadOnlyFilesystem => DataDirError::ReadOnlyMount { path },
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => DataDirError::NoRoom {
            path,
            cause: source.to_string(),
        },
        _ => DataDirError::Io {
            path,
            operation,
            source,
        },
    }
}

/// `lost+found` is what a fresh file system holds, so a mount point counts as empty.
fn is_empty(path: &Path) -> Result<bool, DataDirError> {
    for entry in fs::read_dir(path).map_err(|error| failed(path, "read", error))? {
        let entry = entry.map_err(|error| failed(path, "read", error))?;
        let name = entry.file_name();
        let is_ours = name == temporary_marker().as_str()
            && is_begun_marker(&entry.path()).map_err(|error| failed(path, "read", error))?;
        if name != "lost+found" && !is_ours {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a file is left by an interrupted first start: the marker, perhaps incomplete.
fn is_begun_marker(path: &Path) -> io::Result<bool> {
    let mut text = Vec::new();
    let bytes_max = MARKER_START.len() as u64;
    File::open(path)?.take(bytes_max).read_to_end(&mut text)?;
    Ok(MARKER_START.as_bytes().starts_with(&text))
}

fn temporary_marker() -> String {
    format!("{MARKER}.tmp")
}

/// Written aside, synced, then renamed: a marker is never half there.
fn write_marker(path: &Path, second_line: Option<&str>) -> Result<(), DataDirError> {
    let write = || {
        let temporary = path.join(temporary_marker());
        let mut file = File::create(&temporary)?;
        writeln!(file, "{MARKER_START}{FORMAT}")?;
        if let Some(line) = second_line {
            writeln!(file, "{line}")?;
        }
        file.sync_all()?;
        fs::rename(&temporary, path.join(MARKER))?;
        File::open(path)?.sync_all()
    };
    write().map_err(|error| failed(path, "write to", error))
}

fn check_marker(path: &Path, marker: &str) -> Result<Found, DataDirError> {
    let format = marker
        .lines()
        .next()
        .and_then(|line| line.strip_prefix(MARKER_START))
        .and_then(|number| number.trim().parse::<u32>().ok());
    match format {
        None | Some(0) => Err(DataDirError::Foreign {
            path: path.to_owned(),
        }),
        Some(format) if format > FORMAT => Err(DataDirError::NewerFormat {
            path: path.to_owned(),
            found: format!("format {format}"),
            supported: format!("format {FORMAT}"),
        }),
        Some(found @ (FORMAT | FORMAT_WITHOUT_PARTS)) => match marker.lines().nth(1) {
            None if found == FORMAT => Ok(Found::Current),
            None => Ok(Found::Format2),
            Some(CREATING) => Ok(Found::New),
            Some(UPGRADING) => Ok(Found::Upgrading),
            Some(BACKUP) => Err(DataDirError::IsBackup {
                path: path.to_owned(),
            }),
            // Of unknown kind: a flipped byte must not make a backup a data directory.
            Some(_) => Err(DataDirError::Foreign {
                path: path.to_owned(),
            }),
        },
        Some(_) => Ok(Found::Format1),
    }
}

#[cfg(test)]
#[path = "tests/data_dir.rs"]
mod tests;

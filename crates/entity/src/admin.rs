//! Backups, and the way back from them.
//!
//! Place: `cli` calls it, on directories that no server runs on; the engine's lock sees to that.
//! Absent on purpose: increments. A backup on the same file system shares its tables with the data as
//! long as both have them; one that is to outlive the disk is copied elsewhere by any tool.

use std::fs::{self, File};
use std::path::Path;

use crate::config::EntityConfig;
use crate::data_dir::{self, DataDirError};
use crate::server::open;
use crate::store::Engine as _;

/// Makes the new directory `backup` a copy of `data`.
///
/// # Errors
/// [`DataDirError`], of either directory.
pub fn backup(data: &Path, backup: &Path) -> Result<(), DataDirError> {
    data_dir::check_new(backup)?;
    open(&EntityConfig::new(data.to_owned()))?.checkpoint(backup)
}

/// Copies `backup` into `data`, which has to be new or empty, and opens it once, to see that it can be.
///
/// # Errors
/// [`DataDirError`]; a directory that was restored in part is refused by every server.
pub fn restore(backup: &Path, data: &Path) -> Result<(), DataDirError> {
    data_dir::check_backup(backup)?;
    data_dir::make_empty(data)?;
    copy_files(backup, data).map_err(|source| DataDirError::Io {
        path: data.to_owned(),
        operation: "restore into",
        source,
    })?;
    data_dir::mark_current(data)?;
    open(&EntityConfig::new(data.to_owned())).map(drop)
}

/// All files but the mark, each on the disk before the next one. Copied, never linked: the server adds
/// to the last log in place.
fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_name() == data_dir::MARKER || !entry.file_type()?.is_file() {
            continue;
        }
        let copy = to.join(entry.file_name());
        fs::copy(entry.path(), &copy)?;
        File::open(&copy)?.sync_all()?;
    }
    File::open(to)?.sync_all()
}

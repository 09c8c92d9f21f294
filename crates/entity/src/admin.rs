//! Operations on a data directory that no server uses: inspect, check, copy, restore.
//!
//! Everything but [`restore`] reads alone: a directory that is damaged is left as it is, for its repair. A backup on
//! the same file system shares its tables with the data as long as both have them; one that is to outlive the disk is
//! copied elsewhere by any tool.

use std::path::Path;

use crate::config::EntityConfig;
use crate::data_dir::{self, DataDirError};
use crate::server::{open, options_of};
use crate::store::rocksdb::RocksDbStore;
use crate::store::upkeep::{Checked, Statistics};
use crate::store::{Engine as _, EngineInfo, Linkage, StoreError, backup_files, opening};

/// Why a directory could not be inspected, or what is wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// It cannot be opened, or has lost data.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// A table cannot be read.
    #[error("{0}; restore the newest good backup")]
    Store(#[from] StoreError),
}

/// The embedded engine of this build. Its version is `unknown` if no directory can be made in the temporary directory,
/// where an empty database is asked.
#[must_use]
pub fn engine() -> EngineInfo {
    EngineInfo {
        name: "rocksdb",
        version: opening::probe_version().unwrap_or_else(|| "unknown".to_owned()),
        linkage: Linkage::of_this_build(),
    }
}

/// Entities in `data`, as the engine estimates.
///
/// # Errors
/// [`LookError`].
pub fn statistics(data: &Path) -> Result<(Statistics, EngineInfo), LookError> {
    let config = EntityConfig::new(data.to_owned());
    let (store, _lock) = RocksDbStore::open_to_look(data, options_of(&config))?;
    Ok((store.statistics()?, store.engine()))
}

/// Reads everything in `data`, a data directory or a backup, and compares it with its checksums.
///
/// # Errors
/// [`LookError`], for any loss and any damage.
pub fn check(data: &Path) -> Result<Checked, LookError> {
    let config = EntityConfig::new(data.to_owned());
    if data_dir::check_backup(data).is_ok()
        && let Some(listed) = backup_files::Listed::read(data)?
    {
        listed.verify(data, None)?;
    }
    let (store, _lock) = RocksDbStore::open_to_look(data, options_of(&config))?;
    Ok(store.check()?)
}

/// Makes the new directory `backup` a copy of `data`.
///
/// # Errors
/// [`DataDirError`], of either directory.
pub fn backup(data: &Path, backup: &Path) -> Result<(), DataDirError> {
    let config = EntityConfig::new(data.to_owned());
    RocksDbStore::copy_stopped(data, backup, options_of(&config))
}

/// Copies `backup` into `data`, which has to be new or empty, and opens it once, to see that it can be.
///
/// # Errors
/// [`DataDirError`]; a directory that was restored in part is refused by every server.
pub fn restore(backup: &Path, data: &Path) -> Result<(), DataDirError> {
    data_dir::check_backup(backup)?;
    let listed = match backup_files::Listed::read(backup)? {
        Some(listed) => listed,
        None => backup_files::Listed::without_checksums(backup)?,
    };
    data_dir::make_empty(data)?;
    listed.verify(backup, Some(data))?;
    data_dir::mark_current(data)?;
    open(&EntityConfig::new(data.to_owned())).map(drop)
}

//! Opening what is left of a damaged directory, after every file of it was put aside.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rocksdb::{DB, Options};

use super::examine::{Examined, Loss};
use super::upkeep::link_files;
use super::{inventory, manifest};
use crate::data_dir::{self, DataDirError};

const ASIDE_PREFIX: &str = "aside-";
const REPORT: &str = "LOSS";

/// Puts every file of `path` aside and makes the rest one that the engine opens. Returns where the files are.
///
/// # Errors
/// [`DataDirError`]; the directory is as it was unless the engine's repair had begun, and a copy of all lies aside.
pub(super) fn prepare(
    path: &Path,
    examined: &Examined,
    loss: &Loss,
    options: &Options,
) -> Result<PathBuf, DataDirError> {
    let refused = |error| data_dir::failed(path, "put aside the files of", error);
    let aside = put_aside(path).map_err(refused)?;
    write_report(&aside, loss).map_err(refused)?;
    if !examined.has_manifest && !has_mended_current(path, examined).map_err(refused)? {
        DB::repair(options, path).map_err(|error| DataDirError::Engine {
            path: path.to_owned(),
            cause: format!("what is left of it cannot be read: {error}"),
        })?;
    }
    Ok(aside)
}

/// Where only CURRENT is missing, and the newest MANIFEST is whole and as long as it was, it is the one.
fn has_mended_current(path: &Path, examined: &Examined) -> io::Result<bool> {
    let Some(newest) = manifest::newest(path)? else {
        return Ok(false);
    };
    let Some(name) = newest.file_name().and_then(|name| name.to_str()) else {
        return Ok(false);
    };
    let Some(found) = manifest::read(path, name)? else {
        return Ok(false);
    };
    let noted = examined.inventory.as_ref().map(|one| &one.manifest);
    let is_the_one = noted.is_some_and(|noted| {
        manifest::number(&noted.name) <= manifest::number(name)
            && (noted.name != name || found.size_bytes >= noted.size_bytes)
    });
    if !is_the_one || found.scan.damaged_at.is_some() {
        return Ok(false);
    }
    let temporary = path.join("CURRENT.dbtmp");
    let mut file = File::create(&temporary)?;
    writeln!(file, "{name}")?;
    file.sync_all()?;
    fs::rename(&temporary, path.join("CURRENT"))?;
    File::open(path)?.sync_all()?;
    Ok(true)
}

/// A new directory in `path` with every file of it.
fn put_aside(path: &Path) -> io::Result<PathBuf> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    let mut aside = path.join(format!("{ASIDE_PREFIX}{seconds}"));
    // Two starts in one second: the files of each are kept.
    let mut count = 1;
    while let Err(error) = fs::create_dir(&aside) {
        if error.kind() != io::ErrorKind::AlreadyExists || count > 100 {
            return Err(error);
        }
        aside = path.join(format!("{ASIDE_PREFIX}{seconds}-{count}"));
        count += 1;
    }
    link_files(path, &aside, |_| false)?;
    File::open(path)?.sync_all()?;
    Ok(aside)
}

fn write_report(aside: &Path, loss: &Loss) -> io::Result<()> {
    let mut file = File::create_new(aside.join(REPORT))?;
    writeln!(file, "accepted as lost: {loss}")?;
    writeln!(
        file,
        "beside this file lies every file as it was found; {} is the note they were compared with",
        inventory::FILE
    )?;
    file.sync_all()
}

//! `millpond entity`: upkeep of a data directory that no server runs on.

mod http_client;
mod remote;
mod transfer;

use crate::output::{self, Exit, Failure, JsonFile};
use clap::{Args, Subcommand};
use millpond_entity::{EntityConfig, abort_note, admin, open};
use millpond_io::file_modes::keep_files_private;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Look after a data directory of the entity server: stats, check, compact, backup, restore, export, import
///
/// No server may run on it meanwhile: the engine's lock sees to that. stats, check,
/// backup and export change nothing in it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond entity stats --data ./data
  millpond entity check --data ./data
  millpond entity compact --data ./data
  millpond entity backup --data ./data ./backup-monday
  millpond entity restore ./backup-monday --data ./data-again
  millpond entity export ./data --output data.ndjson
  millpond entity import ./data-again data.ndjson
  millpond entity export http://127.0.0.1:8080 |
    millpond entity import http://127.0.0.1:8081")]
pub(crate) struct EntityFlags {
    #[command(subcommand)]
    job: Job,
}

#[derive(Debug, Subcommand)]
enum Job {
    /// What is in it, as the engine estimates
    Stats(Look),
    /// Read everything, of a data directory or a backup, and compare it with its checksums; status 1 for any loss or damage
    Check(Look),
    /// Take away what was overwritten or deleted, or has ended; needs room for the largest tables twice
    Compact(Directory),
    /// Copy it into a new directory; on the same file system its tables are linked, not copied
    Backup {
        #[command(flatten)]
        directory: Directory,
        /// The new directory; the one it stands in has to exist
        #[arg(value_name = "BACKUP")]
        backup: PathBuf,
    },
    /// Copy a backup into a new directory, for a server to run on
    Restore {
        /// What `backup` made
        #[arg(value_name = "BACKUP")]
        backup: PathBuf,
        #[command(flatten)]
        directory: Directory,
    },
    /// Write all entities as lines of JSON, of a damaged directory those that can be read: status 1 then
    Export(transfer::Export),
    /// Put the entities of such lines, into a directory with their ETags, or into a server that runs
    Import(transfer::Import),
}

#[derive(Args, Debug)]
struct Directory {
    /// The data directory
    #[arg(long, value_name = "DIR", default_value = "millpond-data")]
    data: PathBuf,
}

#[derive(Args, Debug)]
struct Look {
    #[command(flatten)]
    directory: Directory,
    /// Write the figures to FILE as well
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse)]
    json: Option<JsonFile>,
}

impl Job {
    /// None: a server is asked.
    fn data(&self) -> Option<&Path> {
        match self {
            Self::Stats(look) | Self::Check(look) => Some(&look.directory.data),
            Self::Compact(directory)
            | Self::Backup { directory, .. }
            | Self::Restore { directory, .. } => Some(&directory.data),
            Self::Export(export) => export.directory(),
            Self::Import(import) => import.directory(),
        }
    }
}

impl EntityFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        self.job.data().map_or(Ok(()), note_aborts)?;
        keep_files_private();
        match self.job {
            Job::Stats(look) => stats(&look),
            Job::Check(look) => check(&look),
            Job::Compact(directory) => compact(&directory.data),
            Job::Backup { directory, backup } => {
                existing(&directory.data)?;
                admin::backup(&directory.data, &backup).map_err(Failure::failed)?;
                output::print(format_args!("{} is complete\n", backup.display()))?;
                Ok(Exit::Success)
            }
            Job::Restore { backup, directory } => {
                admin::restore(&backup, &directory.data).map_err(Failure::failed)?;
                let (data, backup) = (directory.data.display(), backup.display());
                output::print(format_args!("{data} holds what {backup} does\n"))?;
                Ok(Exit::Success)
            }
            Job::Export(export) => export.run(),
            Job::Import(import) => import.run(),
        }
    }
}

/// Should the engine abort the process, stderr says which store it was.
pub(super) fn note_aborts(data: &Path) -> Result<(), Failure> {
    abort_note::install(data)
        .map_err(|error| Failure::failed(format_args!("SIGABRT cannot be handled: {error}")))
}

/// A server makes what is missing; who looks after a directory has mistyped it.
fn existing(data: &Path) -> Result<(), Failure> {
    match data.join("MILLPOND").exists() {
        true => Ok(()),
        false => Err(Failure::failed(format_args!(
            "{} is no data directory: give --data the one that the server was given",
            data.display()
        ))),
    }
}

fn stats(look: &Look) -> Result<Exit, Failure> {
    existing(&look.directory.data)?;
    let (found, engine) = admin::statistics(&look.directory.data).map_err(Failure::failed)?;
    output::print(format_args!(
        "entities  about {}\ntables    {}, {} bytes\nneeded    about {} bytes\nengine    {engine}\n",
        found.entities_estimated, found.tables, found.tables_bytes, found.live_bytes_estimated
    ))?;
    write(
        look,
        &json!({
            "entities_estimated": found.entities_estimated,
            "tables": found.tables,
            "tables_bytes": found.tables_bytes,
            "live_bytes_estimated": found.live_bytes_estimated,
            "engine": engine.name,
            "engine_version": engine.version,
            "engine_linkage": engine.linkage.to_string(),
        }),
    )?;
    Ok(Exit::Success)
}

fn check(look: &Look) -> Result<Exit, Failure> {
    existing(&look.directory.data)?;
    let found = admin::check(&look.directory.data).map_err(Failure::failed)?;
    output::print(format_args!(
        "entities    {}\nbytes       {}\nended       {}\nunreadable  {}\n",
        found.entities, found.bytes, found.expired, found.unreadable
    ))?;
    write(
        look,
        &json!({
            "entities": found.entities,
            "value_and_id_bytes": found.bytes,
            "expired": found.expired,
            "unreadable": found.unreadable,
        }),
    )?;
    Ok(match found.unreadable {
        0 => Exit::Success,
        _ => Exit::Failed,
    })
}

fn compact(data: &Path) -> Result<Exit, Failure> {
    existing(data)?;
    let store = open(&EntityConfig::new(data.to_owned())).map_err(Failure::failed)?;
    let bytes = || -> Result<u64, Failure> {
        let found = store.statistics().map_err(Failure::failed)?;
        Ok(found.tables_bytes)
    };
    let before = bytes()?;
    store.compact().map_err(Failure::failed)?;
    let after = bytes()?;
    output::print(format_args!(
        "tables took {before} bytes and take {after}\n"
    ))?;
    Ok(Exit::Success)
}

fn write(look: &Look, figures: &serde_json::Value) -> Result<(), Failure> {
    match &look.json {
        Some(file) => file.write(&format!("{figures}\n")),
        None => Ok(()),
    }
}

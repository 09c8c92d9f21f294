//! `millpond entity`: upkeep of a data directory that no server runs on.

mod remote;

use std::fs::File;
use std::io;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, Subcommand};
use millpond_entity::export::{Exported, Skipped, export};
use millpond_entity::import::{Imported, import};
use millpond_entity::{EntityConfig, abort_note, admin, open};
use millpond_io::file_modes::keep_files_private;
use millpond_io::tls::{TlsClient, TlsClientOptions, Trust};
use remote::Server;
use serde_json::json;

use crate::flags::url::Url;
use crate::output;
use crate::output::{Exit, Failure, JsonFile};

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
    Export(Export),
    /// Put the entities of such lines, into a directory with their ETags, or into a server that runs
    Import(Import),
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

/// A server creates what is missing; for a maintenance command it is a typo.
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

// `entity export` and `entity import`: of directories and of servers, as lines of JSON.

/// So many skipped things are reported one by one.
const TOLD_MAX: u64 = 100;

/// A directory, or a server.
#[derive(Clone, Debug)]
enum DataSource {
    Directory(PathBuf),
    Server(Url),
}

impl FromStr for DataSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains("://") {
            return Ok(Self::Directory(PathBuf::from(text)));
        }
        let url = Url::parse(text)?;
        match url.path.contains('?') {
            true => Err("the URL of a server has no query".to_owned()),
            false => Ok(Self::Server(url)),
        }
    }
}

#[derive(Args, Debug)]
struct Export {
    /// The data directory, the backup, or the URL of a server (http:// or https://, HOST:PORT)
    #[arg(value_name = "DIR|URL")]
    from: DataSource,
    /// Write to FILE instead of stdout
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse)]
    output: Option<JsonFile>,
    /// Send the token in FILE, one of the server's --read-tokens or --write-tokens
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// https: trust only the authorities in this PEM file, not the system's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct Import {
    /// The data directory, which is made if need be, or the URL of a server (http:// or https://, HOST:PORT)
    #[arg(value_name = "DIR|URL")]
    into: DataSource,
    /// What `export` wrote; without it, stdin
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Send the token in FILE, one of the server's --write-tokens
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// https: trust only the authorities in this PEM file, not the system's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl Export {
    /// Where the engine may abort.
    fn directory(&self) -> Option<&Path> {
        directory(&self.from)
    }

    fn run(&self) -> Result<Exit, Failure> {
        let authorization = authorization(self.token_file.as_deref(), &self.from)?;
        let tls = tls(self.ca.as_deref(), &self.from)?;
        let mut out: Box<dyn Write> = match &self.output {
            Some(file) => Box::new(file.create()?),
            None => Box::new(io::stdout().lock()),
        };
        let done = match &self.from {
            DataSource::Directory(data) => {
                existing(data)?;
                export(data, &mut out, &mut Told::default().teller()).map_err(Failure::failed)?
            }
            DataSource::Server(url) => {
                let mut out = BufWriter::new(out);
                let server = Server {
                    url,
                    tls: tls.as_ref(),
                    authorization: authorization.as_deref(),
                };
                let done = remote::export(server, &mut out);
                done.and_then(|done| {
                    out.flush()
                        .map(|()| done)
                        .map_err(|error| error.to_string())
                })
                .map_err(Failure::failed)?
            }
        };
        let Exported {
            entities,
            bytes,
            ended,
            skipped,
        } = done;
        output::note(format_args!(
            "{entities} entities of {bytes} bytes are exported; {ended} have ended"
        ));
        match skipped {
            0 => Ok(Exit::Success),
            _ => Err(Failure::failed(format_args!(
                "the export is not whole: data is lost, or cannot be read (skipped: {skipped})"
            ))),
        }
    }
}

/// What is skipped, in lines on stderr.
#[derive(Default)]
struct Told(u64);

impl Told {
    fn teller(mut self) -> impl FnMut(&Skipped<'_>) {
        move |skipped| {
            self.0 += 1;
            match self.0 {
                ..=TOLD_MAX => output::warn(format_args!("skipped: {skipped}")),
                count if count == TOLD_MAX + 1 => output::warn("skipped: more, which are counted"),
                _ => {}
            }
        }
    }
}

impl Import {
    /// Where the engine may abort.
    fn directory(&self) -> Option<&Path> {
        directory(&self.into)
    }

    fn run(&self) -> Result<Exit, Failure> {
        let authorization = authorization(self.token_file.as_deref(), &self.into)?;
        let tls = tls(self.ca.as_deref(), &self.into)?;
        let mut input = self.input()?;
        let Imported {
            entities,
            ended,
            skipped,
        } = match &self.into {
            DataSource::Directory(data) => import(data, &mut input).map_err(Failure::failed)?,
            DataSource::Server(url) => {
                let server = Server {
                    url,
                    tls: tls.as_ref(),
                    authorization: authorization.as_deref(),
                };
                remote::import(server, &mut input).map_err(Failure::failed)?
            }
        };
        output::print(format_args!(
            "{entities} entities are imported; {ended} have ended\n"
        ))?;
        if skipped > 0 {
            output::warn(format_args!(
                "the export itself was not whole (skipped: {skipped})"
            ));
        }
        Ok(Exit::Success)
    }

    fn input(&self) -> Result<Box<dyn BufRead>, Failure> {
        match &self.file {
            None => Ok(Box::new(io::stdin().lock())),
            Some(path) => match File::open(path) {
                Ok(file) => Ok(Box::new(BufReader::with_capacity(64 << 10, file))),
                Err(error) => Err(Failure::usage(format_args!(
                    "{} cannot be read: {error}",
                    path.display()
                ))),
            },
        }
    }
}

fn directory(place: &DataSource) -> Option<&Path> {
    match place {
        DataSource::Directory(path) => Some(path),
        DataSource::Server(_) => None,
    }
}

/// TLS towards a server whose URL asks for it.
fn tls(ca: Option<&Path>, place: &DataSource) -> Result<Option<TlsClient>, Failure> {
    let url = match place {
        DataSource::Server(url) if url.is_tls => url,
        _ if ca.is_some() => return Err(Failure::usage("--ca is for https:// URLs")),
        _ => return Ok(None),
    };
    let options = TlsClientOptions {
        identity: None,
        host: url.host().to_owned(),
        trust: ca.map_or(Trust::System, |file| Trust::File(file.to_owned())),
        protocols: vec![b"http/1.1".to_vec()],
        // Of a driver's handshakes: these are bounded by the socket's timeouts.
        handshake_timeout_ns: u64::MAX,
        handshake_bytes_max: usize::MAX,
    };
    TlsClient::load(options).map(Some).map_err(Failure::failed)
}

/// The value of the Authorization field. The first token of the file; a file of the server's will do.
fn authorization(file: Option<&Path>, place: &DataSource) -> Result<Option<String>, Failure> {
    let url = match (place, file) {
        (DataSource::Server(url), _) => url,
        (DataSource::Directory(_), None) => return Ok(None),
        (DataSource::Directory(_), Some(_)) => {
            return Err(Failure::usage(
                "--token-file is for a URL: directories take none",
            ));
        }
    };
    let Some(file) = file else {
        return Ok(url.authorization.clone());
    };
    let text = std::fs::read_to_string(file).map_err(|error| {
        let reason = match error.kind() {
            ErrorKind::InvalidData => "it is no text".to_owned(),
            _ => error.to_string(),
        };
        Failure::usage(format_args!("{} cannot be read: {reason}", file.display()))
    })?;
    let mut lines = text.lines().map(str::trim);
    match lines.find(|line| !line.is_empty() && !line.starts_with('#')) {
        Some(token) if token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Some(format!("Bearer {token}")))
        }
        _ => Err(Failure::usage(format_args!(
            "{} holds no token",
            file.display()
        ))),
    }
}

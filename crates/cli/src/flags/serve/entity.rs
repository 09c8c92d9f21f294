//! `millpond serve entity`: the key-value service.

mod cluster;

use self::cluster::ClusterFlags;
use super::CommonFlags;
use crate::flags::config::ConfigFlag;
use crate::flags::entity::note_aborts;
use crate::flags::parse_bytes;
use crate::output::{self, Exit, Failure};
use clap::{Args, ValueEnum};
use millpond_entity::access::AllowedHosts;
use millpond_entity::access::{Access, Tokens};
use millpond_entity::budget::MEMORY_BYTES_MIN;
use millpond_entity::cluster_url::ClusterUrl;
use millpond_entity::config::Compression;
use millpond_entity::{EntityConfig, SyncPolicy};
use millpond_http::Reread;
use millpond_http::log::{self, LogLevel};
use millpond_io::file_modes::keep_files_private;
use std::path::{Path, PathBuf};

/// Keep values under ids, durably: GET, PUT, DELETE /v0/entity?id=ID
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond serve entity --data ./data
  millpond serve entity --data ./data --sync interval:100 --memory 1GiB
  millpond serve entity \\
    --store 'cassandra://10.0.0.1,10.0.0.2/entities?create=3'
  curl -X PUT --data-binary hello 'http://127.0.0.1:8080/v0/entity?id=greeting'
  curl 'http://127.0.0.1:8080/v0/entity?id=greeting'")]
pub(super) struct EntityFlags {
    /// Where the data lives; the directory is made, the one it stands in has to exist
    #[arg(long, value_name = "DIR", default_value = "millpond-data")]
    data: PathBuf,
    /// Keep the data on a cluster of Apache Cassandra or ScyllaDB, instead of --data: some of its
    /// nodes, and a keyspace
    ///
    /// Behind the keyspace, with ? before the first and & before the others:
    ///
    /// create=COPIES: make the keyspace and its tables if they are missing, with so many copies.
    ///
    /// buckets=N: make it with so many partitions, 64 by default; a range read asks them all. Reckon
    /// with one for every 100 MB to 1 GB of data. It stays so.
    ///
    /// conditions=on: make it so that writes may depend on what is there (If-Match, If-None-Match). Then
    /// every write is a light-weight transaction, several times as slow. It stays so; without it such
    /// writes are answered with 501.
    ///
    /// Every request says how many copies have to answer, by replicas=ACK/FROM; without it a quorum. What
    /// fewer answered is 504, and a write may then have been done or not. What else differs: the last
    /// write wins by the clocks of the servers, so keep them together; values have 1 MiB at most; a range
    /// is in the order of ids, but not of one moment. Nothing is cached here.
    #[arg(
        long,
        value_name = "URL",
        conflicts_with_all = ["data", "sync", "cache", "memtable", "disk_reserve", "accept_loss", "read_only", "checkpoints", "compression"]
    )]
    store: Option<ClusterUrl>,
    /// When a write is acknowledged: after its sync, or before it, which loses the last MS (or more)
    /// when power fails
    ///
    /// always: when its log is on the disk. Nothing that was acknowledged is lost, whatever fails but
    /// the disk itself. Writes that wait while a sync runs share the next one.
    ///
    /// interval:MS: when the kernel has its log, which is synced MS milliseconds later at the most. The
    /// death of the server loses nothing; the loss of power, or a crash of the kernel, loses what was
    /// acknowledged in the last MS milliseconds and while the last sync ran.
    ///
    /// off: when the kernel has its log. The death of the server loses nothing; the loss of power loses
    /// what the kernel had not yet written, by default up to half a minute.
    ///
    /// Under all three a write or sync that fails for good ends writing: writes are refused with 503 until a
    /// restart, which reads back what is really there. Where descriptors, memory or room are short, writes go
    /// on by themselves once there is enough.
    #[arg(long, value_name = "always|interval:MS|off", default_value_t = SyncPolicy::Always)]
    sync: SyncPolicy,
    /// Memory for all of it, 16MiB or more; with the process itself 32 MiB more are resident
    ///
    /// Half of it is for values that are read, an eighth for the engine's blocks and indexes, three
    /// sixteenths for writes that are not yet in tables, an eighth for requests that wait for the store and
    /// large values on their way, and the rest for batches and range reads. What the engine takes for the
    /// longest record comes on top: up to 18 times 240 KiB, the longest part of a value, whatever --max-value is.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, default_value = "256MiB")]
    memory: u64,
    /// Memory for values that are read, shared out among the shards, instead of half of --memory; a
    /// quarter of it more for the blocks and indexes of the engine
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    cache: Option<u64>,
    /// Memory for writes that are not yet in tables, instead of their share of --memory
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memtable: Option<u64>,
    /// Room on the disk that writes leave to the engine: with less, puts are answered with 507, with
    /// less than half of it deletes too [default: a sixteenth of the disk, but no less than twice the memory
    /// for writes, and no more than that and 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    disk_reserve: Option<u64>,
    /// Serve what is left of a data directory that has lost data; without it such a directory is refused
    ///
    /// Every file as it was found is put into a new directory aside-SECONDS in the data directory first, with a file
    /// LOSS that says what was missing and how many writes that may be; the metric
    /// millpond_entity_accepted_loss_writes keeps the sum. A backup may have what is lost: look there first.
    #[arg(long)]
    accept_loss: bool,
    /// Answer reads and nothing else, and write no file in --data: for a read-only mount, a full disk, a backup
    ///
    /// Writes and checkpoints are answered with 403. The write-ahead log's changes are taken into memory at the start,
    /// which may take as much as twice --memtable. On a disk that can be written to no other server may use the directory
    /// meanwhile.
    #[arg(long, conflicts_with_all = ["accept_loss", "checkpoints"])]
    read_only: bool,
    /// Make checkpoints in DIR when asked to, by PUT /v0/admin/checkpoint?name=NAME; only where --listen
    /// is on the loopback or a unix socket, or with --write-tokens
    #[arg(long, value_name = "DIR")]
    checkpoints: Option<PathBuf>,
    /// Only clients that send `Authorization: Bearer TOKEN` with one of these may write: a token of 16 letters or
    /// more on each line of FILE
    ///
    /// They may read too. Without --read-tokens every client may read. A token that
    /// crosses a network without TLS (--tls-cert) can be read there. Of lines that begin with # and of
    /// empty ones nothing is taken. The file is read when the server starts, and again at SIGHUP.
    #[arg(long, value_name = "FILE")]
    write_tokens: Option<PathBuf>,
    /// Only clients that send one of these tokens, or one of --write-tokens, may read
    #[arg(long, value_name = "FILE", requires = "write_tokens")]
    read_tokens: Option<PathBuf>,
    /// Answer requests under these names alone, addresses and localhost; others with 421. A name that begins with a dot
    /// stands for all below it
    ///
    /// Pages of strangers can have their own name lead to this machine, and so ask its servers from the browser of
    /// whoever reads them (DNS rebinding). A server on a developer's machine without --write-tokens should have it: any
    /// name will do there, as localhost. A proxy in front may pass the client's Host on: give its names then.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    allowed_hosts: Vec<String>,
    /// How values are packed on the disk; what is there stays as it is until it is next merged
    #[arg(long, value_enum, default_value_t = Packing::Lz4)]
    compression: Packing,
    /// Largest value; a larger one is answered with 413 [default: 64MiB; with --store 1MiB, which is also
    /// the most there]
    #[arg(long, value_name = "SIZE", value_parser = parse_value_max)]
    max_value: Option<u64>,
    #[command(flatten)]
    config: ConfigFlag,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    pub(super) common: CommonFlags,
}

/// The library's `Compression`, as it is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Packing {
    /// Not at all
    None,
    /// Quickly
    Lz4,
    /// Smaller, for more CPU; needs the distribution's engine
    Zstd,
}

fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    match bytes >= MEMORY_BYTES_MIN {
        true => Ok(bytes),
        false => Err("the store needs 16MiB or more".to_owned()),
    }
}

/// The engine's records hold 32-bit lengths.
const VALUE_BYTES_MAX: u64 = 1 << 30;

fn parse_value_max(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes <= VALUE_BYTES_MAX => Ok(bytes),
        _ => Err("it can be at most 1GiB".to_owned()),
    }
}

fn read_tokens(path: &Path) -> Result<Tokens, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("{shown} cannot be read: {error}")))?;
    Tokens::parse(&text).map_err(|error| Failure::usage(format!("{shown}: {error}")))
}

impl EntityFlags {
    fn hosts(&self) -> Result<AllowedHosts, Failure> {
        match self.allowed_hosts.as_slice() {
            [] => Ok(AllowedHosts::default()),
            names => AllowedHosts::new(names.iter().map(String::as_str))
                .map_err(|error| Failure::usage(format_args!("--allowed-hosts: {error}"))),
        }
    }

    /// What SIGHUP does, if there are tokens: with a file that cannot be used, those that are known stay.
    fn reread(&self, access: &Access) -> Option<Reread> {
        let (access, writers) = (access.clone(), self.write_tokens.clone()?);
        let readers = self.read_tokens.clone();
        Some(Reread::new(move || {
            let read = read_tokens(&writers).and_then(|writers| {
                Ok((writers, readers.as_deref().map(read_tokens).transpose()?))
            });
            match read {
                Ok((writers, readers)) => {
                    access.replace(writers, readers);
                    log::write(LogLevel::Info, format_args!("the tokens were read again"));
                }
                Err(failure) => log::write(
                    LogLevel::Error,
                    format_args!("{}; the tokens stay as they are", failure.sentence()),
                ),
            }
        }))
    }

    /// The tokens of the files, if there are any.
    fn access(&self) -> Result<Access, Failure> {
        let Some(writers) = &self.write_tokens else {
            return Ok(Access::default());
        };
        let readers = self.read_tokens.as_deref().map(read_tokens).transpose()?;
        Ok(Access::limited(read_tokens(writers)?, readers))
    }

    fn entity_config(&self) -> EntityConfig {
        let mut config = EntityConfig::with_memory(self.data.clone(), self.memory);
        config.sync = self.sync;
        config.value_bytes_max = self.max_value.unwrap_or(config.value_bytes_max);
        if let Some(cache_bytes) = self.cache {
            config.cache_bytes = cache_bytes;
            config.block_cache_bytes = cache_bytes / 4;
        }
        config.memtable_bytes = self.memtable.unwrap_or(config.memtable_bytes);
        config.disk_reserve_bytes = self.disk_reserve;
        config.accepts_loss = self.accept_loss;
        config.reads_only = self.read_only;
        config.checkpoints.clone_from(&self.checkpoints);
        config.compression = match self.compression {
            Packing::None => Compression::None,
            Packing::Lz4 => Compression::Lz4,
            Packing::Zstd => Compression::Zstd,
        };
        config
    }

    /// All that can be checked without touching the data.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.common.check("entity")?;
        self.hosts()?;
        self.access().map(drop)?;
        match &self.store {
            Some(url) => cluster::check(url, &self.cluster),
            None => Ok(()),
        }
    }

    pub(super) fn run(self) -> Result<Exit, Failure> {
        self.config.announce();
        let mut config = self.common.config("entity")?;
        let mut entity = self.entity_config();
        entity.access = self.access()?;
        entity.allowed_hosts = self.hosts()?;
        config.reread = self.reread(&entity.access);
        // Of the engine's too, and those that it makes later.
        keep_files_private();
        if let Some(url) = &self.store {
            let place = (url, &self.cluster);
            let report = cluster::serve(place, self.max_value, &entity, (&config, &self.common))?;
            return self.common.finish(&report);
        }
        note_aborts(&entity.data)?;
        let report = millpond_entity::serve(&entity, &config, |address, engine| {
            self.common.announce(address, &config);
            let data = entity.data.display();
            match entity.reads_only {
                true => output::note(format!(
                    "{engine} reads the data in {data}; writes are refused"
                )),
                false => output::note(format!("{engine} keeps the data in {data}")),
            }
        })
        .map_err(Failure::failed)?;
        self.common.finish(&report)
    }
}

#[cfg(test)]
#[path = "tests/entity.rs"]
mod tests;

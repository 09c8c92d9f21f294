//! The whole server: engine, store threads and shards, started and stopped in the right order.
//!
//! Place: `cli` calls it. The store threads start before the first shard and end after the last, so every job has a
//! thread to do it, and a graceful stop completes all accepted requests.

use std::convert::Infallible;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;

use millpond_http::{Running, ServeConfig, ServeError, ServeReport, ShardStart};
use millpond_io::Address;

use crate::access::Access;
use crate::access::AllowedHosts;
#[cfg(feature = "distributed")]
use crate::cluster::{ClusterEngine, ClusterError};
use crate::config::{Compression, EntityConfig};
use crate::data_dir::DataDirError;
use crate::executor::{Executor, ExecutorConfig};
use crate::handler::EntityService;
use crate::metrics::Metrics;
use crate::monitor::{Monitor, PartSweep};
use crate::parts::LARGE_BYTES;
use crate::range::Ranges;
use crate::record::SHARDS_MAX;
use crate::scanner::Scanner;
use crate::store::rocksdb::{RocksDbOptions, RocksDbStore};
use crate::store::{Engine, EngineInfo, Linkage, Store};
use crate::value_cache::ValueCache;

/// Blocks from here on go back to the system as soon as they are free: those of large values and of parts, which
/// shards, store threads and the engine's threads hold in turn. Each thread's arena would keep a few of them, between
/// small blocks that last: that came to a quarter of `--memory`. Whatever is needed all the time is smaller.
const MAPPED_BYTES: u32 = LARGE_BYTES as u32;

/// One stamp of eight bytes for this much cache: with values of 1 KiB there are ten stamps for
/// each, so a write kills the cached value of one neighbour in ten; and 1/16 of the memory.
const CACHE_BYTES_PER_STAMP: usize = 128;

/// However small the cache, writes must not kill all of it: 8 KiB.
const STAMP_COUNT_MIN: usize = 1024;

/// The table is filled at the start, so a huge cache must not make it huge as well: 128 MiB, which
/// a cache of 2 GiB has. Beyond that a write kills more neighbours.
const STAMP_COUNT_MAX: usize = 1 << 24;

/// Why the server did not start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntityError {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// A setting contradicts another one.
    #[error("{name} is {value}: use {expected}")]
    Config {
        /// The field of [`EntityConfig`].
        name: &'static str,
        /// The path given.
        value: u64,
        /// A value that would work.
        expected: &'static str,
    },
    /// The engine was compiled without it.
    #[error(
        "the engine of this build packs with lz4 only: use --compression lz4 or none, or a \
             build that links the distribution's RocksDB (make build)"
    )]
    NoZstd,
    /// Any client that reaches the server could fill its disk.
    #[error(
        "anybody may create checkpoints: listen on the loopback or on a unix socket, restrict them with --write-tokens, or leave --checkpoints out"
    )]
    CheckpointsForStrangers,
    /// Nowhere to make checkpoints.
    #[error("checkpoints cannot be made in {}: {source}; make the directory, or name another one", path.display())]
    Checkpoints {
        /// The path given.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The cluster cannot be used.
    #[cfg(feature = "distributed")]
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// No thread for the store.
    #[error("cannot start the store's threads: {0}")]
    Thread(std::io::Error),
    /// Sockets, limits or shards.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Serves `config.data` until SIGTERM or SIGINT. `on_ready` is called once it accepts, with the
/// address and the engine that really runs.
///
/// # Errors
/// [`EntityError`], one sentence. After an error nothing that was acknowledged is lost.
pub fn serve(
    config: &EntityConfig,
    http: &ServeConfig,
    on_ready: impl FnOnce(&Address, &EngineInfo),
) -> Result<ServeReport, EntityError> {
    check(config)?;
    let store = Arc::new(open(config)?);
    let engine = store.engine();
    let parts = Parts::start(&store, config, http)?;
    let report = millpond_http::serve(
        &parts.http,
        |start| parts.service(&start),
        |address| on_ready(address, &engine),
    )?;
    Ok(report)
}

/// Like [`serve`] on any store and without signals: `control` runs on this thread once the server
/// accepts, and when it returns the server is stopped gracefully. For tests and embedding.
///
/// # Errors
/// As [`serve`].
pub fn serve_with<S: Store>(
    store: &Arc<S>,
    config: &EntityConfig,
    http: &ServeConfig,
    control: impl FnOnce(&Running),
) -> Result<ServeReport, EntityError> {
    check(config)?;
    let parts = Parts::start(store, config, http)?;
    let report = millpond_http::serve_with(&parts.http, |start| parts.service(&start), control)?;
    Ok(report)
}

/// Serves what a cluster keeps until SIGTERM or SIGINT; of `config`, what is about a directory means
/// nothing then. `on_ready` as in [`serve`].
///
/// # Errors
/// [`EntityError`], one sentence.
#[cfg(feature = "distributed")]
pub fn serve_cluster(
    cluster: &Arc<ClusterEngine>,
    config: &EntityConfig,
    http: &ServeConfig,
    on_ready: impl FnOnce(&Address, &EngineInfo),
) -> Result<ServeReport, EntityError> {
    let engine = cluster.engine();
    let parts = Parts::connect(cluster, config, http)?;
    let report = millpond_http::serve(
        &parts.http,
        |start| parts.service(&start),
        |address| on_ready(address, &engine),
    )?;
    Ok(report)
}

/// Like [`serve_cluster`] without signals, as [`serve_with`]. An engine is served once.
///
/// # Errors
/// As [`serve_cluster`].
#[cfg(feature = "distributed")]
pub fn serve_cluster_with(
    cluster: &Arc<ClusterEngine>,
    config: &EntityConfig,
    http: &ServeConfig,
    control: impl FnOnce(&Running),
) -> Result<ServeReport, EntityError> {
    let parts = Parts::connect(cluster, config, http)?;
    let report = millpond_http::serve_with(&parts.http, |start| parts.service(&start), control)?;
    Ok(report)
}

/// Opens the engine of `config`.
///
/// # Errors
/// [`DataDirError`], one sentence.
pub fn open(config: &EntityConfig) -> Result<RocksDbStore, DataDirError> {
    RocksDbStore::open(&config.data, options_of(config))
}

/// The engine's settings from `config`.
pub(crate) fn options_of(config: &EntityConfig) -> RocksDbOptions {
    RocksDbOptions {
        block_cache_bytes: config.block_cache_bytes,
        memtable_bytes: config.memtable_bytes,
        disk_reserve_bytes: config.disk_reserve_bytes,
        compression: config.compression,
        accepts_loss: config.accepts_loss,
        reads_only: config.reads_only,
    }
}

fn check(config: &EntityConfig) -> Result<(), EntityError> {
    let refuse = |name, value, expected| {
        Err(EntityError::Config {
            name,
            value,
            expected,
        })
    };
    // The engine's records hold 32-bit lengths.
    if config.value_bytes_max > 1 << 30 {
        return refuse("value_bytes_max", config.value_bytes_max, "at most 1 GiB");
    }
    // Below that a memtable would be written out after a few hundred values.
    if config.memtable_bytes < 3 << 20 {
        return refuse("memtable_bytes", config.memtable_bytes, "at least 3 MiB");
    }
    if config.compression == Compression::Zstd && !cfg!(system_rocksdb) {
        return Err(EntityError::NoZstd);
    }
    if config.jobs_in_flight_max == 0 {
        return refuse("jobs_in_flight_max", 0, "1 or more");
    }
    if config.read_threads == 0 {
        return refuse("read_threads", 0, "1 or more");
    }
    if config.scans_max == 0 {
        return refuse("scans_max", 0, "1 or more");
    }
    Ok(())
}

/// Only this machine, or a client with a token, may request checkpoints, and a directory for them must be configured.
fn check_checkpoints(config: &EntityConfig, http: &ServeConfig) -> Result<(), EntityError> {
    let Some(path) = &config.checkpoints else {
        return Ok(());
    };
    match &http.listen {
        Address::Inet(address) if !address.ip().is_loopback() && !config.access.limits_writes() => {
            return Err(EntityError::CheckpointsForStrangers);
        }
        Address::Inet(_) | Address::Unix(_) => {}
    }
    std::fs::read_dir(path)
        .map(drop)
        .map_err(|source| EntityError::Checkpoints {
            path: path.clone(),
            source,
        })
}

/// Syncing is up to the cluster's nodes.
fn sync_label(linkage: Linkage, config: &EntityConfig) -> String {
    match linkage {
        Linkage::Remote => "remote".to_owned(),
        _ => config.sync.to_string(),
    }
}

fn executor_config(
    config: &EntityConfig,
    http: &ServeConfig,
) -> Result<ExecutorConfig, EntityError> {
    if http.shards == 0 {
        return Err(ServeError::NoShards.into());
    }
    if http.shards > SHARDS_MAX {
        return Err(EntityError::Config {
            name: "shards",
            value: http.shards as u64,
            expected: "2048 at most",
        });
    }
    Ok(ExecutorConfig {
        shards: http.shards,
        read_threads: config.read_threads,
        jobs_in_flight_max: config.jobs_in_flight_max,
        bytes_in_flight_max: config.bytes_in_flight_max,
        large_bytes_max: config.large_bytes_max,
        large_wait_max: config.large_wait_max,
        contended_grace_ns: http.limits.contended_grace_ns,
        batch_bytes_max: config.batch_bytes_max,
        stamp_count: stamp_count(config),
        pool_mode: http.pool_mode,
    })
}

/// Memtables are most of what comes and goes in malloc's memory.
fn free_heap_bytes_max(config: &EntityConfig) -> usize {
    usize::try_from(config.memtable_bytes / 4).unwrap_or(usize::MAX)
}

fn cache_bytes(config: &EntityConfig) -> usize {
    usize::try_from(config.cache_bytes).unwrap_or(usize::MAX)
}

fn stamp_count(config: &EntityConfig) -> usize {
    (cache_bytes(config) / CACHE_BYTES_PER_STAMP).clamp(STAMP_COUNT_MIN, STAMP_COUNT_MAX)
}

/// State shared by all shards of one server.
struct Parts<S> {
    store: Arc<S>,
    executor: Executor,
    scanner: Scanner,
    monitor: Monitor,
    metrics: Arc<Metrics>,
    http: ServeConfig,
    /// Memory of each shard's value cache.
    cache_bytes: usize,
    value_bytes_max: u64,
    access: Access,
    allowed_hosts: AllowedHosts,
}

impl<S: Store> Parts<S> {
    fn start(
        store: &Arc<S>,
        config: &EntityConfig,
        http: &ServeConfig,
    ) -> Result<Self, EntityError> {
        let executor_config = executor_config(config, http)?;
        let executor =
            Executor::start(store, config.sync, &executor_config).map_err(EntityError::Thread)?;
        let scanner = Scanner::start(
            store,
            http.shards,
            config.scans_max,
            executor.large(),
            (executor.panics(), executor.part_sets()),
            http.pool_mode,
        )
        .map_err(EntityError::Thread)?;
        Self::assemble(store, executor, scanner, config, http)
    }
}

#[cfg(feature = "distributed")]
impl Parts<ClusterEngine> {
    fn connect(
        cluster: &Arc<ClusterEngine>,
        config: &EntityConfig,
        http: &ServeConfig,
    ) -> Result<Self, EntityError> {
        let config = cluster.config(config)?;
        check(&config)?;
        let executor_config = executor_config(&config, http)?;
        let (executor, jobs) = Executor::remote(&executor_config);
        let starter = cluster.take_starter()?;
        let scanner = Scanner::remote(http.shards, config.scans_max, |scans| {
            starter.start(jobs, scans, http.pool_mode)
        });
        Self::assemble(cluster, executor, scanner, &config, http)
    }
}

impl<S: Engine> Parts<S> {
    fn assemble(
        store: &Arc<S>,
        executor: Executor,
        scanner: Scanner,
        config: &EntityConfig,
        http: &ServeConfig,
    ) -> Result<Self, EntityError> {
        check_checkpoints(config, http)?;
        millpond_mempool::map_large_blocks(MAPPED_BYTES);
        let monitor = Monitor::start(
            store,
            executor.commit_counters(),
            executor.panics(),
            executor.shard_counters(),
            config.checkpoints.clone(),
            free_heap_bytes_max(config),
            PartSweep::new(executor.part_sets(), executor.wake_writer()),
        )
        .map_err(EntityError::Thread)?;
        let metrics = Metrics::new(
            executor.shard_counters(),
            executor.commit_counters(),
            executor.panics(),
        );
        let stamps_bytes = stamp_count(config) * size_of::<u64>();
        let mut http = http.clone();
        let bodies_bytes_max = NonZeroU64::new(config.large_bytes_max).unwrap_or(NonZeroU64::MIN);
        http.limits = http
            .limits
            .with_body_bytes_max(config.value_bytes_max)
            .with_bodies_bytes_max(bodies_bytes_max);
        let engine = store.engine();
        http.build_labels.extend([
            ("engine", engine.name.to_owned()),
            ("engine_version", engine.version),
            ("engine_linkage", engine.linkage.to_string()),
            ("sync", sync_label(engine.linkage, config)),
        ]);
        Ok(Self {
            store: Arc::clone(store),
            executor,
            scanner,
            monitor,
            metrics: Arc::new(metrics),
            access: config.access.clone(),
            allowed_hosts: config.allowed_hosts.clone(),
            value_bytes_max: config.value_bytes_max,
            cache_bytes: cache_bytes(config).saturating_sub(stamps_bytes) / http.shards,
            http,
        })
    }

    fn service(&self, start: &ShardStart) -> Result<EntityService<S>, Infallible> {
        let link = self.executor.link(start.index, start.waker.clone());
        let counters = Arc::clone(&self.executor.shard_counters()[start.index]);
        let scans = self.scanner.link(start.index, start.waker.clone());
        let monitor = self.monitor.link(start.index, start.waker.clone());
        let ranges = Ranges::new(
            scans,
            start.pool_mode,
            Arc::clone(&counters),
            self.http.limits.contended_grace_ns,
        );
        let cache = ValueCache::new(self.cache_bytes, self.executor.stamps(), counters);
        Ok(EntityService::new(
            Arc::clone(&self.store),
            link,
            cache,
            ranges,
            (monitor, Arc::clone(&self.metrics)),
            (self.access.for_shard(), self.allowed_hosts.clone()),
            (self.executor.part_sets(), self.value_bytes_max),
        ))
    }
}

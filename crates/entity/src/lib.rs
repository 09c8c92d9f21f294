//! The durable key-value server: HTTP in front, RocksDB behind, group commit between.
//!
//! To begin: [`serve`] an [`EntityConfig`]; `examples/serve.rs` does no more. [`store::memory`] keeps nothing,
//! for tests of what asks it.
//!
//! A write is acknowledged when it is durable. The path of a request, which is also the order of
//! the modules:
//!
//! ```text
//! http::server -> handler -> api -> key -> value_cache   (most reads: the response leaves at once)
//!                    |        (record, condition: what stands in front of a value, when it ends, and how
//!                    |         many copies have to answer)
//!                    |               `-> store           (memory answers: so it does)
//!                    |
//!                    +-> executor -> work_queue -> commit -> store    (writer thread: one sync a batch,
//!                    |                               `-> stamps       which tells caches what is old)
//!                    |                work_queue --------> store::get (read threads: disk reads)
//!                    +<- downloads: what a read found, written as its client reads
//!                    +-> range -> scanner -> store::snapshot   (scan thread: a turn of records)
//!                    +<- io::Mailbox <- results, in order, one wake a batch
//!                    +<- monitor: how the engine is doing, and whether the disk has room
//! ```
//!
//! If one machine is too small, a cluster of Apache Cassandra or ScyllaDB replaces the writer, read and scan threads
//! (`cluster`, with the feature `distributed`; `cluster_url` names it).
//!
//! Invariants: a shard never waits for a disk; nothing is acknowledged that a restart could lose
//! (under [`SyncPolicy::Always`]); after one failed commit no write succeeds until a restart; a
//! cached value is served only while nothing newer exists (`stamps` has the argument).

pub mod handler;
pub mod api;
pub mod access;
pub mod key;
pub mod record;
pub mod parts;
mod uploads;
mod downloads;
pub mod condition;
pub mod value_cache;
mod strictness;
pub mod ndjson;
pub mod stamps;
pub mod executor;
pub mod work_queue;
mod reader;
pub mod range;
pub mod scanner;
pub mod commit;
pub mod monitor;
pub mod store;
pub mod cluster_url;
#[cfg(feature = "distributed")]
pub mod cluster;
pub mod data_dir;
pub mod abort_note;
pub mod admin;
pub mod export;
pub mod import;
pub mod metrics;
pub mod budget;
pub mod config;
pub mod server;

pub use config::{EntityConfig, SyncPolicy, SyncPolicyError};
pub use data_dir::DataDirError;
pub use key::{ID_BYTES_MAX, KeyError};
pub use server::{EntityError, open, serve, serve_with};
#[cfg(feature = "distributed")]
pub use server::{serve_cluster, serve_cluster_with};
pub use store::{Engine, EngineInfo, Linkage, Store};

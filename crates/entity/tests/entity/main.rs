//! The entity server as a client, an operator and a crash see it. One program, since each one links RocksDB: the first
//! lines of each file describe it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admin;
mod api;
mod back_pressure;
mod cached_read;
#[cfg(feature = "distributed")]
mod cluster;
mod coherence;
mod commit;
mod crash;
mod data_dir;
mod failing_disk;
mod full_disk;
mod kill;
mod large;
mod lost_files;
mod memory;
mod ndjson;
mod no_permission;
mod openapi;
mod parts;
mod range;
mod read_only;
mod records;
mod sequences;
mod short_of;
mod shortage;
mod support;
mod transfer;
mod value_cache;

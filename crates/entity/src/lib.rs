//! The durable key-value server: group commit on RocksDB

//! Tells the crate which RocksDB it is linked with.
//!
//! `ROCKSDB_LIB_DIR` makes `librocksdb-sys` link the distribution's library instead of compiling
//! the bundled one. The distribution's may be years older: `cfg(system_rocksdb)` supplies what it
//! lacks (`store/system_stub.rs`) and records the linkage in every result (`EngineInfo`).

fn main() {
    println!("cargo::rerun-if-env-changed=ROCKSDB_LIB_DIR");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("ROCKSDB_LIB_DIR").is_some() {
        println!("cargo::rustc-cfg=system_rocksdb");
    }
}

//! Tells the crate which RocksDB it is linked with.
//!
//! `ROCKSDB_LIB_DIR` makes `librocksdb-sys` link the distribution's library instead of compiling
//! the bundled one. The distribution's may be years older: `cfg(system_rocksdb)` supplies what it
//! lacks (`store/system_stub.rs`) and records the linkage in every result (`EngineInfo`). The bundled one may be
//! compiled without its counters per thread, as `make build ENGINE=bundled` does.

fn main() {
    println!("cargo::rerun-if-env-changed=ROCKSDB_LIB_DIR");
    println!("cargo::rerun-if-env-changed=CXXFLAGS");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("ROCKSDB_LIB_DIR").is_some() {
        println!("cargo::rustc-cfg=system_rocksdb");
    } else if std::env::var("CXXFLAGS").is_ok_and(|flags| flags.contains("-DNPERF_CONTEXT")) {
        println!("cargo::rustc-cfg=rocksdb_without_counters");
    }
}

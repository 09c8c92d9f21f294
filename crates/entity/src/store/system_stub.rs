//! What Debian's RocksDB 7.8 lacks and the Rust binding names.
//!
//! Place: linked in only under `cfg(system_rocksdb)`. The binding's options hold an optional
//! write buffer manager, whose drop names a function that 7.8 does not have. We never create one
//! in that mode (`rocksdb.rs` caps memtables by `set_db_write_buffer_size` instead), so the
//! function exists for the linker and is never called.
#![allow(unsafe_code)]

use std::ffi::c_void;

/// Stands in for the missing destructor; aborts should the impossible call come.
// SAFETY: the name is the one the binding links against, and the linked 7.8 library defines no
// function of that name, so there is nothing to clash with.
#[unsafe(no_mangle)]
extern "C" fn rocksdb_write_buffer_manager_destroy(_manager: *mut c_void) {
    std::process::abort();
}

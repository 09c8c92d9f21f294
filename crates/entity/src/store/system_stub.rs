//! Functions that Debian's RocksDB 7.8 lacks and the Rust binding references.
//!
//! Place: linked in only under `cfg(system_rocksdb)`. The binding's options hold an optional
//! write buffer manager, whose drop names a function that 7.8 does not have. We never create one
//! in that mode (`rocksdb.rs` caps memtables by `set_db_write_buffer_size` instead), so the
//! function exists for the linker and is never called. The other one exists in 7.8 with one argument less.
#![allow(unsafe_code)]

use std::ffi::c_void;

/// Replaces the missing destructor; aborts if it is ever called.
// SAFETY: the name is the one the binding links against, and the linked 7.8 library defines no
// function of that name, so there is nothing to clash with.
#[unsafe(no_mangle)]
extern "C" fn rocksdb_write_buffer_manager_destroy(_manager: *mut c_void) {
    std::process::abort();
}

// SAFETY: `rocksdb/c.h` of 7.8 declares it so; the library is linked.
unsafe extern "C" {
    fn rocksdb_options_add_compact_on_deletion_collector_factory(
        options: *mut c_void,
        window_size: usize,
        num_dels_trigger: usize,
    );
}

/// The binding's name for it, which has the share of a whole table besides: `rocksdb.rs` asks for none.
///
/// # Safety
/// `options` are those of the binding, and no other thread uses them meanwhile.
// SAFETY: as above, 7.8 defines no function of that name.
#[unsafe(no_mangle)]
unsafe extern "C" fn rocksdb_options_add_compact_on_deletion_collector_factory_del_ratio(
    options: *mut c_void,
    window_size: usize,
    num_dels_trigger: usize,
    _deletion_ratio: f64,
) {
    // SAFETY: the caller's promise; the function takes the same first arguments.
    unsafe {
        rocksdb_options_add_compact_on_deletion_collector_factory(
            options,
            window_size,
            num_dels_trigger,
        );
    }
}

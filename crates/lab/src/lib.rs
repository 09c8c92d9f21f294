//! The comparison: servers as processes under every allocator.

pub mod allocator;
pub mod elf;
pub mod launch;
pub mod process_tree;
pub mod subject;
pub mod probe;
pub mod port;
pub mod presence;
pub mod trace;

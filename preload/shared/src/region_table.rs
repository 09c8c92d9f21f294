//! Which parts of a process's memory were mapped by which code, as the heap trace notes it inside the process: one table
//! in the trace's own data, under the name [`SYMBOL`], which a fork copies as it copies what the table tells of.
//!
//! The lab finds it by its symbol and reads it from outside. `sequence` is odd while the table is written.

/// The symbol of the table.
pub const SYMBOL: &str = "millpond_trace_regions";
/// First word of the table; the last letter grows with the layout.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"mpRegio1");
/// Regions that can be noted at a time; what finds no room is counted.
pub const REGIONS: usize = 8192;

/// The whole table. Native-endian 64-bit words.
#[repr(C)]
pub struct RegionTable {
    /// [`MAGIC`].
    pub magic: u64,
    /// Odd while somebody writes.
    pub sequence: u64,
    /// Regions that are noted.
    pub count: u64,
    /// Changes that could not be noted: for lack of room, or since another thread wrote for too long.
    pub missed: u64,
    /// In order of address; they do not overlap.
    pub regions: [Region; REGIONS],
}

/// Memory without a file that a call of `mmap` made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct Region {
    /// Its first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// An address in the code that called.
    pub caller: u64,
}

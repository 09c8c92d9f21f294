//! The agreement between an observer that is preloaded in front of malloc and the program that reads its file: which
//! allocations are taken as samples and what a sample stands for, and the layouts of their files.
//!
//! `preload/trace` and `preload/sample` count and sample by these rules inside a third-party
//! program; `lab::trace` and `lab::profile` read by the same ones.
#![cfg_attr(not(test), no_std)]

pub mod sampling;
pub mod churn_file;
pub mod heap_file;

pub mod region_table {
    //! Which parts of a process's memory were mapped by which code, as the heap trace notes it inside the process: one
    //! table in the trace's own data, under the name [`SYMBOL`], which a fork copies together with the memory it
    //! describes.
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
        /// Odd while a thread writes.
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
}

pub mod sample_file {
    //! The file of sampled heap calls: offsets of its words, and the layout of a record.
    //!
    //! In native-endian u64 words; the program that reads makes the file and writes the first line, the
    //! observer the others:
    //!
    //! ```text
    //! 0..8    magic, words for records, mean distance of samples in bytes, active (0 or 1), seed
    //! 16..24  words used, samples dropped, programs attached, samples without an unwinder
    //! 32..    records: [mark | finished | words of this record] [pid << 32 | first pid] [bytes | cut] stack
    //! ```
    //!
    //! A record's words are reserved by one addition; its first word is written first without the
    //! finished bit and last with it, so that a target that is killed in between leaves a gap of known
    //! length, or zeros, and nothing that could be taken for a sample.

    /// The first word.
    pub const MAGIC: u64 = u64::from_ne_bytes(*b"mpSampl1");
    /// Bytes of a word.
    pub const WORD_BYTES: usize = 8;

    /// Where the number of words for records stands.
    pub const CAPACITY: usize = 1;
    /// Where the mean distance of two samples stands, in bytes.
    pub const MEAN_BYTES: usize = 2;
    /// Offset of the flag whether samples are requested now.
    pub const ACTIVE: usize = 3;
    /// Where the seed stands.
    pub const SEED: usize = 4;
    /// Where the words that are taken are counted, also those that there was no room for.
    pub const USED: usize = 16;
    /// Where samples without room are counted.
    pub const DROPPED: usize = 17;
    /// Where programs that attached are counted.
    pub const PROGRAMS: usize = 18;
    /// Where samples without a stack are counted.
    pub const BARE: usize = 19;
    /// Where records begin.
    pub const RECORDS: usize = 32;

    /// In the upper half of every record's first word.
    pub const RECORD_MARK: u64 = 0x6d70_5265 << 32;
    /// In the first word of a record that is whole; the bits below are its length in words.
    pub const RECORD_FINISHED: u64 = 1 << 31;
    /// Words of a record before its stack.
    pub const RECORD_HEAD_WORDS: usize = 3;
    /// In the word of the size: the stack's outermost frames are missing.
    pub const SIZE_CUT: u64 = 1 << 63;
}

//! A measure: one number of one run, with what is good, in which unit, and what counts as equal.
//!
//! All properties of a number that reports and verdicts need are defined here once.

use std::fmt;
use std::str::FromStr;

use serde::de::Deserializer;
use serde::{Deserialize, Serialize, Serializer, de};
use thiserror::Error;

use crate::statistics::{Direction, Estimate};

use super::{ComparisonRecord, CustomQuantity, FORMAT_VERSION, MarginClass};

/// The kind of a phase's requests.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Writes to the entity server.
    Put,
    /// Reads from the entity server.
    Get,
    /// Whatever the user's URL does.
    Request,
}

impl Operation {
    /// All, in the order in which reports show them.
    pub const ALL: [Self; 3] = [Self::Put, Self::Get, Self::Request];

    /// Whether it is known to change what the server stores.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Put)
    }

    /// The name in JSON keys.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Request => "request",
        }
    }

    /// The name in tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Put => "PUT",
            Self::Get => "GET",
            Self::Request => "request",
        }
    }
}

/// The unit a value is printed in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Per second.
    PerSecond,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// A plain number.
    Count,
    /// So many times another number.
    Ratio,
    /// The user's own.
    Custom(&'static str),
}

impl Unit {
    /// The value with its unit, three digits.
    #[must_use]
    pub fn format(self, value: f64) -> String {
        use crate::units::{
            format_bytes, format_count, format_duration_ns, format_rate, format_three_digits,
        };
        match self {
            Self::PerSecond => format_rate(value),
            Self::Nanoseconds => format_duration_ns(value),
            Self::Bytes => format_bytes(value),
            Self::Count => format_count(value),
            Self::Ratio => format!("{}x", format_three_digits(value)),
            Self::Custom(unit) => format!("{} {unit}", format_count(value)),
        }
    }
}

macro_rules! quantities {
    ($($(#[$doc:meta])* $name:ident = $key:literal, $label:literal, $unit:ident, $direction:ident,
        $margin:ident, wall $wall:literal;)+) => {
        /// The measured quantity, apart from which operation it belongs to.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum Quantity {
            $($(#[$doc])* $name,)+
            /// The output of the user's own load program.
            Custom(CustomQuantity),
        }

        impl Quantity {
            /// All of ours, in the order in which reports show them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The name in JSON keys, unit last.
            #[must_use]
            pub const fn key(self) -> &'static str { match self { $(Self::$name => $key,)+ Self::Custom(custom) => custom.key() } }

            /// The name in tables.
            #[must_use]
            pub const fn label(self) -> &'static str { match self { $(Self::$name => $label,)+ Self::Custom(custom) => custom.label() } }

            /// The unit of the value.
            #[must_use]
            pub const fn unit(self) -> Unit {
                match self {
                    $(Self::$name => Unit::$unit,)+
                    Self::Custom(custom) => Unit::Custom(custom.unit()),
                }
            }

            /// Whether more is better.
            #[must_use]
            pub const fn direction(self) -> Direction {
                match self {
                    $(Self::$name => Direction::$direction,)+
                    Self::Custom(custom) => custom.direction(),
                }
            }

            /// Which margin two candidates have to differ by to count as different.
            #[must_use]
            pub const fn margin_class(self) -> MarginClass {
                match self {
                    $(Self::$name => MarginClass::$margin,)+
                    Self::Custom(_) => MarginClass::Usual,
                }
            }

            /// Whether a busy neighbour changes it: such measures need the noise gate's consent.
            #[must_use]
            pub const fn depends_on_wall_clock(self) -> bool {
                match self { $(Self::$name => $wall,)+ Self::Custom(_) => true }
            }
        }
    };
}

quantities! {
    /// Requests completed per second in the closed loop.
    Throughput = "throughput_per_s", "throughput", PerSecond, HigherIsBetter, Usual, wall true;
    /// Median time from the intended start, at the constant rate.
    ResponseP50 = "response_p50_ns", "response p50", Nanoseconds, LowerIsBetter, Usual, wall true;
    /// 99th percentile of the time from the intended start, at the constant rate.
    ResponseP99 = "response_p99_ns", "response p99", Nanoseconds, LowerIsBetter, P99, wall true;
    /// Median time from the actual send.
    ServiceP50 = "service_p50_ns", "service p50", Nanoseconds, LowerIsBetter, Usual, wall true;
    /// 99th percentile of the time from the actual send.
    ServiceP99 = "service_p99_ns", "service p99", Nanoseconds, LowerIsBetter, P99, wall true;
    /// The program's private memory after the fixed amount of work, connections open: anonymous and swapped pages,
    /// shared memory, huge pages of the pool; each shared page counted once, no mapped files.
    MemoryAfterWork = "memory_after_work_bytes", "memory", Bytes, LowerIsBetter, Usual, wall false;
    /// The same some idle seconds after the work.
    MemoryAfterIdle = "memory_after_idle_bytes", "memory after idle", Bytes, LowerIsBetter, Usual, wall false;
    /// The most of it in any sample or reading of the run.
    PeakMemory = "peak_memory_bytes", "peak memory", Bytes, LowerIsBetter, Usual, wall false;
    /// Its mean over the time of the work.
    MeanMemory = "mean_memory_bytes", "mean memory", Bytes, LowerIsBetter, Usual, wall false;
    /// With phases: the least of it between the end of a burst and the end of its cycle; the median over cycles.
    FloorAfterBurst = "floor_after_burst_bytes", "after the burst", Bytes, LowerIsBetter, Usual, wall false;
    /// How long after the end of the burst that was reached, if anything came back.
    TimeToFloor = "time_to_floor_ns", "time to fall", Nanoseconds, LowerIsBetter, Usual, wall true;
    /// Pages of mapped files after the work, at least: the shares of all processes, or what one of them maps. The kernel
    /// takes them back when it needs them, and no allocator changes them.
    FileMemory = "file_backed_after_work_bytes", "file-backed", Bytes, LowerIsBetter, Usual, wall false;
    /// Resident memory after the fixed amount of work.
    RssAfterWork = "rss_after_work_bytes", "RSS after work", Bytes, LowerIsBetter, Usual, wall false;
    /// The same of a process that may use all CPUs, where the server is otherwise bound to some of them.
    UnpinnedMemory = "unpinned_memory_after_work_bytes", "memory, not pinned", Bytes, LowerIsBetter, Usual, wall false;
    /// Highest resident memory of the process.
    PeakRss = "peak_rss_bytes", "peak RSS", Bytes, LowerIsBetter, Usual, wall false;
    /// Most memory of the server's control group at any moment, page cache and kernel memory included.
    CgroupPeak = "cgroup_peak_bytes", "cgroup peak", Bytes, LowerIsBetter, Usual, wall false;
    /// Resident memory some idle seconds after the work.
    RssAfterIdle = "rss_after_idle_bytes", "RSS after idle", Bytes, LowerIsBetter, Usual, wall false;
    /// Resident memory with shared pages divided by their users, after the work.
    PssAfterWork = "pss_after_work_bytes", "PSS after work", Bytes, LowerIsBetter, Usual, wall false;
    /// Pages that belong to the server's processes alone, after the work.
    UssAfterWork = "uss_after_work_bytes", "USS after work", Bytes, LowerIsBetter, Usual, wall false;
    /// Resident memory with shared pages divided by their users, some idle seconds after the work.
    PssAfterIdle = "pss_after_idle_bytes", "PSS after idle", Bytes, LowerIsBetter, Usual, wall false;
    /// Memory in transparent huge pages after the work. More of it means fewer TLB misses; what it
    /// costs stands in RSS.
    HugePages = "huge_pages_after_work_bytes", "huge pages", Bytes, HigherIsBetter, Usual,
        wall false;
    /// Memory given back with `MADV_FREE` that the kernel has not taken yet, after the work: it is in the program's
    /// memory until another program needs it.
    LazyFree = "lazy_free_after_work_bytes", "lazily freed", Bytes, LowerIsBetter, Usual, wall false;
    /// The control group's memory without the pages of files that were not used lately, after the work: the working set
    /// by which Kubernetes evicts, and which `kubectl top` shows.
    WorkingSet = "working_set_after_work_bytes", "working set", Bytes, LowerIsBetter, Usual, wall false;
    /// Memory that the kernel holds for the control group after the work: page tables, stacks, sockets, its own objects.
    KernelMemory = "kernel_memory_after_work_bytes", "kernel memory", Bytes, LowerIsBetter, Usual, wall false;
    /// Mappings after the work, of the process that has most; the kernel allows each process `vm.max_map_count` of them.
    Mappings = "mappings_after_work_count", "mappings", Count, LowerIsBetter, Usual, wall false;
    /// Bytes that the program has asked for and not given back, after the work: an estimate from
    /// sampled blocks.
    LiveBytes = "live_after_work_bytes", "live after work", Bytes, LowerIsBetter, Usual, wall false;
    /// The most of them at any moment.
    PeakLiveBytes = "peak_live_bytes", "peak live", Bytes, LowerIsBetter, Usual, wall false;
    /// Memory without a file behind it for each live byte, after the work.
    Fragmentation = "fragmentation_ratio", "fragmentation", Ratio, LowerIsBetter, Usual, wall false;
    /// User-mode instructions.
    Instructions = "instructions_per_request", "instructions/req", Count, LowerIsBetter, Counts,
        wall false;
    /// User-mode instructions as an emulator counts them that executes the server one by one.
    EmulatedInstructions = "emulated_instructions_per_request", "emulated instr/req", Count,
        LowerIsBetter, Counts, wall false;
    /// Kernel-mode instructions.
    KernelInstructions = "kernel_instructions_per_request", "kernel instr/req", Count,
        LowerIsBetter, Counts, wall false;
    /// User-mode cycles.
    Cycles = "cycles_per_request", "cycles/req", Count, LowerIsBetter, Usual, wall false;
    /// Kernel-mode cycles.
    KernelCycles = "kernel_cycles_per_request", "kernel cycles/req", Count, LowerIsBetter, Usual,
        wall false;
    /// CPU time, user and system, of the server. A neighbour makes it larger through shared caches,
    /// as with cycles, but waiting for a CPU does not count.
    CpuTime = "cpu_per_request_ns", "CPU/req", Nanoseconds, LowerIsBetter, Usual, wall false;
    /// CPU time in user mode, in the kernel's steps of 10 ms where there is no control group.
    UserCpu = "user_cpu_per_request_ns", "user CPU/req", Nanoseconds, LowerIsBetter, Usual,
        wall false;
    /// CPU time in the kernel, as above.
    SystemCpu = "system_cpu_per_request_ns", "system CPU/req", Nanoseconds, LowerIsBetter, Usual,
        wall false;
    /// Branches in user mode that went the other way than foretold. Other work on a core trains its
    /// predictor and fills its caches, so these four need a quiet machine.
    BranchMisses = "branch_misses_per_request", "branch misses/req", Count, LowerIsBetter, Usual,
        wall true;
    /// Loads in user mode that missed the first level data cache.
    L1dMisses = "l1d_misses_per_request", "L1d misses/req", Count, LowerIsBetter, Usual, wall true;
    /// Accesses in user mode that missed every cache, where L1d misses cannot be counted.
    CacheMisses = "cache_misses_per_request", "cache misses/req", Count, LowerIsBetter, Usual,
        wall true;
    /// Loads in user mode whose page missed the first level data TLB.
    DtlbMisses = "dtlb_misses_per_request", "dTLB misses/req", Count, LowerIsBetter, Usual,
        wall true;
    /// Page faults, minor and major.
    PageFaults = "page_faults_per_request", "page faults/req", Count, LowerIsBetter, Usual,
        wall false;
    /// Page faults that needed no disk.
    MinorFaults = "minor_faults_per_request", "minor faults/req", Count, LowerIsBetter, Usual,
        wall false;
    /// Page faults that had to wait for a disk.
    MajorFaults = "major_faults_per_request", "major faults/req", Count, LowerIsBetter, Usual,
        wall false;
    /// Calls of `madvise`, by which allocators give memory back.
    MadviseCalls = "madvise_calls_per_request", "madvise calls/req", Count, LowerIsBetter, Usual,
        wall false;
    /// Context switches, voluntary and involuntary.
    ContextSwitches = "context_switches_per_request", "switches/req", Count, LowerIsBetter, Usual,
        wall true;
    /// Moves of a thread to another CPU.
    Migrations = "migrations_per_request", "migrations/req", Count, LowerIsBetter, Usual, wall true;
    /// With `--phases`: CPU time per request of the steady phases behind the first churn, against those before it.
    AgedCpu = "aged_cpu_ratio", "CPU/req, aged", Ratio, LowerIsBetter, Usual, wall false;
    /// Calls of malloc, calloc, realloc, aligned_alloc and their kin.
    HeapCalls = "heap_calls_per_request", "heap calls/req", Count, LowerIsBetter, Counts, wall false;
    /// Bytes asked of the heap.
    HeapBytes = "heap_bytes_per_request", "heap bytes/req", Bytes, LowerIsBetter, Counts, wall false;
}

impl Quantity {
    /// Whether more or less of it is better or worse for readers of the report. Unjudged measures are shown, and
    /// compared with nothing.
    #[must_use]
    pub const fn is_judged(self) -> bool {
        !matches!(
            self,
            Self::FileMemory
                | Self::HugePages
                | Self::LazyFree
                | Self::WorkingSet
                | Self::KernelMemory
                | Self::Mappings
        )
    }
}

/// A quantity, of one operation or of the whole run (memory).
///
/// In JSON it is a key: `put.throughput_per_s`, `memory_after_work_bytes`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Measure {
    /// The quantity.
    pub quantity: Quantity,
    /// Of which requests; `None` for the run as a whole.
    pub operation: Option<Operation>,
}

impl Measure {
    /// A measure of one operation's requests.
    #[must_use]
    pub const fn of(operation: Operation, quantity: Quantity) -> Self {
        Self {
            quantity,
            operation: Some(operation),
        }
    }

    /// A measure of the run as a whole.
    #[must_use]
    pub const fn whole(quantity: Quantity) -> Self {
        Self {
            quantity,
            operation: None,
        }
    }

    /// The name in tables: `PUT throughput`, `peak RSS`.
    #[must_use]
    pub fn label(self) -> String {
        match self.operation {
            // There is only one kind of request then; naming it says nothing.
            None | Some(Operation::Request) => self.quantity.label().to_owned(),
            Some(operation) => format!("{} {}", operation.label(), self.quantity.label()),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = self.operation {
            write!(f, "{}.", operation.key())?;
        }
        f.write_str(self.quantity.key())
    }
}

/// A key that names no measure of this version.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
#[error("\"{key}\" is not a measure this version knows")]
pub struct MeasureParseError {
    /// The key as found.
    pub key: String,
}

impl FromStr for Measure {
    type Err = MeasureParseError;

    fn from_str(key: &str) -> Result<Self, Self::Err> {
        let unknown = || MeasureParseError {
            key: key.to_owned(),
        };
        let (operation, quantity_key) = match key.split_once('.') {
            None => (None, key),
            Some((name, rest)) => {
                let operation = Operation::ALL.into_iter().find(|known| known.key() == name);
                (Some(operation.ok_or_else(unknown)?), rest)
            }
        };
        let ours = Quantity::ALL
            .iter()
            .copied()
            .find(|known| known.key() == quantity_key);
        let quantity =
            ours.or_else(|| CustomQuantity::from_key(quantity_key).map(Quantity::Custom));
        Ok(Self {
            quantity: quantity.ok_or_else(unknown)?,
            operation,
        })
    }
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Measure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

// A record that was written earlier, read back: from `results.json`, or out of the page that holds it.

/// Where the record stands in a page.
const PAGE_BEGIN: &str = "<script type=\"application/json\" id=\"results\">";
const PAGE_END: &str = "</script>";

/// Why a text is not a record that this version can show.
#[derive(Debug, Error)]
pub enum RecordError {
    /// Not JSON, or not of these types.
    #[error("it is no record of `millpond compare`: {0}")]
    Json(#[from] serde_json::Error),
    /// A page without a record.
    #[error("this page holds no record of `millpond compare`")]
    NoRecordInPage,
    /// JSON of something else.
    #[error("it is no record of `millpond compare`: it has no candidates")]
    NoCandidates,
    /// From the future: fields may mean something else there.
    #[error(
        "its layout is version {found}, and this program knows those up to {known}: use the millpond \
         that wrote it ({version}), or a newer one"
    )]
    Newer {
        /// Of the record.
        found: u32,
        /// Of this program.
        known: u32,
        /// The version of the writer.
        version: String,
    },
}

impl ComparisonRecord {
    /// Reads `results.json`, or a `report.html` of [`crate::report::html::render`].
    ///
    /// # Errors
    /// If the text is neither.
    pub fn from_text(text: &str) -> Result<Self, RecordError> {
        let json = if text.trim_start().starts_with('<') {
            let (_, rest) = text
                .split_once(PAGE_BEGIN)
                .ok_or(RecordError::NoRecordInPage)?;
            let (json, _) = rest
                .split_once(PAGE_END)
                .ok_or(RecordError::NoRecordInPage)?;
            json
        } else {
            text
        };
        let record: Self = serde_json::from_str(json)?;
        if record.format_version > FORMAT_VERSION {
            return Err(RecordError::Newer {
                found: record.format_version,
                known: FORMAT_VERSION,
                version: record.version,
            });
        }
        if record.format_version == 0 || record.candidates.is_empty() {
            return Err(RecordError::NoCandidates);
        }
        Ok(record)
    }
}

// The slices of one candidate in one round, as columns: what verdicts on throughput and CPU time rest on, and
// how they compare with uninterrupted blocks.

/// The cycle that a block stands for beside slices.
const BLOCK_CYCLE: u32 = u32::MAX;

/// The CPUs of server and generator were moved between two readings of their distance whose logarithms differ by more
/// than this.
pub const CORE_DISTANCE_CHANGE_MIN: f64 = 0.4;

/// The closed loop's slices of one operation, in order of cycles; all columns are equally long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SliceColumns {
    /// The cycle of each, counted from 0. Slices of one cycle are paired.
    pub cycle: Vec<u32>,
    /// Right responses in its counted part.
    pub requests: Vec<u64>,
    /// The same per second.
    pub per_s: Vec<f64>,
    /// The server's CPU time per request; 0 where it was read too late.
    pub cpu_ns: Vec<f64>,
    /// The time of a system call on the server's CPUs around it; 0 where that was not measured.
    pub server_call_ns: Vec<f64>,
    /// The same on the generator's.
    pub generator_call_ns: Vec<f64>,
    /// The server's minor page faults per request; 0 where they were read too late.
    pub minor_faults: Vec<f64>,
    /// Its calls of `madvise` per request; empty if they were not counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub madvise_calls: Vec<f64>,
    /// The time of a cache line from the server's CPU to the generator's and back around it; 0 where that was not
    /// measured.
    pub core_distance_ns: Vec<f64>,
}

impl SliceColumns {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cycle.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cycle.is_empty()
    }

    /// These and those of a block, which make a cycle of their own.
    #[must_use]
    pub fn followed_by(&self, block: &Self) -> Self {
        let mut all = self.clone();
        all.cycle.extend(block.cycle.iter().map(|_| BLOCK_CYCLE));
        all.requests.extend(&block.requests);
        all.per_s.extend(&block.per_s);
        all.cpu_ns.extend(&block.cpu_ns);
        all.server_call_ns.extend(&block.server_call_ns);
        all.generator_call_ns.extend(&block.generator_call_ns);
        all.minor_faults.extend(&block.minor_faults);
        if all.madvise_calls.is_empty() || block.madvise_calls.is_empty() {
            all.madvise_calls.clear();
        } else {
            all.madvise_calls.extend(&block.madvise_calls);
        }
        all.core_distance_ns.extend(&block.core_distance_ns);
        all
    }

    /// True if the columns of a foreign record have one length.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let lengths = [
            self.requests.len(),
            self.per_s.len(),
            self.cpu_ns.len(),
            self.server_call_ns.len(),
            self.generator_call_ns.len(),
            self.minor_faults.len(),
            self.core_distance_ns.len(),
        ];
        let are_calls_whole = [0, self.len()].contains(&self.madvise_calls.len());
        are_calls_whole && lengths.iter().all(|&length| length == self.len())
    }
}

/// The slices at the constant rate of one operation, in order of cycles; all columns are equally long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PacedColumns {
    /// The cycle of each, counted from 0. One in which the CPUs were moved from one candidate to the next is missing.
    pub cycle: Vec<u32>,
    /// Right responses in its counted part.
    pub requests: Vec<u64>,
    /// Their median response time.
    pub p50_ns: Vec<u64>,
    /// The 99th percentile of their response times, of however few.
    pub p99_ns: Vec<u64>,
    /// Their median service time.
    pub service_p50_ns: Vec<u64>,
    /// The 99th percentile of their service times, of however few.
    pub service_p99_ns: Vec<u64>,
    /// The server's CPU time per request; 0 where it was read too late.
    pub cpu_ns: Vec<f64>,
    /// The time of a cache line from the server's CPU to the generator's and back around it; 0 where that was not
    /// measured.
    pub core_distance_ns: Vec<f64>,
    /// The part of the responses that the times leave out, because they met a stall of the generator's thread.
    pub left_out_share: Vec<f64>,
}

impl PacedColumns {
    /// True if the columns of a foreign record have one length.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let lengths = [
            self.requests.len(),
            self.p50_ns.len(),
            self.p99_ns.len(),
            self.service_p50_ns.len(),
            self.service_p99_ns.len(),
            self.cpu_ns.len(),
            self.core_distance_ns.len(),
        ];
        // Older records have none.
        let are_shares_whole = [0, self.cycle.len()].contains(&self.left_out_share.len());
        are_shares_whole && lengths.iter().all(|&length| length == self.cycle.len())
    }
}

/// Slices of one operation of one candidate against uninterrupted blocks of the same processes.
///
/// The others stand still while a candidate is measured, and what it or its allocator does every second of the
/// wall clock comes more often per request in slices than in blocks. Where the two disagree, blocks are right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockCheck {
    /// Of which requests.
    pub operation: Operation,
    /// Rounds that have both.
    pub rounds: u32,
    /// The candidate's throughput against the baseline's: that of blocks divided by that of slices.
    pub throughput: Option<Estimate>,
    /// The same of CPU time per request.
    pub cpu_time: Option<Estimate>,
    /// The candidate's minor page faults per request in slices.
    pub minor_faults_in_slices: Option<f64>,
    /// The same in blocks.
    pub minor_faults_in_blocks: Option<f64>,
    /// The candidate's calls of `madvise` per request in slices; `None` if they were not counted.
    #[serde(default)]
    pub madvise_calls_in_slices: Option<f64>,
    /// The same in blocks.
    #[serde(default)]
    pub madvise_calls_in_blocks: Option<f64>,
    /// True if they differ: then throughput and CPU time per request of this candidate come from blocks.
    pub is_used: bool,
}

#[cfg(test)]
#[path = "tests/measure.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/reading.rs"]
mod reading_tests;

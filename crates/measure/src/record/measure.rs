//! A measure: one number of one run, with what is good, in which unit, and what counts as equal.
//!
//! Everything a report or a verdict has to know about a number is said here once.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

use super::{CustomQuantity, MarginClass};
use crate::statistics::Direction;

/// What the requests of a phase do.
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
        /// What was measured, apart from which operation it belongs to.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum Quantity {
            $($(#[$doc])* $name,)+
            /// What the user's own load program printed.
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
    /// What the program keeps in memory by itself after the fixed amount of work, connections open: anonymous and
    /// swapped pages, shared memory, huge pages of the pool; each shared page counted once, no mapped files.
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
    /// Branches in user mode that went the other way than foretold. Who else runs on a core trains
    /// its predictor and fills its caches, so these four need a quiet machine.
    BranchMisses = "branch_misses_per_request", "branch misses/req", Count, LowerIsBetter, Usual,
        wall true;
    /// Loads in user mode that the first level data cache did not answer.
    L1dMisses = "l1d_misses_per_request", "L1d misses/req", Count, LowerIsBetter, Usual, wall true;
    /// Accesses in user mode that no cache answered, where L1d misses cannot be counted.
    CacheMisses = "cache_misses_per_request", "cache misses/req", Count, LowerIsBetter, Usual,
        wall true;
    /// Loads in user mode whose page the first level data TLB did not know.
    DtlbMisses = "dtlb_misses_per_request", "dTLB misses/req", Count, LowerIsBetter, Usual,
        wall true;
    /// Page faults, minor and major.
    PageFaults = "page_faults_per_request", "page faults/req", Count, LowerIsBetter, Usual,
        wall false;
    /// Page faults answered without a disk.
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
    /// Whether more or less of it is better or worse for whoever reads the report. What is not judged is shown, and
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
    /// What.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every key reads back as the measure it came from, and no two share a key.
    #[test]
    fn keys_are_unique_and_read_back() {
        let mut seen = std::collections::BTreeSet::new();
        for &quantity in Quantity::ALL {
            for operation in Operation::ALL.map(Some).into_iter().chain([None]) {
                let measure = Measure {
                    quantity,
                    operation,
                };
                assert!(seen.insert(measure.to_string()), "{measure} twice");
                assert_eq!(measure.to_string().parse(), Ok(measure));
            }
        }
    }

    /// Goal: the contract of units in keys holds for every quantity.
    #[test]
    fn keys_end_in_their_unit() {
        for &quantity in Quantity::ALL {
            let key = quantity.key();
            match quantity.unit() {
                Unit::PerSecond => assert!(key.ends_with("_per_s"), "{key}"),
                Unit::Nanoseconds => assert!(key.ends_with("_ns"), "{key}"),
                Unit::Bytes => assert!(key.contains("_bytes"), "{key}"),
                Unit::Count => {
                    assert!(
                        key.ends_with("_per_request") || key.ends_with("_count"),
                        "{key}"
                    );
                }
                Unit::Ratio => assert!(key.ends_with("_ratio"), "{key}"),
                Unit::Custom(_) => unreachable!("{key} is ours"),
            }
        }
    }

    /// Goal: a quantity of the user's is a measure like ours, and reads back.
    #[test]
    fn custom_measures_read_back() {
        let custom = CustomQuantity::new("p95", "ms", Direction::LowerIsBetter).expect("words");
        let measure = Measure::of(Operation::Request, Quantity::Custom(custom));
        assert_eq!(measure.to_string(), "request.custom:p95:ms:lower");
        assert_eq!(measure.to_string().parse(), Ok(measure));
        assert_eq!(measure.quantity.unit().format(1.25), "1.25 ms");
    }

    #[test]
    fn unknown_keys_are_named() {
        let error = "put.speed".parse::<Measure>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"put.speed\" is not a measure this version knows"
        );
        assert!("walk.throughput_per_s".parse::<Measure>().is_err());
    }
}

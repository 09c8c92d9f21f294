//! How long a candidate works before its memory is read, and how long slices are.

use std::time::Duration;

use clap::Args;
use millpond_lab::{Lengths, MemoryWork};

use crate::flags::{parse_count, parse_duration_ns};

// No doc comment: clap would show it as what the command does.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Lengths")]
pub(crate) struct LengthFlags {
    /// Work of each candidate before its memory is read: as many requests as the slowest answers in TIME, per
    /// operation, without a pause. Growth of memory with work shows, and what purging gives back; the comparison
    /// takes rounds times candidates times TIME [default: 300ms and 1000 requests at least, more with hours of
    /// --time-budget]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, conflicts_with_all = ["work", "load_cmd"])]
    run_for: Option<u64>,
    /// The same as a number of requests, per operation
    #[arg(long, value_name = "N", value_parser = parse_count, conflicts_with = "load_cmd")]
    work: Option<u64>,
    /// What counts of a slice of the closed loop [default: 100ms, more for slow servers]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, conflicts_with = "load_cmd")]
    slice: Option<u64>,
    /// What precedes the counted part of each slice [default: 80ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, conflicts_with = "load_cmd")]
    settle: Option<u64>,
    /// What counts of the uninterrupted blocks with which slices have to agree [default: three slices]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, conflicts_with = "load_cmd")]
    block: Option<u64>,
}

impl LengthFlags {
    pub(super) fn lengths(self) -> Lengths {
        let time = |ns: Option<u64>| ns.map(Duration::from_nanos);
        Lengths {
            slice: time(self.slice),
            settle: time(self.settle),
            block: time(self.block),
            memory: time(self.run_for)
                .map(MemoryWork::For)
                .or(self.work.map(MemoryWork::Requests)),
        }
    }
}

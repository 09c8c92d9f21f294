//! What the user wants compared, and the defaults with their reasons.

use std::path::PathBuf;
use std::time::Duration;

use millpond_measure::record::PoolSetting;

use crate::subject::Launcher;
use crate::target::Target;

/// Ten rounds: the exact signed-rank interval of 10 pairs has 95 % coverage and, for effects as large
/// as allocators show, 80 % power at 2 %.
pub const ROUNDS_DEFAULT: u32 = 10;
/// Under five minutes in all, with half a minute left for the slowest start and the report.
pub const TIME_BUDGET_DEFAULT: Duration = Duration::from_secs(270);
/// Enough connections that group commit has something to group.
pub const CONNECTIONS_DEFAULT: usize = 64;
/// The size of one value: a small document.
pub const VALUE_BYTES_DEFAULT: usize = 1024;

/// One comparison.
#[derive(Clone, Debug)]
pub struct CompareConfig {
    /// The server.
    pub target: Target,
    /// Names for `--allocators`; `None` takes every allocator found.
    pub allocators: Option<Vec<String>>,
    /// Settings of our pools to compare; ignored for somebody else's server.
    pub pools: Vec<PoolSetting>,
    /// Rounds; `None` takes the default and gives some up if the time budget demands it.
    pub rounds: Option<u32>,
    /// Bound on the whole comparison, preflight included.
    pub time_budget: Duration,
    /// Connections of the generator.
    pub connections: usize,
    /// Requests per second of the latency phases; `None` takes 0.6 of what the slowest can do.
    pub rate_per_s: Option<f64>,
    /// Size of the values written to our server.
    pub value_bytes: usize,
    /// Where report, results, records and logs go.
    pub out: PathBuf,
    /// Seed of all random choices; `None` draws one, and the record says which.
    pub seed: Option<u64>,
    /// How long a target may take until it serves.
    pub ready_bound: Duration,
    /// The program that has the `launch` and `serve` subcommands.
    pub launcher: Launcher,
    /// Version for the record.
    pub version: String,
    /// Commit for the record, if known.
    pub commit: Option<String>,
    /// The command line that repeats this comparison.
    pub command: Vec<String>,
}

impl CompareConfig {
    /// The defaults for `target`, run by `launcher`.
    #[must_use]
    pub fn new(target: Target, launcher: Launcher) -> Self {
        Self {
            target,
            allocators: None,
            pools: vec![PoolSetting::On, PoolSetting::Off],
            rounds: None,
            time_budget: TIME_BUDGET_DEFAULT,
            connections: CONNECTIONS_DEFAULT,
            rate_per_s: None,
            value_bytes: VALUE_BYTES_DEFAULT,
            out: PathBuf::from("millpond-report"),
            seed: None,
            ready_bound: Duration::from_secs(20),
            launcher,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: None,
            command: Vec::new(),
        }
    }
}

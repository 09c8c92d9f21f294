//! Where a server's time and memory go, under load: flame graphs, and what taking them cost.
//!
//! `cli` calls [`profile`] for a server that is started here and [`profile_process`] for one that
//! runs already. Every round runs the same work once for each *arm* in a fresh process, in shuffled
//! order: without a profiler, under perf, and with the sampler of heap calls preloaded. So every
//! second of load gives samples, and the rounds' pairs say what the profilers cost.
//!
//! ```text
//! config            what the user wants, and how perf follows stacks
//! perf              CPU samples
//! sampler           heap calls, sampled by `preload/sample`, with their stacks; symbols: what their addresses are
//! instrumented_run  one run of the work under one of them: an arm
//! rounds            all arms, run; what the profilers took; a process that runs already; the graphs of a
//!                   comparison's report
//! outcome           figures, also for a terminal; files
//! ```
//!
//! The measurement of a comparison never runs under any of this.

mod instrumented_run;
mod config;
mod files;
mod outcome;
mod perf;
mod rounds;
mod sampler;
mod symbols;

pub use config::{
    DURATION_DEFAULT, ProfileConfig, ROUNDS_DEFAULT, SAMPLE_BYTES_DEFAULT, SAMPLES_PER_S_DEFAULT,
};
pub use files::Unwind;
pub use outcome::{AllocationFigures, CandidateProfile, CpuFigures, ProfileOutcome, ProfileRecord};
pub use rounds::profile;
pub(crate) use rounds::{FLAMES_DIRECTORY, ProfileRequest, after_rounds};
pub use sampler::{Cost, Spread};
pub use sampler::{ProcessConfig, profile_process};

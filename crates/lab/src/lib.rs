//! The comparison: servers as processes under every allocator.
//!
//! To begin: [`compare`](fn@compare) a [`CompareConfig`], and listen to its events. A comparison starts itself anew for
//! each server, so the program that calls it has to be a [`Launcher`]; `millpond compare` is one.
//!
//! Read in this order, which is the order of a comparison:
//!
//! ```text
//! config, target   what the user wants compared; options: how the user's server is run, inherited: with which
//!                  variables of the shell; variant: candidates that are no allocators; load_command, metric:
//!                  the user's own load program and what is read of it
//! allocator, elf   which allocators there are, and whether a file can be one; embedded: our objects
//! matrix           which candidates are compared, in which order
//! preflight, plan  every candidate once; then how much to do in the time there is; repeat: as much as
//!                  an earlier comparison did
//! output_directory where the report goes: a directory of ours or an empty one
//! started_candidate  one, started fresh and proved:
//!   launch           the child side: supervisor and second stage
//!   subject          the lab's side: ready (readiness, probe), alive, stopped, never left behind
//!   presence         the allocator is really the one that serves; suitability: where none can be
//! generation       all candidates alive, loaded in slices (slice) in turn, the others frozen (isolation); or rounds:
//!                  one at a time; until the answer is known. warm_up: what precedes the first phase of a run
//! usage            the figures at the edges of a phase; sampler, drive, trace help. What became of the
//!                  requests, and how many may fail, is in outcome
//! heap_pass        heap calls per request, apart from scored runs
//! instruction_pass instructions per request likewise, by valgrind where the processor's counters are hidden;
//!                  limit_pass: the smallest memory limit that is survived; memory_owners: what holds the memory
//! outcome          the record, its verdicts (by `millpond_measure`) and its files
//! profile          apart from all that: where a server's time and memory go, under load; for a
//!                  comparison, after its rounds
//! doctor           apart too: what this machine allows, and how to allow the rest
//! ```
//!
//! Invariants: a target is a process and never linked in, so each allocator stands alone; no target
//! outlives its run, whatever ends the lab; no run is counted under an allocator that was not
//! proved to be mapped where the requests are served; memory is compared at equal work.

pub mod config;
pub mod target;
pub mod options;
pub mod variant;
pub mod identity;
pub mod metric;
pub mod load_command;
pub mod allocator;
mod embedded;
pub mod elf;
pub mod placement;
pub mod matrix;
pub mod plan;
pub mod repeat;
mod preflight;
mod warm_up;
mod lock;
mod started_candidate;
mod endpoint;
mod output_directory;
pub mod launch;
pub mod subject;
pub mod probe;
pub mod memory_owners;
pub mod readiness;
mod cgroup;
mod churn;
pub mod port;
pub mod process_tree;
pub mod suitability;
pub mod presence;
mod rounds;
mod generation;
mod slice;
mod isolation;
mod usage;
mod drive;
mod listen_backlog;
mod sampler;
pub mod trace;
mod heap_pass;
mod instruction_pass;
mod limit_pass;
mod outcome;
mod compare;
pub mod profile;
pub mod doctor;
pub mod event;
pub mod error;

pub use compare::compare;
pub use config::CompareConfig;
pub use drive::ERRORS_ALLOWED_DEFAULT;
pub use error::{LabError, RunError};
pub use event::LabEvent;
pub use isolation::IdleCpus;
pub use limit_pass::LimitTrials;
pub use load_command::LoadCommand;
pub use lock::{LOCK_VARIABLE, MachineLock, lock_file};
pub use options::SubjectOptions;
pub use outcome::CompareOutcome;
pub use outcome::FailedRequests;
pub use output_directory::OutputDirectory;
pub use plan::{Lengths, MemoryWork};
pub use repeat::Earlier;
pub use subject::Launcher;
pub use suitability::Inherited;
pub use target::{ServerRequests, Target};
pub use variant::Variant;

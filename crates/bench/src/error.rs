//! Why a benchmark gives no result. Each is one sentence that says what to do.

use millpond_io::IoError;
use millpond_lab::allocator::AllocatorError;
use std::io;
use std::path::PathBuf;

/// The benchmark as a whole could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A wrong or missing allocator; nothing was started.
    #[error(transparent)]
    Allocator(#[from] AllocatorError),
    /// A kernel interface that is not to be had; nothing was started.
    #[error(transparent)]
    Io(#[from] IoError),
    /// No program could be run on any candidate.
    #[error("nothing was measured; the first failure: {0}")]
    NothingMeasured(String),
    /// A file or directory of the benchmark.
    #[error("cannot write {}: {error}", path.display())]
    Output {
        /// Which.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// perf is missing or does not work here.
    #[error("no flame graph: {0}")]
    Flamegraph(String),
    /// Ctrl-C before the first run had ended.
    #[error("interrupted before anything was measured")]
    InterruptedEarly,
}

/// One run of one program on one candidate failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RunError {
    /// The process did not start.
    #[error("{program} cannot be run: {reason}", program = program.display())]
    NotStarted {
        /// The file.
        program: PathBuf,
        /// The system's error.
        reason: String,
    },
    /// It ended without a result.
    #[error("it ended with {status}: {last_words}")]
    Failed {
        /// How.
        status: String,
        /// The last line of its stderr.
        last_words: String,
    },
    /// Its result cannot be read.
    #[error("its output \"{line}\" cannot be read: {reason}")]
    Unreadable {
        /// Its output.
        line: String,
        /// The reason.
        reason: String,
    },
    /// It hung.
    #[error("it was stopped after {limit_s} s: give it fewer --iterations")]
    TookTooLong {
        /// The bound.
        limit_s: u64,
    },
    /// It found something else in its memory than the first candidate did.
    #[error(
        "it found other contents in its memory than the others (checksum {found:x} instead of \
         {expected:x}): its memory is not to be trusted"
    )]
    WrongAnswer {
        /// The candidate's.
        found: u64,
        /// The first one's.
        expected: u64,
    },
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

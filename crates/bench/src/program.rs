//! The programs, each the same code on either kind of memory.
//!
//! `child` runs one of them in a process of its own; `run` decides which and how often. An
//! iteration of every program is about 140 allocations and as many frees, as in the first one, so
//! that one number of iterations suits them all (the slow ones do a quarter of it).

mod pair;
mod churn;
mod connections;

use crate::counters::Timed;
use crate::memory::{Malloc, Memory, Pools};
use allocator_api2::alloc::Global;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Allocations of one iteration, about; the program that was there first has exactly as many.
pub(crate) const ALLOCATIONS_PER_ITERATION: u64 = 140;

/// A program.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// The earlier program.
    Objects,
    /// The same with the vector in the same memory as the objects.
    ObjectsVector,
    /// One object at a time.
    Pair,
    /// 64 objects, then their end.
    PairBatch,
    /// One block of bytes at a time.
    PairBlock,
    /// Recorded sizes, random lifetimes.
    Mixed,
    /// The same in two threads at once.
    TwoThreads,
    /// Objects made here and freed there.
    ProducerConsumer,
    /// Blocks of recorded sizes made here and freed there.
    ProducerConsumerMixed,
    /// A day of load, then idleness; the oldest survive.
    Churn,
    /// The same; a random part survives.
    ChurnScattered,
    /// The memory of 10,000 connections.
    Connections,
}

impl Program {
    /// All, in the order in which they run and are reported.
    pub const ALL: [Self; 12] = [
        Self::Objects,
        Self::ObjectsVector,
        Self::Pair,
        Self::PairBatch,
        Self::PairBlock,
        Self::Mixed,
        Self::TwoThreads,
        Self::ProducerConsumer,
        Self::ProducerConsumerMixed,
        Self::Churn,
        Self::ChurnScattered,
        Self::Connections,
    ];

    /// Its name on the command line and in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::ObjectsVector => "objects-vector",
            Self::Pair => "pair",
            Self::PairBatch => "pair-batch",
            Self::PairBlock => "pair-block",
            Self::Mixed => "mixed",
            Self::TwoThreads => "two-threads",
            Self::ProducerConsumer => "producer-consumer",
            Self::ProducerConsumerMixed => "producer-consumer-mixed",
            Self::Churn => "churn",
            Self::ChurnScattered => "churn-scattered",
            Self::Connections => "connections",
        }
    }

    /// The work of one iteration.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::Objects => {
                "two passes: 70 objects of 56 B made into a fresh vector, destroyed in order"
            }
            Self::ObjectsVector => {
                "the same with the vector in the same memory as the objects, not in malloc's"
            }
            Self::Pair => "140 times: one object of 64 B made, then destroyed",
            Self::PairBatch => "70 objects of 64 B made, then destroyed, newest first; twice",
            Self::PairBlock => "140 times: 64 bytes taken, size known at run time only; given back",
            Self::Mixed => "140 blocks of recorded sizes, each replaces a random older one",
            Self::TwoThreads => "`mixed` in each of two threads at once",
            Self::ProducerConsumer => {
                "140 messages of 128 B made and filled here, read and freed by another thread"
            }
            Self::ProducerConsumerMixed => {
                "140 blocks of recorded sizes made here, read and freed by another thread"
            }
            Self::Churn => "a day of load in waves, then the oldest 5 % stay and the rest is idle",
            Self::ChurnScattered => "the same day, then a random 5 % stay",
            Self::Connections => "17 requests on 10,000 connections, 1,000 of them under way",
        }
    }

    /// Whether time is read from the clock on the wall: several threads at once, so that waiting is
    /// part of it. The others take CPU time, which a busy machine disturbs less.
    #[must_use]
    pub const fn is_threaded(self) -> bool {
        matches!(
            self,
            Self::TwoThreads | Self::ProducerConsumer | Self::ProducerConsumerMixed
        )
    }

    /// Whether memory is what it is about: fewer repetitions do, as memory hardly varies.
    #[must_use]
    pub const fn is_about_memory(self) -> bool {
        matches!(self, Self::Churn | Self::ChurnScattered | Self::Connections)
    }

    /// Of so many iterations, how many it does: a quarter where each takes many times as long as in a
    /// tight loop, because caches are missed or another thread is waited for.
    #[must_use]
    pub const fn iterations_of(self, iterations: u64) -> u64 {
        match self {
            Self::Mixed
            | Self::TwoThreads
            | Self::ProducerConsumer
            | Self::ProducerConsumerMixed => iterations.div_ceil(4),
            _ => iterations,
        }
    }

    /// Whether it also runs without any allocation.
    #[must_use]
    pub const fn has_placed(self) -> bool {
        matches!(
            self,
            Self::Objects | Self::ObjectsVector | Self::Pair | Self::PairBatch
        )
    }
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|program| program.name() == text);
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|program| program.name()).collect();
            format!(
                "no program is called \"{text}\": there are {}",
                names.join(", ")
            )
        })
    }
}

/// The source of a program's memory.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryKind {
    /// This project's pools.
    Pool,
    /// malloc, whichever is loaded.
    Malloc,
    /// None: objects are placed into an array made beforehand.
    Placed,
}

impl MemoryKind {
    /// As on the child's command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Malloc => "malloc",
            Self::Placed => "placed",
        }
    }
}

impl FromStr for MemoryKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Pool, Self::Malloc, Self::Placed]
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| format!("memory is pool, malloc or placed, not \"{text}\""))
    }
}

/// How much a program does.
pub(crate) struct Plan {
    pub(crate) iterations: u64,
    pub(crate) seed: u64,
    /// How long memory may take to go back to the system, at most.
    pub(crate) idle_seconds: u64,
    /// Called when the timed part is over and only idleness follows.
    pub(crate) on_idle: fn(),
}

/// Iterations before the timed ones: enough for first touches. The same for any number of timed
/// ones, so that the difference of two runs is that of their iterations.
pub(crate) const WARM_UP_ITERATIONS: u64 = 20;

/// The results of a program.
pub(crate) struct Outcome {
    /// Allocations and frees of the timed part.
    pub(crate) operations: u64,
    pub(crate) timed: Timed,
    /// A checksum of the memory when it was freed: the same for every candidate.
    pub(crate) checksum: u64,
    pub(crate) retention: Option<Retention>,
    pub(crate) per_connection: Option<PerConnection>,
}

impl Outcome {
    pub(crate) const fn new(operations: u64, timed: Timed, checksum: u64) -> Self {
        Self {
            operations,
            timed,
            checksum,
            retention: None,
            per_connection: None,
        }
    }
}

/// The results of `churn` on memory. RSS is anonymous memory over what was there before.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Retention {
    /// Most bytes alive at once, as asked for.
    pub live_peak_bytes: u64,
    /// Highest RSS of 288 readings in the day.
    pub rss_peak_bytes: u64,
    /// RSS / live bytes when live bytes are at their peak.
    pub rss_per_live_at_peak: f64,
    /// The worst RSS / live bytes of the day, once memory is filled.
    pub rss_per_live_worst: f64,
    /// Bytes alive when the day is over.
    pub live_end_bytes: u64,
    /// RSS when the day is over.
    pub rss_end_bytes: u64,
    /// Their ratio.
    pub rss_per_live_end: f64,
    /// Bytes alive while idle.
    pub live_idle_bytes: u64,
    /// RSS at the end of idleness.
    pub rss_idle_bytes: u64,
    /// Part of the peak RSS that is back with the system then.
    pub returned_share: f64,
    /// Idle time until 80 % of the peak were back; `None` if they never were.
    pub returned_after_s: Option<u64>,
}

/// The results of `connections` on memory: bytes of RSS for each connection.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct PerConnection {
    /// With a tenth of the connections in the middle of a request.
    pub active_bytes: f64,
    /// After all responses, some seconds later.
    pub idle_bytes: f64,
    /// Requested bytes when active.
    pub asked_active_bytes: f64,
    /// Requested bytes when idle.
    pub asked_idle_bytes: f64,
}

/// Runs a program; `None` if it does not exist on that kind of memory.
pub(crate) fn run(program: Program, memory: MemoryKind, plan: &Plan) -> Option<Outcome> {
    match memory {
        MemoryKind::Pool => Some(run_on::<Pools>(program, plan)),
        MemoryKind::Malloc => Some(run_on::<Malloc>(program, plan)),
        MemoryKind::Placed => match program {
            Program::Objects => Some(churn::objects_run(&mut churn::placed(), &Global, plan)),
            Program::ObjectsVector => Some(churn::run_without_growth(&mut churn::placed(), plan)),
            Program::Pair => Some(pair::run(&mut pair::one_place(), plan)),
            Program::PairBatch => Some(pair::run_batch(&mut pair::placed(), plan)),
            _ => None,
        },
    }
}

fn run_on<M: Memory>(program: Program, plan: &Plan) -> Outcome {
    match program {
        Program::Objects => churn::objects_run(&mut M::new().objects(), &Global, plan),
        Program::ObjectsVector => {
            let memory = M::new();
            churn::objects_run(&mut memory.objects(), memory.vectors(), plan)
        }
        Program::Pair => pair::run(&mut M::new().objects(), plan),
        Program::PairBatch => pair::run_batch(&mut M::new().objects(), plan),
        Program::PairBlock => pair::run_block::<M>(plan),
        Program::Mixed => churn::mixed_run::<M>(plan),
        Program::TwoThreads => connections::two_threads_run::<M>(plan),
        Program::ProducerConsumer => connections::producer_consumer_run::<M>(plan),
        Program::ProducerConsumerMixed => connections::run_mixed::<M>(plan),
        Program::Churn => churn::run::<M>(plan, churn::Survivors::Oldest),
        Program::ChurnScattered => churn::run::<M>(plan, churn::Survivors::Random),
        Program::Connections => connections::run::<M>(plan),
    }
}

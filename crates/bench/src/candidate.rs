//! The candidates: the pools, and malloc under every allocator that is found.

use crate::program::{MemoryKind, Program};
use millpond_lab::allocator::{self, Allocator, AllocatorError};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;

/// The pools' name in reports.
pub const POOL: &str = "pool";
/// The name of what runs without allocation.
pub const NO_ALLOCATION: &str = "none";

/// One contestant.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Candidate {
    /// `pool`, `glibc`, `jemalloc`, ...
    pub name: String,
    /// The memory of its programs.
    pub memory: MemoryKind,
    /// The preloaded object.
    pub library: Option<PathBuf>,
    /// Keeps the library's file where it is part of this program.
    #[serde(skip)]
    allocator: Option<Allocator>,
}

impl Candidate {
    fn pool() -> Self {
        Self {
            name: POOL.to_owned(),
            memory: MemoryKind::Pool,
            library: None,
            allocator: None,
        }
    }

    /// The variables that its allocator cannot do without.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        let allocator = self.allocator.as_ref();
        allocator.map(Allocator::variables).unwrap_or_default()
    }

    /// The same loop with nothing to allocate.
    pub(crate) fn no_allocation() -> Self {
        Self {
            name: NO_ALLOCATION.to_owned(),
            memory: MemoryKind::Placed,
            library: None,
            allocator: None,
        }
    }
}

impl From<Allocator> for Candidate {
    fn from(allocator: Allocator) -> Self {
        Self {
            name: allocator.name.clone(),
            memory: MemoryKind::Malloc,
            library: allocator.library.clone(),
            allocator: Some(allocator),
        }
    }
}

/// The pools, then the allocators asked for, or else all that are found.
pub fn candidates(wanted: Option<&[String]>) -> Result<Vec<Candidate>, AllocatorError> {
    let allocators = match wanted {
        Some(wanted) => allocator::select(wanted)?,
        None => allocator::discover(),
    };
    let mut candidates = vec![Candidate::pool()];
    candidates.extend(allocators.into_iter().map(Candidate::from));
    Ok(candidates)
}

/// Those that run this program.
pub(crate) fn of_program(candidates: &[Candidate], program: Program) -> Vec<Candidate> {
    let mut candidates = candidates.to_vec();
    if program.has_placed() {
        candidates.push(Candidate::no_allocation());
    }
    candidates
}

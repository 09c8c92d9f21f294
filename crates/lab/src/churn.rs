//! A heap that is aged on purpose: an object of ours in front of the allocator (`preload/churn`), and the file that
//! switches on its allocating and freeing of blocks of mixed sizes at random, in the server's own threads.

use std::fs::{self, OpenOptions};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;

use millpond_measure::record::CandidateRounds;
use millpond_preload_shared::churn_file::{CHURN, ChurnFile, MAGIC, REST, SETTLE, SLOTS};

use crate::embedded::{self, PrivateDirectory};
use crate::started_candidate::Front;

/// The variable that names the file to the object.
const PATH_VARIABLE: &str = "MILLPOND_CHURN_FILE";
/// Each slot has changed so often, on the average, before a heap is called an aged one.
const CHANGES_MIN: u64 = 4;

/// The task of the object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ChurnMode {
    /// Nothing.
    Rest,
    /// Allocate and free.
    Churn,
    /// Free all but a few.
    Settle,
}

/// The object and its file, for one run.
#[derive(Debug)]
pub(crate) struct Churn {
    object: PathBuf,
    path: PathBuf,
    file: fs::File,
    // Removed last.
    _directory: PrivateDirectory,
}

impl Churn {
    /// Writes both into a private directory; nothing is done yet.
    pub(crate) fn create() -> io::Result<Self> {
        let directory = PrivateDirectory::create_in_memory()?;
        let object = embedded::CHURN.write_into(&directory.path)?;
        let path = directory.path.join("churn");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options.open(&path)?;
        // A target may run as another user; a user that does not know the directory's name does not get here.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        file.set_len(size_of::<ChurnFile>() as u64)?;
        file.write_all_at(&MAGIC.to_ne_bytes(), offset_of!(ChurnFile, magic) as u64)?;
        Ok(Self {
            object,
            path,
            file,
            _directory: directory,
        })
    }

    /// The preloaded object, and its environment.
    pub(crate) fn front(&self) -> Front<'_> {
        Front {
            object: &self.object,
            variable: PATH_VARIABLE,
            file: &self.path,
        }
    }

    /// From now on.
    pub(crate) fn set(&self, mode: ChurnMode) -> io::Result<()> {
        let word = match mode {
            ChurnMode::Rest => REST,
            ChurnMode::Churn => CHURN,
            ChurnMode::Settle => SETTLE,
        };
        let at = offset_of!(ChurnFile, mode) as u64;
        self.file.write_all_at(&word.to_ne_bytes(), at)
    }

    /// Blocks allocated and freed so far.
    pub(crate) fn blocks(&self) -> io::Result<u64> {
        let mut word = [0; 8];
        let at = offset_of!(ChurnFile, blocks) as u64;
        self.file.read_exact_at(&mut word, at)?;
        Ok(u64::from_ne_bytes(word))
    }
}

/// Whether a heap is an aged one after so many blocks.
pub(crate) const fn is_enough(blocks: u64) -> bool {
    blocks >= SLOTS as u64 * CHANGES_MIN
}

/// Candidates whose heaps were not aged.
pub(crate) fn warnings(candidates: &[CandidateRounds]) -> Vec<String> {
    let fewest = |candidate: &CandidateRounds| {
        let ends = candidate.rounds.iter().flat_map(|round| &round.phase_ends);
        ends.filter_map(|end| end.churned_blocks).min()
    };
    let few = candidates
        .iter()
        .filter_map(|one| Some((one, fewest(one)?)));
    few.filter(|(_, blocks)| !is_enough(*blocks))
        .map(|(one, blocks)| {
            format!(
                "{}: a churn allocated and freed {blocks} blocks, where {} make an aged heap: this server calls malloc \
                 too rarely, or not at all; give the phase more time, or a path= that allocates",
                one.name,
                SLOTS as u64 * CHANGES_MIN
            )
        })
        .collect()
}

#[cfg(test)]
#[path = "tests/churn.rs"]
mod tests;

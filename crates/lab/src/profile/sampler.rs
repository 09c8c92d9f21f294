//! The sampler of heap calls as the lab uses it: its object and its file, and what stands in there.
//!
//! Layout of the file: `millpond_preload_shared::sample_file`. A sample stands for more than itself: a call
//! of `s` bytes was seen with probability `1 - exp(-s/R)`, so it counts for the inverse of that in
//! calls, and for `s` times as much in bytes. Each sample is scaled by itself; only then are they
//! summed, which keeps sums over any set of calls without bias.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use millpond_preload_shared::sample_file::{
    ACTIVE, BARE, CAPACITY, DROPPED, MAGIC, MEAN_BYTES, PROGRAMS, RECORD_FINISHED,
    RECORD_HEAD_WORDS, RECORD_MARK, RECORDS, SEED, SIZE_CUT, USED, WORD_BYTES,
};
use millpond_preload_shared::sampling;

use crate::embedded::{self, PrivateDirectory};
use crate::session::Front;

/// The variable that names the file to the object.
const PATH_VARIABLE: &str = "MILLPOND_SAMPLE_FILE";
/// 64 MiB, of which only what is written takes room: some 200,000 samples, a hundred times what a
/// second gives at the usual distance.
const CAPACITY_WORDS: u64 = 8 << 20;

/// One heap call that was hit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Sample {
    pub(super) pid: u32,
    /// The process that it was forked from, or itself: addresses are the same in both.
    pub(super) program: u32,
    pub(super) size_bytes: u64,
    /// True if its outermost frames are missing.
    pub(super) is_cut: bool,
    /// Return addresses, innermost first.
    pub(super) frames: Vec<u64>,
}

impl Sample {
    /// How many calls it stands for, and how many bytes.
    pub(super) fn weights(&self, mean_bytes: u64) -> (f64, f64) {
        let size_bytes = self.size_bytes.max(1);
        let calls = sampling::weight(size_bytes, mean_bytes);
        (calls, calls * size_bytes as f64)
    }
}

/// All that one run left.
#[derive(Debug, Default)]
pub(super) struct Harvest {
    pub(super) samples: Vec<Sample>,
    /// Samples for which there was no room.
    pub(super) dropped: u64,
    /// Programs that the object was loaded into.
    pub(super) programs: u64,
    /// Samples without a stack, since there is no unwinder.
    pub(super) bare: u64,
}

/// The object and one file.
#[derive(Debug)]
pub(super) struct Sampler {
    object: PathBuf,
    path: PathBuf,
    file: File,
    // Removed last.
    _directory: PrivateDirectory,
}

impl Sampler {
    /// Writes both into a private directory; samples are not taken yet.
    pub(super) fn create(mean_bytes: u64, seed: u64) -> io::Result<Self> {
        let directory = PrivateDirectory::create()?;
        let object = embedded::SAMPLE.write_into(&directory.path)?;
        let path = directory.path.join("samples");
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        // A target may run as another user; who does not know the directory's name does not get here.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        file.set_len(offset_bytes(RECORDS) + CAPACITY_WORDS * WORD_BYTES as u64)?;
        let sampler = Self {
            object,
            path,
            file,
            _directory: directory,
        };
        sampler.set(0, MAGIC)?;
        sampler.set(CAPACITY, CAPACITY_WORDS)?;
        sampler.set(MEAN_BYTES, mean_bytes)?;
        sampler.set(SEED, seed)?;
        Ok(sampler)
    }

    /// What is preloaded, and what it has to find in its environment.
    pub(super) fn front(&self) -> Front<'_> {
        Front {
            object: &self.object,
            variable: PATH_VARIABLE,
            file: &self.path,
        }
    }

    /// The object's path, as maps show it.
    pub(super) fn object(&self) -> &Path {
        &self.object
    }

    /// Begins or ends the taking of samples.
    pub(super) fn activate(&self, is_active: bool) -> io::Result<()> {
        self.set(ACTIVE, u64::from(is_active))
    }

    /// Everything so far. Valid while the target runs and after it was killed.
    pub(super) fn harvest(&self) -> io::Result<Harvest> {
        let used = self.word(USED)?.min(CAPACITY_WORDS);
        let mut bytes = vec![0_u8; usize::try_from(used * WORD_BYTES as u64).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, offset_bytes(RECORDS))?;
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .filter_map(|word| word.try_into().ok())
            .map(u64::from_ne_bytes)
            .collect();
        Ok(Harvest {
            samples: parse(&words),
            dropped: self.word(DROPPED)?,
            programs: self.word(PROGRAMS)?,
            bare: self.word(BARE)?,
        })
    }

    fn word(&self, index: usize) -> io::Result<u64> {
        let mut word = [0_u8; 8];
        self.file.read_exact_at(&mut word, offset_bytes(index))?;
        Ok(u64::from_ne_bytes(word))
    }

    fn set(&self, index: usize, value: u64) -> io::Result<()> {
        self.file
            .write_all_at(&value.to_ne_bytes(), offset_bytes(index))
    }
}

/// Where a word stands in the file.
const fn offset_bytes(index: usize) -> u64 {
    (index * WORD_BYTES) as u64
}

/// The finished records. What a killed process left unfinished is a gap of known length, or zeros.
fn parse(words: &[u64]) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut at = 0;
    while let Some(&head) = words.get(at) {
        let len = usize::try_from(head & (RECORD_FINISHED - 1)).unwrap_or(0);
        if head >> 32 != RECORD_MARK >> 32 || len < RECORD_HEAD_WORDS {
            at += 1;
            continue;
        }
        if let Some([_, process, size, frames @ ..]) = words.get(at..at + len)
            && head & RECORD_FINISHED != 0
        {
            samples.push(Sample {
                pid: (process >> 32) as u32,
                program: *process as u32,
                size_bytes: size & !SIZE_CUT,
                is_cut: size & SIZE_CUT != 0,
                frames: frames.to_vec(),
            });
        }
        at += len;
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: gaps and unfinished records are passed over, and nothing after them is lost.
    #[test]
    fn what_a_killed_process_left_is_passed_over() {
        let head = |len: u64| RECORD_MARK | len;
        let words = [
            0,
            head(4) | RECORD_FINISHED,
            7 << 32 | 1,
            64 | SIZE_CUT,
            0x1000,
            0,
            0,
            head(5),
            0,
            0,
            0,
            0,
            head(3) | RECORD_FINISHED,
            8 << 32 | 2,
            9,
            head(9) | RECORD_FINISHED,
            1,
        ];
        let samples = parse(&words);
        let found: Vec<_> = samples
            .iter()
            .map(|one| {
                (
                    one.pid,
                    one.program,
                    one.size_bytes,
                    one.is_cut,
                    one.frames.len(),
                )
            })
            .collect();
        assert_eq!(found, [(7, 1, 64, true, 1), (8, 2, 9, false, 0)]);
    }

    /// Goal: sums of scaled samples have no bias, for calls far smaller and far larger than the
    /// distance: checked against the expectation, which can be written down.
    #[test]
    fn weights_are_the_inverse_of_the_chance() {
        for size_bytes in [1_u64, 16, 4096, 524_288, 10 << 20] {
            let sample = Sample {
                pid: 1,
                program: 1,
                size_bytes,
                is_cut: false,
                frames: Vec::new(),
            };
            let (calls, bytes) = sample.weights(524_288);
            let chance = 1.0 - (-(size_bytes as f64) / 524_288.0).exp();
            assert!((calls * chance - 1.0).abs() < 1e-9, "{size_bytes}: {calls}");
            assert!((bytes / size_bytes as f64 / calls - 1.0).abs() < 1e-9);
        }
    }

    /// Goal: a file begins empty, says what the object has to know, and nothing was loaded yet.
    #[test]
    fn a_new_file_is_empty() {
        let sampler = Sampler::create(4096, 5).unwrap();
        assert_eq!(sampler.word(MEAN_BYTES).unwrap(), 4096);
        sampler.activate(true).unwrap();
        assert_eq!(sampler.word(ACTIVE).unwrap(), 1);
        let harvest = sampler.harvest().unwrap();
        assert!(harvest.samples.is_empty() && harvest.programs == 0 && harvest.dropped == 0);
        assert!(sampler.object().is_file());
    }
}

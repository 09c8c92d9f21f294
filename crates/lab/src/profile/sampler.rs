//! The sampler of heap calls as the lab uses it: its object and its file, and what stands in there.
//!
//! Layout of the file: `millpond_preload_shared::sample_file`. A sample stands for more than itself: a call
//! of `s` bytes was seen with probability `1 - exp(-s/R)`, so it counts for the inverse of that in
//! calls, and for `s` times as much in bytes. Each sample is scaled by itself; only then are they
//! summed, which keeps sums over any set of calls without bias.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, io, thread};

use millpond_measure::process::ProcessTree;
use millpond_measure::statistics::hodges_lehmann;
use millpond_preload_shared::sample_file::{
    ACTIVE, BARE, CAPACITY, DROPPED, MAGIC, MEAN_BYTES, PROGRAMS, RECORD_FINISHED,
    RECORD_HEAD_WORDS, RECORD_MARK, RECORDS, SEED, SIZE_CUT, USED, WORD_BYTES,
};
use millpond_preload_shared::sampling;
use serde::Serialize;

use crate::allocator::{Allocator, GLIBC};
use crate::drive::{ANSWER_TIMEOUT, Driver, ERRORS_ALLOWED_DEFAULT, Load, SILENCE_MIN_DEFAULT};
use crate::embedded::PrivateDirectory;
use crate::endpoint::Endpoint;
use crate::error::{LabError, RunError};
use crate::event::LabEvent;
use crate::options::SubjectOptions;
use crate::outcome::FailedRequests;
use crate::output_directory::OutputDirectory;
use crate::started_candidate::Front;
use crate::subject::Launcher;
use crate::target::{ServerRequests, Target};
use crate::{embedded, presence};

use super::config::check_samples_per_s;
use super::outcome::{Circumstances, Gathered};
use super::perf::{Perf, program_of};
use super::{ProfileConfig, ProfileOutcome, Unwind, outcome};

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
        // A target may run as another user; a user that does not know the directory's name does not get here.
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

    /// The preloaded object, and its environment.
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

/// Offset of a word in the file.
const fn offset_bytes(index: usize) -> u64 {
    (index * WORD_BYTES) as u64
}

/// The finished records. Words that a killed process left unfinished are a gap of known length, or zeros.
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

// A process that runs already: where its CPU time goes.
//
// Only that: heap calls are seen by an object that is preloaded when a program starts, and by no
// other means without changing a running program's code.

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process to sample.
#[derive(Clone, Debug)]
pub struct ProcessConfig {
    /// Its id; its descendants are sampled too.
    pub pid: u32,
    /// Where it responds, to load it meanwhile; `None` adds no load.
    pub requests: Option<ServerRequests>,
    /// Connections of the load.
    pub connections: usize,
    /// How long.
    pub duration: Duration,
    /// How perf follows stacks.
    pub unwind: Unwind,
    /// CPU samples per second of CPU time.
    pub samples_per_s: u32,
    /// Where the files go.
    pub out: PathBuf,
    /// The command line that repeats this.
    pub command: Vec<String>,
}

/// Samples a running process; the allocator it runs on gives the profile its name.
pub fn profile_process(
    config: &ProcessConfig,
    events: &mut dyn FnMut(&LabEvent),
    stop: &AtomicBool,
) -> Result<ProfileOutcome, LabError> {
    check_samples_per_s(config.samples_per_s)?;
    let tree = ProcessTree::new(config.pid);
    let pids = tree.members();
    if pids.is_empty() {
        let sentence = format!("there is no process {}", config.pid);
        return Err(LabError::Setting(sentence));
    }
    let perf = Perf::find().map_err(LabError::Setting)?;
    // Before anything is sampled: what turns out to have nowhere to go would be lost.
    let out = OutputDirectory::claim(&config.out)?;
    let title = fs::read_to_string(format!("/proc/{}/comm", config.pid)).unwrap_or_default();
    let title = format!("{} (process {})", title.trim(), config.pid);
    let (unwind, why) = config.unwind.choose(&program_of(config.pid));
    let failed = |reason: RunError| LabError::Baseline {
        candidate: title.clone(),
        reason: reason.to_string(),
    };
    let began = SystemTime::now().duration_since(UNIX_EPOCH);
    events(&LabEvent::Note(format!("sampling {title}")));
    let recording = perf
        .begin(&pids, unwind, config.samples_per_s, &[])
        .map_err(failed)?;
    let driven = meanwhile(config, stop);
    let samples = recording.end().map_err(failed)?;
    driven.map_err(failed)?;
    if samples.samples == 0 {
        return Err(LabError::Setting(format!(
            "{title} used no CPU time within {} s: load it, with --url or otherwise",
            config.duration.as_secs()
        )));
    }
    let mut gathered = Gathered::default();
    gathered.add_cpu(&samples);
    gathered.unwind = why;
    let note = "no allocation graphs: heap calls are seen by an object that is preloaded when a \
                program starts; give the command after -- for them";
    let circumstances = Circumstances {
        subject: title.clone(),
        out: out.path().to_owned(),
        seed: 0,
        event: Some(perf.event()),
        notes: vec![note.to_owned()],
        started_unix_ns: began.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(0)),
        interrupted: stop.load(Ordering::Relaxed),
    };
    let config = as_profile(config);
    outcome::finish(
        &config,
        vec![(allocator_of(&pids), &gathered)],
        circumstances,
    )
}

/// The allocator of a running process, as far as its memory shows: the first of its processes that uses something else
/// than the C library's allocator decides.
fn allocator_of(pids: &[u32]) -> String {
    let plain = Allocator::native(GLIBC);
    let pids = pids.iter().filter_map(|&pid| i32::try_from(pid).ok());
    let found: Vec<_> = pids
        .filter_map(|pid| presence::prove(&[pid], &plain).ok())
        .collect();
    if found.is_empty() {
        return "unknown".to_owned();
    }
    let native = found.into_iter().find_map(|presence| presence.native);
    native.unwrap_or_else(|| GLIBC.to_owned())
}

/// The load, or the wait, while it is sampled.
fn meanwhile(config: &ProcessConfig, stop: &AtomicBool) -> Result<(), RunError> {
    let Some(requests) = &config.requests else {
        let deadline = Instant::now() + config.duration;
        while Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
            thread::sleep(POLL_INTERVAL);
        }
        return Ok(());
    };
    let target = Target::Command {
        words: Vec::new(),
        requests: Box::new(requests.clone()),
    };
    let driver = Driver {
        connections: config.connections,
        value_bytes: 0,
        path: None,
        placement: SubjectOptions::default().placement(),
        target,
        errors_allowed: ERRORS_ALLOWED_DEFAULT,
        answer_timeout: ANSWER_TIMEOUT,
        silence_min: SILENCE_MIN_DEFAULT,
    };
    let load = Load::Burst {
        duration: config.duration,
    };
    let operation = millpond_measure::record::Operation::Request;
    let mut endpoint = Endpoint::here(
        Arc::clone(&requests.plan.target.addresses),
        requests.port().unwrap_or_default(),
    );
    endpoint.keep_those_that_accept()?;
    match driver.run(&endpoint, operation, 1, load, stop) {
        Ok(phase)
            if phase
                .answers
                .are_too_bad(&phase.answers, ERRORS_ALLOWED_DEFAULT) =>
        {
            let (url, connections) = (&requests.text, config.connections);
            let failed =
                FailedRequests::of(&phase.answers, url, connections, ERRORS_ALLOWED_DEFAULT);
            Err(RunError::FailedRequests(Box::new(failed)))
        }
        Ok(_) | Err(RunError::Interrupted) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The settings for the files.
fn as_profile(config: &ProcessConfig) -> ProfileConfig {
    let target = Target::Entity { extra: Vec::new() };
    let launcher = Launcher {
        program: PathBuf::new(),
    };
    let mut profile = ProfileConfig::new(target, launcher);
    profile.duration = config.duration;
    profile.rounds = 1;
    profile.samples_per_s = config.samples_per_s;
    profile.command.clone_from(&config.command);
    profile
}

// The cost of a profiler: the same work with and without it, in pairs of the same round.

/// The same work varies by this much by itself; a claim about a few percent is not reliable.
const NOISY_SPREAD: f64 = 0.10;

/// One run of the work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    /// By the clock.
    pub(super) duration_ns: u64,
    /// CPU time of the server's processes.
    pub(super) cpu_ns: u64,
}

/// A ratio with and without, over pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle: 1.02 is 2 % more.
    pub ratio: f64,
    /// The smallest of the pairs.
    pub low: f64,
    /// The largest.
    pub high: f64,
}

/// The cost of a profiler.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Pairs of runs.
    pub pairs: usize,
    /// Of the time that the work took; absent at a constant rate, where that is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Spread>,
    /// Of the server's CPU time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_time: Option<Spread>,
    /// The longest of the runs without a profiler over the shortest.
    pub without_varies: f64,
    /// True if runs without a profiler differ by more than is asked about.
    pub is_noisy: bool,
}

impl Cost {
    /// Of pairs (without, with); `None` without any.
    pub(super) fn of(pairs: &[(Work, Work)], time_is_given: bool) -> Option<Self> {
        let spread = |value: fn(&Work) -> u64| {
            let ratios: Vec<f64> = pairs
                .iter()
                .filter(|(without, with)| value(without) > 0 && value(with) > 0)
                .map(|(without, with)| value(with) as f64 / value(without) as f64)
                .collect();
            let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
            Some(Spread {
                ratio: hodges_lehmann(&logs)?.exp(),
                low: ratios.iter().copied().fold(f64::INFINITY, f64::min),
                high: ratios.iter().copied().fold(0.0, f64::max),
            })
        };
        let without: Vec<u64> = pairs.iter().map(|(without, _)| without.cpu_ns).collect();
        let (shortest, longest) = (without.iter().min()?, without.iter().max()?);
        let without_varies = *longest as f64 / (*shortest).max(1) as f64;
        Some(Self {
            pairs: pairs.len(),
            time: (!time_is_given)
                .then(|| spread(|work| work.duration_ns))
                .flatten(),
            cpu_time: spread(|work| work.cpu_ns),
            without_varies,
            is_noisy: without_varies > 1.0 + NOISY_SPREAD,
        })
    }
}

#[cfg(test)]
#[path = "tests/sampler.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/cost.rs"]
mod cost_tests;

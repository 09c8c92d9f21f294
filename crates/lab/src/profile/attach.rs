//! A process that runs already: where its CPU time goes.
//!
//! Only that: heap calls are seen by an object that is preloaded when a program starts, and by no
//! other means without changing a running program's code.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millpond_measure::process::ProcessTree;

use super::config::check_samples_per_s;
use super::outcome::{self, Circumstances, Gathered};
use super::perf::{Perf, program_of};
use super::{ProfileConfig, ProfileOutcome, Unwind};
use crate::allocator::{Allocator, GLIBC};
use crate::answers::FailedRequests;
use crate::drive::{ANSWER_TIMEOUT, Driver, ERRORS_ALLOWED_DEFAULT, Load, SILENCE_MIN_DEFAULT};
use crate::endpoint::Endpoint;
use crate::error::{LabError, RunError};
use crate::event::LabEvent;
use crate::options::SubjectOptions;
use crate::output_directory::OutputDirectory;
use crate::presence;
use crate::subject::Launcher;
use crate::target::{ServerRequests, Target};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process to look at.
#[derive(Clone, Debug)]
pub struct ProcessConfig {
    /// Its id; its descendants are looked at too.
    pub pid: u32,
    /// Where it answers, to load it meanwhile; `None` leaves it to what it does.
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

/// What a running process allocates with, as far as its memory says: the first of its processes that
/// uses something else than the C library's allocator decides.
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

/// What the files have to know.
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

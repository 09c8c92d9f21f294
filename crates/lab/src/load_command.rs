//! The user's own load program instead of our generator: `redis-benchmark`, `pgbench`, a script.
//!
//! `preflight` checks its output and measures how long it takes, `outcome` and `heap_pass` run it against a candidate
//! that serves. It is a target of the launcher as a server is: on the generator's CPUs, in a group of its own, and gone
//! when the run is. The program decides how much it does; it has to be the same amount each time, or memory would be
//! compared at unequal work.

use std::ffi::OsString;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millpond_measure::record::Quantity;

use crate::error::RunError;
use crate::launch::LaunchSpec;
use crate::metric::{Meaning, Metric};
use crate::started_candidate::{RunContext, StartedCandidate};
use crate::subject::{DROP_GRACE, LastWords, Subject};

/// A command takes seconds; it is polled as seldom as costs no accuracy.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Bound on a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// How the user makes the load.
#[derive(Clone, Debug)]
pub struct LoadCommand {
    /// A line for the shell.
    pub line: String,
    /// What is read from its output; at least one is a measure.
    pub metrics: Vec<Metric>,
    /// It is stopped after that.
    pub timeout: Duration,
    /// How often it runs before the time that counts, in each run: for servers that warm up.
    pub warm_ups: u32,
}

/// The results of one run of it.
#[derive(Debug)]
pub(crate) struct CommandLoad {
    /// The metrics, in our units.
    pub(crate) values: Vec<(Quantity, f64)>,
    /// How many requests it did, if the user says.
    pub(crate) requests: Option<u64>,
    /// CPU time it used.
    pub(crate) cpu_ns: u64,
}

impl LoadCommand {
    /// Runs it once against `started_candidate`.
    pub(crate) fn run(
        &self,
        workshop: &RunContext,
        session: &mut StartedCandidate,
        label: &str,
        stop: &AtomicBool,
    ) -> Result<CommandLoad, RunError> {
        self.run_with(workshop, session, label, &[], stop)
    }

    /// The same with more variables.
    pub(crate) fn run_with(
        &self,
        workshop: &RunContext,
        session: &mut StartedCandidate,
        label: &str,
        variables: &[(&str, String)],
        stop: &AtomicBool,
    ) -> Result<CommandLoad, RunError> {
        let line = Line {
            line: &self.line,
            label,
            variables,
            timeout: self.timeout,
        };
        let done = shell(workshop, session, line, stop)?;
        let mut load = CommandLoad {
            values: Vec::new(),
            requests: None,
            cpu_ns: done.cpu_ns,
        };
        for metric in &self.metrics {
            let value = metric.read(&done.output).map_err(|reason| {
                RunError::LoadCommand(format!("{reason}; {}", done.last_words))
            })?;
            match metric.meaning {
                Meaning::Requests => load.requests = Some(value as u64).filter(|&n| n > 0),
                Meaning::Measure(quantity, _) => load.values.push((quantity, value)),
            }
        }
        Ok(load)
    }

    /// Runs it as often as a server has to warm up; what it says then counts nowhere.
    pub(crate) fn warm_up(
        &self,
        workshop: &RunContext,
        session: &mut StartedCandidate,
        stop: &AtomicBool,
    ) -> Result<(), RunError> {
        for number in 1..=self.warm_ups {
            self.run(workshop, session, &format!("warm-up{number}"), stop)?;
        }
        Ok(())
    }

    /// True if one of the metrics is the number of requests.
    pub(crate) fn counts_requests(&self) -> bool {
        self.metrics
            .iter()
            .any(|metric| metric.meaning == Meaning::Requests)
    }
}

/// Runs the user's check of the responses; returns what it wrote, which has to be the same for all.
pub(crate) fn check(
    line: &str,
    workshop: &RunContext,
    session: &mut StartedCandidate,
    stop: &AtomicBool,
) -> Result<String, RunError> {
    let line = Line {
        line,
        label: "check",
        variables: &[],
        timeout: CHECK_TIMEOUT,
    };
    let done = shell(workshop, session, line, stop);
    match done {
        Ok(done) => Ok(done.output),
        Err(RunError::LoadCommand(reason)) => Err(RunError::Check(reason)),
        Err(error) => Err(error),
    }
}

struct Done {
    output: String,
    last_words: LastWords,
    cpu_ns: u64,
}

/// The command for the shell.
struct Line<'a> {
    line: &'a str,
    /// For the names of its files.
    label: &'a str,
    /// Beside those that say where the server listens.
    variables: &'a [(&'a str, String)],
    timeout: Duration,
}

/// One line of the user's, on the generator's CPUs, while `started_candidate` serves.
fn shell(
    workshop: &RunContext,
    session: &mut StartedCandidate,
    Line {
        line,
        label,
        variables,
        timeout,
    }: Line<'_>,
    stop: &AtomicBool,
) -> Result<Done, RunError> {
    let file = |ending: &str| {
        let log = session.subject.log();
        let stem = log.file_stem().unwrap_or_default().to_string_lossy();
        log.with_file_name(format!("{stem}-{label}.{ending}"))
    };
    let (log, output) = (file("log"), file("out"));
    let endpoint = &session.endpoint;
    let mut environment: Vec<(OsString, OsString)> = Vec::new();
    if let Some(address) = endpoint.sockets().next() {
        environment.push(("MILLPOND_HOST".into(), address.ip().to_string().into()));
        environment.push(("MILLPOND_PORT".into(), address.port().to_string().into()));
    }
    if let Some(path) = endpoint.unix() {
        environment.push(("MILLPOND_UNIX".into(), path.into()));
    }
    let variables = variables.iter();
    environment.extend(variables.map(|(name, value)| (name.into(), value.into())));
    let spec = LaunchSpec {
        cpus: workshop.driver.placement.generator.clone(),
        is_raised: workshop.driver.placement.is_raised,
        environment,
        log: log.clone(),
        output: Some(output.clone()),
        command: ["/bin/sh", "-c", line].map(Into::into).to_vec(),
        ..LaunchSpec::default()
    };
    let prepare = || Subject::prepare(&workshop.launcher, &spec, "the load command");
    let mut command = session.endpoint.within(prepare)??;
    let began = Instant::now();
    command.go()?;
    let exit = loop {
        if let Some(exit) = command.ended() {
            break exit;
        }
        session.subject.ensure_alive()?;
        if stop.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        if began.elapsed() >= timeout {
            let seconds = timeout.as_secs();
            let why = format!(
                "it did not end within {seconds} s; {}",
                LastWords::read(&log)
            );
            return Err(RunError::LoadCommand(why));
        }
        thread::sleep(POLL_INTERVAL);
    };
    let cpu_ns = command.ended_cpu_ns();
    // Leftover processes must not run on beside the next phase.
    command.stop(DROP_GRACE)?;
    let bytes = fs::read(&output).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // Its errors if there are some, else its results.
    let mut last_words = LastWords::read(&log);
    if last_words.lines.is_empty() {
        last_words = LastWords::read(&output);
    }
    if !exit.is_well() {
        return Err(RunError::LoadCommand(format!(
            "it failed ({exit}); {last_words}"
        )));
    }
    Ok(Done {
        output: text,
        last_words,
        cpu_ns,
    })
}

//! One running child, from the parent's side: started, listened to, never left behind.
//!
//! `run` starts one for each program, candidate and repetition. `LD_PRELOAD` is set for the child
//! alone; the parent never runs under the allocator that is measured. The child has a process group
//! of its own, so that Ctrl-C reaches the parent only, which then ends it in order. Invariant: a
//! child exists only as long as its `Subject`; should the parent be killed, the kernel ends the
//! child.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millpond_io::{allowed_cpus, pin_to};
use serde::de::DeserializeOwned;

use crate::child::ChildSpec;
use crate::error::RunError;
use crate::sample::Sample;

/// Far beyond what any program takes with its default iterations.
const LIMIT: Duration = Duration::from_secs(600);
/// How soon Ctrl-C is noticed.
const STOP_POLL: Duration = Duration::from_millis(50);

/// How to start a child.
#[derive(Clone, Debug)]
pub(crate) struct Launch<'a> {
    /// The program that has `bench-child`.
    pub(crate) program: &'a Path,
    /// Words before it: a profiler and its flags.
    pub(crate) wrapper: &'a [OsString],
    /// The value of `LD_PRELOAD`.
    pub(crate) preload: Preload<'a>,
    /// Added to the environment.
    pub(crate) environment: &'a [(OsString, OsString)],
}

/// The value of `LD_PRELOAD` in a child.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Preload<'a> {
    /// Nothing: a wrapper sets it.
    Nothing,
    /// Its allocator, if it has one.
    Allocator,
    /// This, and then its allocator.
    Before(&'a Path),
}

/// A child on its way.
#[derive(Debug)]
pub(crate) struct Subject {
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
    started: Instant,
    /// The line that ended `until_idle`, if it was the result already.
    result: Option<String>,
}

impl Subject {
    /// One program of `bench pools`.
    pub(crate) fn start(launch: &Launch<'_>, spec: &ChildSpec) -> Result<Self, RunError> {
        Self::start_with(launch, &spec.to_arguments(), spec.library.as_deref())
    }

    /// A child that is given these words, under the allocator of `library`.
    pub(crate) fn start_with(
        launch: &Launch<'_>,
        words: &[OsString],
        library: Option<&Path>,
    ) -> Result<Self, RunError> {
        let mut command = command(launch);
        command.arg("bench-child").args(words);
        let preload = match launch.preload {
            Preload::Nothing => [None, None],
            Preload::Allocator => [None, library],
            Preload::Before(object) => [Some(object), library],
        };
        let preload: Vec<&Path> = preload.into_iter().flatten().collect();
        // Whatever the user preloads into this process must not reach a candidate.
        command.env_remove("LD_PRELOAD");
        if let Some(first) = preload.first() {
            let mut list = first.as_os_str().to_owned();
            for more in &preload[1..] {
                list.push(":");
                list.push(more);
            }
            command.env("LD_PRELOAD", list);
        }
        let mut child = command.spawn().map_err(|error| RunError::NotStarted {
            program: PathBuf::from(command.get_program()),
            reason: error.to_string(),
        })?;
        let (sender, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        let errors = child.stderr.take().map(|mut stderr| {
            thread::spawn(move || {
                let mut text = Vec::new();
                let _ = stderr.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        Ok(Self {
            child,
            lines,
            errors,
            started: Instant::now(),
            result: None,
        })
    }

    /// Waits until its timed part has ended: the next child may start.
    pub(crate) fn until_idle(&mut self, stop: &AtomicBool) -> Result<(), RunError> {
        let line = self.line(stop)?;
        if line != "idle" {
            self.result = Some(line);
        }
        Ok(())
    }

    /// Waits for its end and reads its result.
    pub(crate) fn finish(mut self, stop: &AtomicBool) -> Result<Sample, RunError> {
        let line = loop {
            match self.result.take() {
                Some(line) => break line,
                None => self.until_idle(stop)?,
            }
        };
        self.succeeded()?;
        read(line)
    }

    /// It has printed everything, and exits successfully.
    pub(crate) fn succeeded(&mut self) -> Result<(), RunError> {
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(self.last_words()),
        }
    }

    /// The next thing it says, in JSON.
    pub(crate) fn next<T: DeserializeOwned>(&mut self, stop: &AtomicBool) -> Result<T, RunError> {
        read(self.line(stop)?)
    }

    fn line(&mut self, stop: &AtomicBool) -> Result<String, RunError> {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(RunError::Interrupted);
            }
            if self.started.elapsed() > LIMIT {
                let limit_s = LIMIT.as_secs();
                return Err(RunError::TookTooLong { limit_s });
            }
            match self.lines.recv_timeout(STOP_POLL) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.last_words()),
            }
        }
    }

    /// It closed its stdout: it has ended, or is about to.
    fn last_words(&mut self) -> RunError {
        let status = self.child.wait();
        let text = self.errors.take().and_then(|reader| reader.join().ok());
        let text = text.unwrap_or_default();
        // A panic says where in its first line and what in its second.
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with("note:"))
            .collect();
        let from = lines.len().saturating_sub(2);
        RunError::Failed {
            status: status.map_or_else(|error| error.to_string(), |status| status.to_string()),
            last_words: lines[from..].join(" "),
        }
    }
}

fn read<T: DeserializeOwned>(line: String) -> Result<T, RunError> {
    serde_json::from_str(&line).map_err(|error| RunError::Unreadable {
        line,
        reason: error.to_string(),
    })
}

fn command(launch: &Launch<'_>) -> Command {
    let mut command = match launch.wrapper.split_first() {
        Some((wrapper, words)) => {
            let mut command = Command::new(wrapper);
            command.args(words).arg(launch.program);
            command
        }
        None => Command::new(launch.program),
    };
    let environment = launch.environment.iter();
    command
        .envs(environment.map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    command
}

impl Drop for Subject {
    fn drop(&mut self) {
        // Both fail for a child that has ended and been waited for, as intended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// Which CPU each thread of a program with two runs on.

/// The CPUs this process may use, as they were before any thread chose one.
pub(crate) struct Cpus {
    allowed: Vec<usize>,
}

impl Cpus {
    /// Those the calling thread may use.
    pub(crate) fn allowed() -> Self {
        Self {
            allowed: allowed_cpus().unwrap_or_default(),
        }
    }

    /// Keeps the calling thread on the CPU of this number, counted from 0 around those allowed.
    pub(crate) fn pin(&self, number: usize) {
        if let Some(&cpu) = self.allowed.get(number % self.allowed.len().max(1)) {
            // Not being allowed to choose leaves the thread where it is.
            let _ = pin_to(cpu);
        }
    }
}

#[cfg(test)]
#[path = "tests/cpus.rs"]
mod cpus_tests;

//! CPU samples by perf, of processes that run, between two moments of our choice.
//!
//! perf opens its counters disabled, gets commands for both moments through a pipe, and
//! acknowledges them, so that samples belong to the load and to nothing before it. Cycles are
//! sampled where the processor lets us, else the CPU clock. perf finds symbols by itself.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use millpond_measure::flamegraph::{Root, Stacks};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::Unwind;
use crate::embedded::PrivateDirectory;
use crate::error::RunError;

/// Bound on perf's own replies, on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Bound on writing its file and on reading it again: unwinding takes a while.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// For each CPU, so that bursts are not lost; only root may lock so much.
const RING_OF_ROOT: &str = "4M";

/// perf, as it is here.
#[derive(Clone, Debug)]
pub(super) struct Perf {
    event: &'static str,
}

/// The samples of one recording.
#[derive(Debug, Default)]
pub(super) struct CpuSamples {
    pub(super) stacks: Stacks,
    pub(super) samples: u64,
    /// The loss that perf reports, in its own chunks.
    pub(super) lost: u64,
}

impl Perf {
    /// `Err` is a sentence.
    pub(super) fn find() -> Result<Self, String> {
        let run = |words: &[&str]| {
            let mut perf = Command::new("perf");
            let perf = perf.args(words).stdin(Stdio::null()).output();
            perf.map_err(|_| "perf is not installed (Debian package linux-perf)".to_owned())
        };
        // Asked to record what there is not, perf takes another clock silently.
        let counted = run(&["stat", "-x,", "-e", "cycles", "--", "true"])?;
        let has_cycles =
            counted.status.success() && !String::from_utf8_lossy(&counted.stderr).contains("<not");
        let event = if has_cycles { "cycles" } else { "cpu-clock" };
        let words = ["record", "-q", "-e", event, "-o", "/dev/null", "--", "true"];
        if run(&words)?.status.success() {
            return Ok(Self { event });
        }
        Err(
            "perf may not sample here (kernel.perf_event_paranoid, or a container that forbids \
             perf_event_open), or is not for this kernel"
                .to_owned(),
        )
    }

    /// `cycles` or `cpu-clock`.
    pub(super) fn event(&self) -> &'static str {
        self.event
    }

    /// Begins to sample `pids`, and every thread and process that they start from now on.
    pub(super) fn begin(
        &self,
        pids: &[u32],
        unwind: Unwind,
        samples_per_s: u32,
        cpus: &[usize],
    ) -> Result<Recording, RunError> {
        let directory = PrivateDirectory::create()
            .map_err(|error| failed(&format!("no place for its file: {error}")))?;
        let path = |name: &str| directory.path.join(name);
        let open_pipe = |name: &str| {
            let path = path(name);
            rustix::fs::mkfifoat(
                rustix::fs::CWD,
                &path,
                rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            )?;
            // For both: opening does not wait for the other side then.
            OpenOptions::new().read(true).write(true).open(path)
        };
        let pipe = |name: &str| open_pipe(name).map_err(|error| failed(&error.to_string()));
        let (control, answers) = (pipe("control")?, pipe("answers")?);
        let control_path = format!(
            "fifo:{},{}",
            path("control").display(),
            path("answers").display()
        );
        let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
        let stderr = File::create(path("stderr")).map_err(|error| failed(&error.to_string()))?;
        let mut command = Command::new("perf");
        command
            .args(["record", "-q", "-B", "-N", "-D", "-1", "-e", self.event])
            .args(["-F", &samples_per_s.to_string()])
            .args(["--call-graph", &unwind.call_graph()])
            .args(["--control", &control_path, "-p", &pids.join(",")]);
        if rustix::process::geteuid().is_root() {
            command.args(["-m", RING_OF_ROOT]);
        }
        command.arg("-o").arg(path("data"));
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(|error| failed(&error.to_string()))?;
        let mut recording = Recording {
            child,
            control,
            answers,
            directory,
        };
        recording.place(cpus);
        recording.order("enable")?;
        Ok(recording)
    }
}

/// A perf that samples; ended when dropped.
#[derive(Debug)]
pub(super) struct Recording {
    child: Child,
    control: File,
    answers: File,
    directory: PrivateDirectory,
}

impl Recording {
    /// Ends it and reads its samples.
    pub(super) fn end(mut self) -> Result<CpuSamples, RunError> {
        self.order("disable")?;
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // One that has ended by itself is still waited for.
            let _ = kill_process(pid, Signal::INT);
        }
        wait(&mut self.child, ANSWER_TIMEOUT)?;
        self.read()
    }

    /// perf does its own work where the generator does its.
    fn place(&self, cpus: &[usize]) {
        let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else {
            return;
        };
        let mut set = rustix::thread::CpuSet::new();
        for &cpu in cpus {
            set.set(cpu);
        }
        if !cpus.is_empty() {
            // It may have ended; then it is heard of next.
            let _ = rustix::thread::sched_setaffinity(Some(pid), &set);
        }
    }

    /// Sends a command and waits for the acknowledgement.
    fn order(&mut self, word: &str) -> Result<(), RunError> {
        let write = self.control.write_all(format!("{word}\n").as_bytes());
        write.map_err(|error| failed(&error.to_string()))?;
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let mut fds = [PollFd::new(&self.answers, PollFlags::IN)];
            let patience = Timespec {
                tv_sec: 0,
                tv_nsec: 20_000_000,
            };
            let ready = poll(&mut fds, Some(&patience)).unwrap_or(0) > 0;
            if ready {
                let mut answer = [0_u8; 64];
                self.answers
                    .read(&mut answer)
                    .map_err(|error| failed(&error.to_string()))?;
                return Ok(());
            }
            if let Ok(Some(_)) = self.child.try_wait() {
                return Err(failed(&self.last_words()));
            }
            if Instant::now() >= deadline {
                return Err(failed("it does not answer"));
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path.join(name)
    }

    fn last_words(&self) -> String {
        let text = fs::read(self.path("stderr")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        match lines.as_slice() {
            [] => "it ended without output".to_owned(),
            lines => lines.join("; "),
        }
    }

    /// Every sample as a stack below its thread's name.
    fn read(&self) -> Result<CpuSamples, RunError> {
        let script = |name: &str| File::create(self.path(name));
        let (out, err) = script("script")
            .and_then(|out| Ok((out, script("script-errors")?)))
            .map_err(|error| failed(&error.to_string()))?;
        let mut perf = Command::new("perf")
            .args(["script", "--no-inline", "-F", "comm,ip,sym,dso", "-i"])
            .arg(self.path("data"))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(|error| failed(&error.to_string()))?;
        wait(&mut perf, SCRIPT_TIMEOUT)?;
        let text = fs::read(self.path("script")).unwrap_or_default();
        let errors = fs::read(self.path("script-errors")).unwrap_or_default();
        let mut found = CpuSamples::default();
        found.samples = found
            .stacks
            .add_perf_script(&String::from_utf8_lossy(&text), Root::Thread);
        found.lost = lost_chunks(&String::from_utf8_lossy(&errors));
        Ok(found)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `Processed 123 events and lost 4 chunks!`
fn lost_chunks(errors: &str) -> u64 {
    let count = |line: &str| {
        let (_, rest) = line.split_once("lost ")?;
        rest.split_once(" chunks")?.0.trim().parse::<u64>().ok()
    };
    errors.lines().find_map(count).unwrap_or(0)
}

fn wait(child: &mut Child, timeout: Duration) -> Result<(), RunError> {
    let deadline = Instant::now() + timeout;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return Ok(()),
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
            _ => {
                // A process that cannot be waited for is ended.
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed("it did not come to an end"));
            }
        }
    }
}

fn failed(why: &str) -> RunError {
    RunError::Figures(format!("perf took no samples: {why}"))
}

/// The program that a process runs.
pub(super) fn program_of(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join("exe")
}

#[cfg(test)]
#[path = "tests/perf.rs"]
mod tests;

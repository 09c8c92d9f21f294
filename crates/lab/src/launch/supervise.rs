//! The first stage: parent of the target, and heir of whatever the target's processes leave behind.
//!
//! Talks to the lab in lines. From it: `go`, `stop GRACE_MS`; the end of stdin means that the lab is
//! gone. To it: `pid N`; when the target's first process ends, `left PID...` if it left others running behind (it went
//! into the background), then `exited code N` or `exited signal N`; and at last
//! `stopped gracefully` or `stopped by force`, after which no process of the target exists.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpgid, getpid, kill_process, kill_process_group,
    pidfd_open, set_child_subreaper, wait,
};

use super::{LaunchSpec, StopSignal};
use crate::process_tree::children_of;

/// How long a target may take to end once the lab itself is gone.
const ORPHAN_GRACE: Duration = Duration::from_millis(500);
/// How often a stopping target is checked. Stopping is outside every measured phase.
const STOP_POLL: Duration = Duration::from_micros(500);

pub(super) fn run(spec: &LaunchSpec) -> ExitCode {
    match Supervisor::start(spec).and_then(Supervisor::serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millpond launch: {error}");
            ExitCode::FAILURE
        }
    }
}

enum Order {
    Go,
    Stop(Duration),
}

struct Supervisor {
    target: Pid,
    /// Readable once the target's first process has ended; none after that was seen.
    ended: Option<OwnedFd>,
    go: Option<ChildStdin>,
    stop_signal: StopSignal,
    /// Bytes of a command line not yet complete.
    partial: Vec<u8>,
}

impl Supervisor {
    fn start(spec: &LaunchSpec) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let mut child = spawn_second_stage(spec)?;
        let target = Pid::from_child(&child);
        let ended = pidfd_open(target, PidfdFlags::empty())?;
        say(&format!("pid {}", target.as_raw_nonzero()))?;
        Ok(Self {
            target,
            ended: Some(ended),
            go: child.stdin.take(),
            stop_signal: spec.stop_signal,
            partial: Vec::new(),
        })
    }

    fn serve(mut self) -> io::Result<()> {
        loop {
            let (commands_ready, target_ended) = self.wait_for_news()?;
            if target_ended {
                self.ended = None;
                self.reap_and_report()?;
            }
            if !commands_ready {
                continue;
            }
            match self.read_command() {
                Ok(Some(Order::Go)) => {
                    if let Some(mut go) = self.go.take() {
                        // A second stage that has already ended is reported by its exit.
                        let _ = go.write_all(b"g");
                    }
                }
                Ok(Some(Order::Stop(grace))) => return self.stop(grace),
                Ok(None) => {}
                Err(_) => return self.stop(ORPHAN_GRACE),
            }
        }
    }

    fn wait_for_news(&self) -> io::Result<(bool, bool)> {
        let stdin = io::stdin();
        let mut watched = vec![PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
        if let Some(ended) = &self.ended {
            watched.push(PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN));
        }
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |index: usize| {
            watched
                .get(index)
                .is_some_and(|fd: &PollFd<'_>| !fd.revents().is_empty())
        };
        Ok((ready(0), ready(1)))
    }

    /// One command if a whole line is there; an error at the end of stdin.
    fn read_command(&mut self) -> io::Result<Option<Order>> {
        // One byte at a time: commands are rare, and nothing may be left behind in a buffer that
        // `poll` does not see.
        let mut byte = [0_u8];
        if rustix::io::read(io::stdin().as_fd(), &mut byte)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if byte != *b"\n" {
            self.partial.extend(byte);
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&self.partial).into_owned();
        self.partial.clear();
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next().map(str::parse)) {
            (Some("go"), None) => Ok(Some(Order::Go)),
            (Some("stop"), Some(Ok(ms))) => Ok(Some(Order::Stop(Duration::from_millis(ms)))),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Collects every ended child; returns how the target's first process ended and what it left.
    fn reap_and_report(&self) -> io::Result<()> {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid != self.target {
                continue;
            }
            // First, so that an observer of the end finds it.
            let left = children_of(own_pid());
            if !left.is_empty() {
                let list: Vec<String> = left.iter().map(ToString::to_string).collect();
                say(&format!("left {}", list.join(" ")))?;
            }
            match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => say(&format!("exited code {code}"))?,
                (None, Some(signal)) => say(&format!("exited signal {signal}"))?,
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Signals the target's group, if the number is still its own. Once the first process was collected the kernel may
    /// give its number to a foreign group, unless one of ours still holds it. Returns whether it did.
    fn signal_group(&self, signal: Signal) -> bool {
        let is_in_group = |pid: i32| getpgid(Pid::from_raw(pid)) == Ok(self.target);
        if self.ended.is_none() && !children_of(own_pid()).into_iter().any(is_in_group) {
            return false;
        }
        // ESRCH is fine: the group may have ended by itself.
        let _ = kill_process_group(self.target, signal);
        true
    }

    /// Ends every process of the target: asked first, killed after `grace`.
    fn stop(mut self, grace: Duration) -> io::Result<()> {
        drop(self.go.take());
        let signal = self.stop_signal.signal();
        self.signal_group(signal);
        let deadline = Instant::now() + grace;
        let mut forced = false;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, _))) => {
                    if pid == self.target {
                        self.ended = None;
                    }
                    continue;
                }
                Err(Errno::CHILD) => break,
                Ok(None) | Err(_) => {}
            }
            if Instant::now() >= deadline {
                forced = true;
                self.signal_group(Signal::KILL);
                // Those that left the group; their own children become ours and fall next time.
                for pid in children_of(own_pid()) {
                    if let Some(pid) = Pid::from_raw(pid) {
                        let _ = kill_process(pid, Signal::KILL);
                    }
                }
            } else if self.ended.is_none() || !process_exists(self.target) {
                // The first process has ended: processes that left its group were not signalled yet.
                for pid in children_of(own_pid()) {
                    if let Some(pid) = Pid::from_raw(pid) {
                        let _ = kill_process(pid, signal);
                    }
                }
            }
            thread::sleep(STOP_POLL);
        }
        // The lab may be gone; the processes are gone too, so there is nothing left to report.
        let _ = say(if forced {
            "stopped by force"
        } else {
            "stopped gracefully"
        });
        Ok(())
    }
}

fn spawn_second_stage(spec: &LaunchSpec) -> io::Result<Child> {
    Command::new(env::current_exe()?)
        .args(["launch", "exec"])
        .args(spec.to_arguments())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
}

fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}

fn process_exists(pid: Pid) -> bool {
    fs::exists(format!("/proc/{}", pid.as_raw_nonzero())).unwrap_or(false)
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

#[cfg(test)]
#[path = "tests/supervise.rs"]
mod tests;

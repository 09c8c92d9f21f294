//! One running target, from the lab's side: start, wait until it serves, watch it, stop it.
//!
//! `run` prepares a subject (paused before its first instruction), attaches counters to its process
//! id, lets it go, waits until it responds, drives it, and stops it. Invariant: a target exists
//! only as long as its `Subject`. Dropping one, on any error or panic, stops every process of the
//! target; should the lab be killed, the supervisor sees its stdin end and does the same.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

use millpond_measure::record::signal_name;

use crate::launch::LaunchSpec;
use crate::probe::NotReady;
use crate::process_tree;
use crate::readiness::ReadyCheck;

/// Bound on the launcher's own replies; it does nothing slow.
const LAUNCHER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a target may take from SIGTERM to its end before it is killed.
pub const STOP_GRACE: Duration = Duration::from_secs(5);
/// The same for a target that is dropped: an error or an interruption is on its way to the user.
pub(crate) const DROP_GRACE: Duration = Duration::from_millis(300);
/// How long a response in another protocol is taken for a temporary state.
const OTHER_PROTOCOL_BOUND: Duration = Duration::from_secs(2);
/// How often a target that is starting is asked whether it serves.
const PROBE_INTERVAL: Duration = Duration::from_millis(3);
/// How long to listen for news of an end that may be on its way.
const EXIT_NEWS: Duration = Duration::from_millis(5);

/// Why a target cannot be measured. Each is a sentence that says what to do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SubjectError {
    /// The launcher itself failed: this is our fault or the machine's.
    #[error("cannot start the launcher {}: {reason}", program.display())]
    Launcher {
        /// The program that was to be the launcher.
        program: PathBuf,
        /// The system's error.
        reason: String,
    },
    /// The first process ended before or while it was measured.
    #[error("{title} {when} ({exit}); {last_words}")]
    Ended {
        /// The command's short name.
        title: String,
        /// `ended before it served` or `died while it was measured`.
        when: &'static str,
        /// How.
        exit: Exit,
        /// The end of its output.
        last_words: Box<LastWords>,
    },
    /// The command put itself into the background, where it cannot be watched or stopped properly.
    #[error(
        "{title} left the foreground: its first process ended and process {pid} went on; \
         start it in the foreground (nginx: -g 'daemon off;', redis: --daemonize no)"
    )]
    LeftForeground {
        /// The command's short name.
        title: String,
        /// One of the processes left behind.
        pid: i32,
    },
    /// It runs, but does not respond.
    #[error(
        "{title} was not ready at {target} within {waited_s} s (last try: {last_try}; any status below 500 will do, \
         --ready names another sign, --ready-within a longer time); {last_words}"
    )]
    NeverReady {
        /// The command's short name.
        title: String,
        /// The request.
        target: String,
        /// The bound.
        waited_s: u64,
        /// The result of the last attempt.
        last_try: String,
        /// The end of its output.
        last_words: Box<LastWords>,
    },
    /// Ctrl-C while waiting.
    #[error("interrupted")]
    Interrupted,
}

/// Its number is the same everywhere.
pub(crate) const SIGKILL: i32 = 9;

/// The program that has the `launch` subcommand: normally the running `millpond` itself.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// Its path.
    pub program: PathBuf,
}

impl Launcher {
    /// The running program.
    pub fn current() -> io::Result<Self> {
        Ok(Self {
            program: std::env::current_exe()?,
        })
    }
}

/// The supervisor's message (`launch::supervise` has the list).
#[derive(Debug)]
enum News {
    Started(i32),
    Exited(Exit),
    Left(i32),
    Stopped { forced: bool },
}

/// How a target ended on request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StopReport {
    /// True if it ignored SIGTERM and had to be killed.
    pub forced: bool,
    /// From the order to the end of its last process.
    pub duration: Duration,
}

/// A target, from `prepare` until it is stopped or dropped.
#[derive(Debug)]
pub struct Subject {
    title: String,
    log: PathBuf,
    pid: i32,
    supervisor: Child,
    orders: Option<ChildStdin>,
    news: Receiver<News>,
    exited: Option<Exit>,
    left: Option<i32>,
}

impl Subject {
    /// Starts the launcher and leaves the target's process waiting before its first instruction.
    pub fn prepare(
        launcher: &Launcher,
        spec: &LaunchSpec,
        title: &str,
    ) -> Result<Self, SubjectError> {
        let failed = |reason: String| SubjectError::Launcher {
            program: launcher.program.clone(),
            reason,
        };
        let mut supervisor = Command::new(&launcher.program)
            .args(["launch", "supervise"].map(OsString::from))
            .args(spec.to_arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C on the terminal is the lab's to handle; the target must not see it.
            .process_group(0)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let orders = supervisor.stdin.take();
        let Some(stdout) = supervisor.stdout.take() else {
            return Err(failed("it has no output".to_owned()));
        };
        let mut subject = Self {
            title: title.to_owned(),
            log: spec.log.clone(),
            pid: 0,
            supervisor,
            orders,
            news: listen(stdout),
            exited: None,
            left: None,
        };
        match subject.news.recv_timeout(LAUNCHER_TIMEOUT) {
            Ok(News::Started(pid)) => subject.pid = pid,
            other => return Err(failed(format!("it did not report a process ({other:?})"))),
        }
        Ok(subject)
    }

    /// The target's first process. Valid before `go`, and the same after.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Where its output goes.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Lets the target begin.
    pub fn go(&mut self) -> Result<(), SubjectError> {
        self.order("go")
    }

    /// Waits until the response of `probe` is good.
    pub fn wait_ready(
        &mut self,
        probe: &dyn ReadyCheck,
        bound: Duration,
        stop: &AtomicBool,
    ) -> Result<(), SubjectError> {
        let began = Instant::now();
        loop {
            self.hear(Duration::ZERO);
            self.check("ended before it served")?;
            let Err(last_try) = probe.ask(&self.log) else {
                self.hear(EXIT_NEWS);
                return self.ensure_stays("ended before it served");
            };
            if stop.load(Ordering::Relaxed) {
                return Err(SubjectError::Interrupted);
            }
            let bound = match last_try {
                NotReady::NotYet(_) => bound,
                NotReady::NotHttp(_) | NotReady::Handshake(_) => bound.min(OTHER_PROTOCOL_BOUND),
            };
            if began.elapsed() >= bound {
                return Err(SubjectError::NeverReady {
                    title: self.title.clone(),
                    target: probe.to_string(),
                    waited_s: bound.as_secs(),
                    last_try: last_try.to_string(),
                    last_words: Box::new(LastWords::read(&self.log)),
                });
            }
            thread::sleep(PROBE_INTERVAL);
        }
    }

    /// A target that responds may have gone into the background just before: its first process is
    /// gone then, and the supervisor is about to report that.
    pub(crate) fn ensure_stays(&mut self, when: &'static str) -> Result<(), SubjectError> {
        if !process_tree::is_alive(self.pid) {
            let deadline = Instant::now() + LAUNCHER_TIMEOUT;
            while self.exited.is_none() && Instant::now() < deadline {
                self.hear(EXIT_NEWS);
            }
        }
        self.hear(Duration::ZERO);
        self.check(when)
    }

    /// An error with its last words if the target is no longer there.
    pub fn ensure_alive(&mut self) -> Result<(), SubjectError> {
        self.hear(Duration::ZERO);
        self.check("died while it was measured")
    }

    /// How its first process ended; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<Exit> {
        self.hear(Duration::ZERO);
        self.exited
    }

    /// CPU time of everything that this target did and that has ended.
    pub(crate) fn ended_cpu_ns(&self) -> u64 {
        millpond_measure::process::cpu_ns_with_children(self.supervisor.id()).unwrap_or(0)
    }

    /// The target's processes that serve: those that listen on `port`, and those that run the same program (workers of
    /// a node cluster get connections from one that listens). All of its processes if none can be identified.
    #[must_use]
    pub fn serving(&self, port: u16) -> Vec<i32> {
        self.serving_as(|tree| process_tree::listeners(tree, port))
    }

    /// The same of a unix socket at `path`.
    #[must_use]
    pub fn serving_at_path(&self, path: &Path) -> Vec<i32> {
        self.serving_as(|tree| process_tree::listeners_at_path(tree, path))
    }

    fn serving_as(&self, listeners: impl Fn(&[i32]) -> Vec<i32>) -> Vec<i32> {
        let mut tree = process_tree::tree_of(self.pid);
        let program = |pid: i32| fs::read_link(format!("/proc/{pid}/exe")).ok();
        let listening = listeners(&tree);
        let programs: Vec<_> = listening.iter().filter_map(|&pid| program(pid)).collect();
        if !programs.is_empty() {
            tree.retain(|&pid| program(pid).is_some_and(|program| programs.contains(&program)));
        }
        tree
    }

    /// Ends every process of the target, by force after `grace`.
    pub fn stop(mut self, grace: Duration) -> Result<StopReport, SubjectError> {
        self.end(grace)
    }

    fn end(&mut self, grace: Duration) -> Result<StopReport, SubjectError> {
        let began = Instant::now();
        let ordered = self.order(&format!("stop {}", grace.as_millis()));
        // Even without the command: at the end of its stdin the supervisor stops the target.
        drop(self.orders.take());
        ordered?;
        let deadline = began + grace + LAUNCHER_TIMEOUT;
        loop {
            match self
                .news
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(News::Stopped { forced }) => {
                    let duration = began.elapsed();
                    self.collect();
                    return Ok(StopReport { forced, duration });
                }
                Ok(_) => {}
                Err(_) => {
                    self.collect();
                    return Err(SubjectError::Launcher {
                        program: "launch supervise".into(),
                        reason: "it ended without having stopped the target".to_owned(),
                    });
                }
            }
        }
    }

    /// Collects the supervisor, which ends by itself once the target has ended.
    fn collect(&mut self) {
        let deadline = Instant::now() + LAUNCHER_TIMEOUT;
        while matches!(self.supervisor.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                // Its target has PDEATHSIG, so even this leaves no first process behind.
                let _ = self.supervisor.kill();
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    fn order(&mut self, line: &str) -> Result<(), SubjectError> {
        let sent = self
            .orders
            .as_mut()
            .map(|orders| writeln!(orders, "{line}"));
        match sent {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(SubjectError::Launcher {
                program: "launch supervise".into(),
                reason: error.to_string(),
            }),
            None => Err(SubjectError::Launcher {
                program: "launch supervise".into(),
                reason: "it was stopped already".to_owned(),
            }),
        }
    }

    fn hear(&mut self, patience: Duration) {
        loop {
            match self.news.recv_timeout(patience) {
                Ok(News::Exited(exit)) => self.exited = Some(exit),
                Ok(News::Left(pid)) => self.left = Some(pid),
                Ok(News::Started(_) | News::Stopped { .. }) => {}
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => {
                    self.exited = self.exited.or(Some(Exit::Unknown));
                    return;
                }
            }
        }
    }

    fn check(&mut self, when: &'static str) -> Result<(), SubjectError> {
        let Some(exit) = self.exited else {
            return Ok(());
        };
        // A program that puts itself into the background ends well; one that fails while children
        // of it still run has died.
        if let Some(pid) = self.left.filter(|_| exit.is_well()) {
            return Err(SubjectError::LeftForeground {
                title: self.title.clone(),
                pid,
            });
        }
        Err(SubjectError::Ended {
            title: self.title.clone(),
            when,
            exit,
            last_words: Box::new(LastWords::read(&self.log)),
        })
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if self.orders.is_some() {
            // There is nowhere left to report a failure.
            let _ = self.end(DROP_GRACE);
        }
    }
}

/// Reads the supervisor's lines on a thread of its own, which ends with the supervisor.
fn listen(stdout: ChildStdout) -> Receiver<News> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let Some(news) = parse_news(&line) else {
                continue;
            };
            if sender.send(news).is_err() {
                return;
            }
        }
    });
    receiver
}

fn parse_news(line: &str) -> Option<News> {
    let (word, rest) = line.split_once(' ')?;
    match word {
        "pid" => Some(News::Started(rest.parse().ok()?)),
        "left" => Some(News::Left(rest.split(' ').next()?.parse().ok()?)),
        "exited" => Some(News::Exited(Exit::parse(rest)?)),
        "stopped" => Some(News::Stopped {
            forced: rest == "by force",
        }),
        _ => None,
    }
}

// How a process ended.

/// How the first process of a target, or a load program, ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// By itself, with this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// The process that was to say it has ended itself.
    Unknown,
}

impl Exit {
    /// True for a program that has done its work, or handed it over to a process in the background.
    #[must_use]
    pub const fn is_well(self) -> bool {
        matches!(self, Self::Status(0))
    }

    /// From the words of the supervisor: `code 3` or `signal 9`.
    fn parse(words: &str) -> Option<Self> {
        let (kind, number) = words.split_once(' ')?;
        let number = number.parse().ok()?;
        Some(match kind {
            "code" => Self::Status(number),
            _ => Self::Signal(number),
        })
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Status(status) => write!(f, "exit status {status}"),
            Self::Signal(number) => {
                write!(f, "killed by signal {number}")?;
                signal_name(number).map_or(Ok(()), |name| write!(f, ", {name}"))
            }
            Self::Unknown => write!(f, "its supervisor is gone"),
        }
    }
}

// The output of a target before its end.

/// How many last lines of a target's log an error repeats.
const LAST_LINES: usize = 5;
/// How much of the end of a log is read for them: logs of requests are long.
const TAIL_BYTES: u64 = 64 * 1024;
/// Longer lines are cut.
const LINE_CHARACTERS_MAX: usize = 500;

/// The end of a target's log.
#[derive(Clone, Debug)]
pub struct LastWords {
    /// The whole log.
    pub log: PathBuf,
    /// Its last lines, empty ones left out.
    pub lines: Vec<String>,
}

impl LastWords {
    /// Reads the end of `log`; a log that is not there is an empty one.
    #[must_use]
    pub fn read(log: &Path) -> Self {
        let bytes = tail_of(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let written = text.lines().rev().filter(|line| !line.trim().is_empty());
        let cut = |line: &str| line.chars().take(LINE_CHARACTERS_MAX).collect();
        let mut lines: Vec<String> = written.take(LAST_LINES).map(cut).collect();
        lines.reverse();
        Self {
            log: log.to_owned(),
            lines,
        }
    }

    /// Whether a line has one of these in it, in whatever case.
    pub(crate) fn mention(&self, parts: &[&str]) -> bool {
        let mut lines = self.lines.iter().map(|line| line.to_lowercase());
        lines.any(|line| parts.iter().any(|part| line.contains(part)))
    }
}

fn tail_of(log: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl fmt::Display for LastWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lines.is_empty() {
            return write!(f, "it wrote nothing to its log {}", self.log.display());
        }
        let lines = self.lines.join("\n    ");
        write!(
            f,
            "its last words were:\n    {lines}\n  (log: {})",
            self.log.display()
        )
    }
}

#[cfg(test)]
#[path = "tests/subject.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/exit.rs"]
mod exit_tests;

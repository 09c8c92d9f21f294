//! A server with a descriptor limit of its own, whose stdout tells where it listens and whose stderr is kept.

use crate::bench::server::free_address;
use crate::hostile::subject::{Metrics, fetch_metrics};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longest start; a store replays its log, perhaps under strace.
const START_MAX: Duration = Duration::from_secs(60);
/// Bytes of stderr that a failure quotes.
const QUOTED_BYTES_MAX: usize = 2000;

/// How a server is started.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) millpond: PathBuf,
    /// Soft and hard limit of open files (`ulimit -n`).
    pub(crate) descriptors_max: u64,
    /// The command that the server is started behind, such as strace and its flags.
    pub(crate) behind: Vec<String>,
    /// Where stderr goes.
    pub(crate) stderr: PathBuf,
    /// `/metrics` has a listener of its own: it is answered where the main one is full, or a proxy's.
    pub(crate) has_metrics_listener: bool,
}

/// What became of a start.
pub(crate) enum Started {
    Listens(Server),
    /// It ended before it listened.
    Ended(ExitStatus),
}

/// A running server; dropping it kills it.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Where `/metrics` is answered.
    pub(crate) metrics_address: SocketAddr,
    stderr: PathBuf,
}

impl Server {
    /// Starts `millpond WORDS --shards 1 --listen ADDRESS`; an end before it listens is an error.
    pub(crate) fn start(launch: &Launch, words: &[&str]) -> Result<Self, String> {
        Self::start_at(launch, words, None)
    }

    /// The same on an address that is known beforehand.
    pub(crate) fn start_at(
        launch: &Launch,
        words: &[&str],
        address: Option<SocketAddr>,
    ) -> Result<Self, String> {
        match Self::try_start(launch, words, address)? {
            Started::Listens(server) => Ok(server),
            Started::Ended(status) => Err(format!(
                "millpond {} ended with {status} before it listened: {}",
                words.join(" "),
                quoted(&launch.stderr)
            )),
        }
    }

    /// The same, on `address` if one is given, and with an early end told apart from a failure to start at all.
    pub(crate) fn try_start(
        launch: &Launch,
        words: &[&str],
        address: Option<SocketAddr>,
    ) -> Result<Started, String> {
        let (mut command, metrics) = Self::command(launch, words, address)?;
        let spawned = command.spawn();
        let mut child =
            spawned.map_err(|error| format!("{command:?} cannot be started: {error}"))?;
        let stdout = child.stdout.take();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let stdout = stdout.map(BufReader::new);
            for line in stdout
                .into_iter()
                .flat_map(BufRead::lines)
                .map_while(Result::ok)
            {
                // Nobody reads further lines.
                let _ = sender.send(line);
            }
        });
        let begun = Instant::now();
        loop {
            if let Ok(line) = lines.recv_timeout(Duration::from_millis(5)) {
                let Some(address) = line.strip_prefix("listening on ") else {
                    continue;
                };
                let address = reachable(address).map_err(|error| format!("{line}: {error}"))?;
                return Ok(Started::Listens(Self {
                    child,
                    address,
                    metrics_address: metrics.unwrap_or(address),
                    stderr: launch.stderr.clone(),
                }));
            }
            if let Ok(Some(status)) = child.try_wait() {
                return Ok(Started::Ended(status));
            }
            if begun.elapsed() > START_MAX {
                // The error is what counts.
                let (_, _) = (child.kill(), child.wait());
                return Err(format!("{command:?} does not listen after {START_MAX:?}"));
            }
        }
    }

    fn command(
        launch: &Launch,
        words: &[&str],
        address: Option<SocketAddr>,
    ) -> Result<(Command, Option<SocketAddr>), String> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "prlimit"]);
        let descriptors_max = launch.descriptors_max;
        command.arg(format!("--nofile={descriptors_max}:{descriptors_max}"));
        command
            .args(&launch.behind)
            .arg(&launch.millpond)
            .args(words);
        command.args(["--shards", "1", "--listen"]);
        command.arg(address.map_or("127.0.0.1:0".to_owned(), |address| address.to_string()));
        let metrics = match launch.has_metrics_listener {
            true => Some(free_address()?),
            false => None,
        };
        if let Some(metrics) = metrics {
            command.args(["--metrics-listen", &metrics.to_string()]);
        }
        let stderr = File::create(&launch.stderr)
            .map_err(|error| format!("{}: {error}", launch.stderr.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr);
        Ok((command, metrics))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn metrics(&self) -> Result<Metrics, String> {
        fetch_metrics(self.metrics_address)
    }

    /// What the server has written to stderr so far, its end if it is long.
    pub(crate) fn said(&self) -> String {
        quoted(&self.stderr)
    }

    /// The exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// SIGTERM, and the exit status; an error if it does not end within `time_max`.
    pub(crate) fn stop(&mut self, time_max: Duration) -> Result<ExitStatus, String> {
        self.signal(Signal::TERM);
        let begun = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            if begun.elapsed() > time_max {
                return Err(format!(
                    "the server has not ended {time_max:?} after SIGTERM: {}",
                    self.said()
                ));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// SIGKILL, as when a process is ended for want of memory.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        // It was started by us: the status can be had, and says nothing new.
        let _ = self.child.wait();
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            // A server that has ended shows by its status.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let (_, _) = (self.child.kill(), self.child.wait());
    }
}

/// The address that clients of this machine take.
fn reachable(listening: &str) -> Result<SocketAddr, std::net::AddrParseError> {
    let mut address: SocketAddr = listening.parse()?;
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    Ok(address)
}

/// A file of text, as one quotes it in a sentence: its end, if it is long.
pub(crate) fn quoted(file: &Path) -> String {
    let text = text_of(file);
    let from = text.len().saturating_sub(QUOTED_BYTES_MAX);
    let from = (from..text.len()).find(|at| text.is_char_boundary(*at));
    let end = &text[from.unwrap_or_default()..];
    format!("stderr: {}", end.trim().replace('\n', " | "))
}

/// All of it.
pub(crate) fn text_of(file: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
}

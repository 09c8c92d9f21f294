//! A server with a descriptor limit of its own, whose stdout says where it listens and whose stderr is kept.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::bench::server::free_address;
use crate::hostile::subject::{Metrics, fetch_metrics};

use super::client::Client;
use super::scene::{Extra, Outcome, Scene};

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
    /// `/metrics` has a listener of its own, which works while the main one or a proxy's is full.
    pub(crate) has_metrics_listener: bool,
}

/// The outcome of a start.
pub(crate) enum Started {
    Listens(Server),
    /// It ended before it listened.
    Ended(ExitStatus),
}

/// A running server; dropping it kills it.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Where `/metrics` is served.
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

    /// The same, on `address` if one is given, and with an early end distinguished from a failure to start at all.
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
                // Further lines are not read.
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

    /// The server's stderr so far, the end of it if it is long.
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

    /// SIGKILL, as when a process is ended for lack of memory.
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

// A proxy that is its own upstream: one request looped until 2,000 descriptors were open.

/// Sockets of one request that goes round once, twice over, and those of `/metrics`.
const SOCKETS_MAX: u64 = 16;

pub(super) fn run(scene: &Scene) -> Result<Outcome, String> {
    let address = free_address()?;
    let upstream = address.to_string();
    let mut stage = scene.stage(&["proxy", "--upstream", &upstream], Some(address))?;
    let mut client = Client::new(address);
    for _ in 0..scene.count(5, 50) {
        let answer = client.get("/")?;
        if answer.status != 508 {
            return Err(format!(
                "a request that goes round is answered {}",
                answer.status
            ));
        }
    }
    client.close();
    let extra = Extra {
        sockets_max: Some(SOCKETS_MAX),
        ..Extra::default()
    };
    let judged = stage.judge(extra, &json!({ "status": 508 }))?;
    stage.stop(super::scene::STOP_MAX)?;
    Ok(Outcome::Stood(judged))
}

// A server behind the proxy: it responds at once, late, or with a change of protocol.

/// Longer than any attack, shorter than the proxy's own `--first-byte-timeout`.
const LATE: Duration = Duration::from_secs(40);
/// A thread for each connection needs little of a stack.
const STACK_BYTES: usize = 64 << 10;
/// A head of the proxy's is a few hundred bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

pub(crate) const AT_ONCE: &str = "/now";
pub(super) const LATE_PATH: &str = "/late";
pub(super) const UPGRADE_PATH: &str = "/upgrade";

/// It listens until this process ends.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    open: AtomicU64,
    late_requests: AtomicU64,
    upgrades: AtomicU64,
    /// Connections that were closed while their response was due.
    cancelled: AtomicU64,
}

impl Upstream {
    pub(crate) fn start() -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("the upstream cannot listen: {error}");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let counters = Arc::new(Counters::default());
        let of_all = Arc::clone(&counters);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counters = Arc::clone(&of_all);
                counters.open.fetch_add(1, Ordering::Relaxed);
                let serve = move || {
                    // A connection that ends is one that the proxy closed.
                    let _ = serve(stream, &counters);
                    counters.open.fetch_sub(1, Ordering::Relaxed);
                };
                let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
                if let Err(error) = thread.spawn(serve) {
                    eprintln!("the upstream has no thread: {error}");
                }
            }
        });
        Ok(Self { address, counters })
    }

    /// Connections that stand.
    pub(super) fn open(&self) -> u64 {
        self.counters.open.load(Ordering::Relaxed)
    }

    /// Connections that changed to another protocol, whether they still stand or not.
    pub(super) fn upgrades(&self) -> u64 {
        self.counters.upgrades.load(Ordering::Relaxed)
    }

    pub(super) fn late_requests(&self) -> u64 {
        self.counters.late_requests.load(Ordering::Relaxed)
    }

    /// Late requests whose connection was closed before their response.
    pub(super) fn cancelled(&self) -> u64 {
        self.counters.cancelled.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: TcpStream, counters: &Counters) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
            let mut part = [0; 1024];
            match stream.read(&mut part)? {
                0 => return Ok(()),
                count => head.extend_from_slice(&part[..count]),
            }
        }
        let head = String::from_utf8_lossy(&head);
        let path = head.split(' ').nth(1).unwrap_or_default();
        if path == UPGRADE_PATH {
            counters.upgrades.fetch_add(1, Ordering::Relaxed);
            stream.write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            )?;
            // Until the proxy closes it.
            std::io::copy(&mut stream, &mut std::io::sink())?;
            return Ok(());
        }
        if path == LATE_PATH && is_closed_before(&mut stream, counters)? {
            return Ok(());
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
    }
}

/// Waits until a late response is due; whether the connection is closed before.
fn is_closed_before(stream: &mut TcpStream, counters: &Counters) -> std::io::Result<bool> {
    counters.late_requests.fetch_add(1, Ordering::Relaxed);
    stream.set_read_timeout(Some(LATE))?;
    let read = stream.read(&mut [0; 1]);
    let is_closed = read.is_ok_and(|count| count == 0);
    counters
        .cancelled
        .fetch_add(u64::from(is_closed), Ordering::Relaxed);
    stream.set_read_timeout(None)?;
    Ok(is_closed)
}

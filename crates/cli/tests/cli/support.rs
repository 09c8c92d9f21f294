//! Starting `millpond` and other programs, and waiting for them with a bound.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Far beyond what anything here takes, also beside a compiler on each processor, so that only a hang
/// ends as a failure.
const PATIENCE: Duration = Duration::from_secs(300);

/// `millpond` with these words.
pub(crate) fn millpond(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    command.args(words).stdin(Stdio::null());
    // Tests run beside each other, and none of them measures.
    command.env("MILLPOND_LOCK", "");
    command
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Finished {
    Running::start(command).finish()
}

/// A program on its way; killed if a test fails before its end.
pub(crate) struct Running {
    child: Child,
    stdout: Option<Collected>,
    stderr: Option<Collected>,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("{self:?}"))
    }

    /// The one line of stderr of a command that failed.
    pub(crate) fn sentence(&self) -> &str {
        let text = self.stderr.trim_end();
        let sentence = text
            .strip_prefix("millpond: ")
            .unwrap_or_else(|| panic!("{self:?}"));
        assert!(!sentence.contains('\n'), "more than one line: {self:?}");
        sentence
    }
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().map(collect);
        Self {
            child,
            stdout: None,
            stderr,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The first line of stdout; the rest is collected.
    pub(crate) fn first_line(&mut self) -> String {
        self.until_line_with("")
    }

    /// Stdout up to the first line that contains `text`, however long that takes; the rest is
    /// collected.
    pub(crate) fn until_line_with(&mut self, text: &str) -> String {
        let mut reader = BufReader::new(self.child.stdout.take().unwrap());
        let mut read = String::new();
        loop {
            let start = read.len();
            let size_bytes = reader.read_line(&mut read).unwrap();
            assert!(size_bytes > 0, "ended without `{text}`: {read}");
            if read[start..].contains(text) {
                self.stdout = Some(collect(reader));
                return read;
            }
        }
    }

    /// Its stdout until now, after the part that was read line by line.
    pub(crate) fn stdout_so_far(&self) -> String {
        self.stdout.as_ref().map(Collected::so_far).unwrap()
    }

    /// Its stderr until now.
    pub(crate) fn stderr_so_far(&self) -> String {
        self.stderr.as_ref().map(Collected::so_far).unwrap()
    }

    /// Sends a signal by name, as a shell would.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(
            Command::new("kill")
                .args([&format!("-{name}"), &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    pub(crate) fn finish(mut self) -> Finished {
        if let Some(stdout) = self.child.stdout.take() {
            self.stdout = Some(collect(stdout));
        }
        let status = self.wait();
        let text = |reader: Option<Collected>| reader.unwrap().whole();
        let (stdout, stderr) = (text(self.stdout.take()), text(self.stderr.take()));
        Finished {
            status,
            stdout,
            stderr,
        }
    }

    fn wait(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "still running after {PATIENCE:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The output that is read from a program while it runs.
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Collected {
    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    fn whole(self) -> String {
        self.reader.join().unwrap();
        let bytes = std::mem::take(&mut *self.bytes.lock().unwrap());
        String::from_utf8(bytes).unwrap()
    }
}

fn collect(mut from: impl Read + Send + 'static) -> Collected {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&bytes);
    let reader = std::thread::spawn(move || {
        let mut room = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut room) {
            into.lock().unwrap().extend_from_slice(&room[..count]);
        }
    });
    Collected { bytes, reader }
}

/// Waits for what must happen; only a hang reaches the bound.
pub(crate) fn eventually(what: &str, mut has_happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !has_happened() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A port that no other program takes before the one that gets its number: outside the range that the kernel gives
/// away, and of no other test, since each keeps a name for its port until it ends.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = millpond_lab::port::choose().unwrap();
        let name = UnixAddress::from_abstract_name(format!("millpond-test-port-{port}")).unwrap();
        if let Ok(kept) = UnixListener::bind_addr(&name) {
            std::mem::forget(kept);
            return port;
        }
    }
}

/// An address that refuses connections, as long as what comes with it is kept: the near end of a
/// connection, whose port no other program can listen on.
pub(crate) fn refusing_address() -> (SocketAddr, (TcpListener, TcpStream)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (stream.local_addr().unwrap(), (listener, stream))
}

/// wrk under way, for as long as the test needs it.
pub(crate) struct Wrk(Running);

impl Wrk {
    pub(crate) fn start(connections: &str, url: &str) -> Self {
        let words = [
            "-t",
            "1",
            "-c",
            connections,
            "-d",
            "1h",
            "--timeout",
            "1m",
            url,
        ];
        Self(Running::start(
            Command::new("wrk").args(words).stdin(Stdio::null()),
        ))
    }

    /// Ends it as Ctrl-C does, and checks that it saw no error. It must have had a response before.
    pub(crate) fn finish(mut self) {
        let status = format!("/proc/{}/status", self.0.pid());
        eventually("wrk takes its interruption", || {
            let text = std::fs::read_to_string(&status).unwrap();
            let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
            caught & 1 << (libc::SIGINT - 1) != 0
        });
        // A signal between its last preparations and its sleep does not end that sleep; the next does.
        eventually("wrk's end", || {
            self.0.signal("INT");
            self.0.child.try_wait().unwrap().is_some()
        });
        let finished = self.0.finish();
        let text = &finished.stdout;
        assert!(finished.status.success(), "{finished:?}");
        assert!(text.contains("requests in"), "{text}");
        assert!(
            !text.contains("errors") && !text.contains("Non-2xx"),
            "{text}"
        );
    }
}

/// `millpond serve ...` on a free port.
pub(crate) struct Server {
    pub(crate) process: Running,
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    /// Of a proxy, whose metrics have a listener of their own.
    metrics: Option<TempDir>,
}

impl Server {
    pub(crate) fn start(words: &[&str]) -> Self {
        Self::of(&mut millpond(&["serve"]), words)
    }

    /// `millpond proxy ...` on a free port.
    pub(crate) fn start_proxy(words: &[&str]) -> Self {
        let metrics = tempfile::tempdir().unwrap();
        let listen = format!("unix:{}", metrics.path().join("socket").display());
        let words = [words, &["--metrics-listen", &listen]].concat();
        Self {
            metrics: Some(metrics),
            ..Self::of(&mut millpond(&["proxy"]), &words)
        }
    }

    /// As from a terminal, even where the tests themselves were started to outlive one (`nohup`).
    pub(crate) fn start_at_a_terminal(words: &[&str]) -> Self {
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_millpond")]);
        Self::of(command.arg("serve").stdin(Stdio::null()), words)
    }

    fn of(command: &mut Command, words: &[&str]) -> Self {
        command.args(words).args(["--listen", "127.0.0.1:0"]);
        if !words.contains(&"--shards") {
            command.args(["--shards", "1"]);
        }
        let mut process = Running::start(command);
        let line = process.first_line();
        let address = line.trim().strip_prefix("listening on ").map(str::to_owned);
        let Some(address) = address else {
            panic!("{:?}", process.finish())
        };
        Self::running(process, address)
    }

    /// One that was started in another way.
    pub(crate) fn running(process: Running, address: String) -> Self {
        Self {
            process,
            address,
            metrics: None,
        }
    }

    /// The words that make curl read the metrics.
    pub(crate) fn metrics_words(&self) -> Vec<String> {
        let Some(directory) = &self.metrics else {
            return vec![self.url("/metrics")];
        };
        let socket = directory.path().join("socket").display().to_string();
        vec![
            "--unix-socket".to_owned(),
            socket,
            "http://metrics/metrics".to_owned(),
        ]
    }

    pub(crate) fn metrics_text(&self) -> String {
        let words = self.metrics_words();
        let (status, text) = curl(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(status, 200);
        String::from_utf8(text).unwrap()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// Runs one of the other programs that tests talk to the servers with.
pub(crate) fn peer(program: &str, words: &[&str]) -> Output {
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output();
    output.unwrap_or_else(|error| panic!("{program}: {error} (scripts/setup test installs it)"))
}

/// Status and body of a request made by curl.
pub(crate) fn curl(words: &[&str]) -> (u16, Vec<u8>) {
    let output = peer(
        "curl",
        &[&["-s", "-w", "%{stderr}%{http_code}"], words].concat(),
    );
    let status = String::from_utf8_lossy(&output.stderr);
    let status = status
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("curl {words:?}: {output:?}"));
    (status, output.stdout)
}

//! One server after the other on the same address, under load: no request fails.

use crate::support::{Running, millpond};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Where the servers listen.
#[derive(Clone)]
enum Place {
    Port(String),
    Path(PathBuf),
}

/// A connection to the process that listens there now.
trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Place {
    fn connect(&self) -> Result<Box<dyn Stream>> {
        // Only a hang takes so long.
        let patience = Some(Duration::from_secs(100));
        Ok(match self {
            Self::Port(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(patience)?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Self::Path(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(patience)?;
                Box::new(stream)
            }
        })
    }
}

/// One exchange; true when the server keeps the connection.
fn exchange(stream: &mut dyn Stream, persistence: &str) -> Result<bool> {
    let request =
        format!("GET /plaintext HTTP/1.1\r\nHost: a\r\nConnection: {persistence}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut room = [0; 4096];
    while !answer.ends_with(b"Hello, World!") {
        match stream.read(&mut room)? {
            0 => {
                let text = String::from_utf8_lossy(&answer).into_owned();
                return Err(Error::new(ErrorKind::UnexpectedEof, text));
            }
            count => answer.extend_from_slice(&room[..count]),
        }
    }
    let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    if text.starts_with("http/1.1 200 ") {
        Ok(!text.contains("connection: close"))
    } else {
        Err(Error::other(text))
    }
}

/// Clients that count what they got and keep what went wrong.
struct Crowd {
    place: Place,
    is_over: AtomicBool,
    answers: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Crowd {
    /// A connection for each request.
    fn ask_once_each(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let outcome = self
                .place
                .connect()
                .and_then(|mut stream| exchange(&mut *stream, "close"));
            self.note("one by one", outcome.map(|_| ()));
        }
    }

    /// One connection for as long as the server keeps it, with pauses. A server that announces the
    /// end of a connection is obeyed; one that ends it without has failed.
    fn keep_asking(&self, pause: Duration) {
        while !self.is_over.load(Ordering::Relaxed) {
            let outcome = self.place.connect().and_then(|mut stream| {
                while exchange(&mut *stream, "keep-alive")? && !self.is_over.load(Ordering::Relaxed)
                {
                    self.note("kept", Ok(()));
                    std::thread::sleep(pause);
                }
                Ok(())
            });
            self.note("kept", outcome);
        }
    }

    fn note(&self, kind: &str, outcome: Result<()>) {
        match outcome {
            Ok(()) => {
                self.answers.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => self
                .failures
                .lock()
                .unwrap()
                .push(format!("{kind}: {error:?}")),
        }
    }

    /// Until so many responses more have come.
    fn wait_for(&self, more: u64) {
        let until = self.answers.load(Ordering::Relaxed) + more;
        while self.answers.load(Ordering::Relaxed) < until
            && self.failures.lock().unwrap().is_empty()
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn start(listen: &str, driver: &str, shards: &str) -> (Running, String) {
    let words = [
        "serve",
        "plaintext",
        "--reuse-port",
        "--no-pin",
        // No client is cut off because it was held up.
        "--drain-timeout",
        "10m",
        "--idle-timeout",
        "10m",
        "--listen",
        listen,
    ];
    let mut process =
        Running::start(millpond(&words).args(["--driver", driver, "--shards", shards]));
    let line = process.first_line();
    let address = line.trim().strip_prefix("listening on ").map(str::to_owned);
    let Some(address) = address else {
        panic!("{:?}", process.finish())
    };
    (process, address)
}

/// Starts one after the other, with as many shards as named, stopping the one before each time.
fn hand_over(listen: &str, driver: &str, shards: &[&str]) {
    let (mut current, address) = start(listen, driver, shards[0]);
    let place = match address.strip_prefix("unix:") {
        Some(path) => Place::Path(PathBuf::from(path)),
        None => Place::Port(address.clone()),
    };
    let crowd = Crowd {
        place,
        is_over: AtomicBool::new(false),
        answers: AtomicU64::new(0),
        failures: Mutex::new(Vec::new()),
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| crowd.ask_once_each());
        }
        scope.spawn(|| crowd.keep_asking(Duration::ZERO));
        scope.spawn(|| crowd.keep_asking(Duration::from_millis(10)));
        scope.spawn(|| crowd.keep_asking(Duration::from_millis(100)));
        for next_shards in &shards[1..] {
            crowd.wait_for(100);
            let (next, _) = start(&address, driver, next_shards);
            crowd.wait_for(100);
            current.signal("TERM");
            let finished = std::mem::replace(&mut current, next).finish();
            if finished.code() != 0 {
                crowd.failures.lock().unwrap().push(format!("{finished:?}"));
            }
        }
        crowd.wait_for(100);
        crowd.is_over.store(true, Ordering::Relaxed);
    });
    let failures = crowd.failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{driver} {shards:?}: {failures:?}");
}

/// Goal: a port changes hands between servers with any numbers of shards, and clients with and
/// without keep-alive, busy and idle, notice nothing.
#[test]
fn no_request_fails_while_a_port_changes_hands() {
    for driver in ["auto", "epoll"] {
        hand_over("127.0.0.1:0", driver, &["2", "2", "1", "4"]);
    }
}

/// Goal: the same for a path in the file system.
#[test]
fn no_request_fails_while_a_path_changes_hands() {
    let directory = tempfile::tempdir().unwrap();
    for driver in ["auto", "epoll"] {
        let listen = format!("unix:{}", directory.path().join(driver).display());
        hand_over(&listen, driver, &["1", "2"]);
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
}

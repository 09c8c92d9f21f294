//! The hostile clients themselves: many connections that all behave alike, in a process of their own.
//!
//! The parent starts it as `bench-suite hostile-crowd NAME ADDRESS COUNT`, reads `ready` once every
//! connection was tried, and closes its stdin to end it; then it prints what became of it, as JSON.
//! Sockets are plain and do not block; one thread goes round.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, sockopt};
use serde_json::{Value, json};

use crate::bench::lasting;

use super::attack::Attack;
use super::exchanges::Answers;
use super::subject::Subject;

/// A server that does not take a connection in so long counts as refusing it.
const CONNECT_MAX: Duration = Duration::from_millis(500);
/// New connections of one round: the others want their turn.
const CONNECTS_PER_ROUND_MAX: usize = 256;
/// When nothing moved, there is no hurry.
const NOTHING_MOVED: Duration = Duration::from_micros(200);

/// The behaviour of a connection once its opening is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Then {
    /// It continues with `repeat`, if anything.
    GoOn,
    /// It says that it has no more to say, and reads.
    HalfClose,
    /// It breaks off.
    Reset,
}

/// How every connection of a crowd behaves.
#[derive(Debug)]
pub(super) struct Behaviour {
    /// The first bytes of each connection, by its number.
    pub(super) opening: fn(u64) -> Vec<u8>,
    /// The repeated bytes after that.
    pub(super) repeat: Vec<u8>,
    /// So much of it in one round.
    pub(super) bytes_per_round: usize,
    /// Between two rounds.
    pub(super) pace: Duration,
    /// Whether it reads its responses.
    pub(super) reads: bool,
    pub(super) then: Then,
    /// Comes from another address than all other clients.
    pub(super) from_elsewhere: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            opening: |_| Vec::new(),
            repeat: Vec::new(),
            bytes_per_round: usize::MAX,
            pace: Duration::from_millis(5),
            reads: true,
            then: Then::GoOn,
            from_elsewhere: false,
        }
    }
}

/// The outcome of a crowd.
#[derive(Debug, Default)]
struct Tally {
    opened: u64,
    not_opened: u64,
    /// Closed by the server, between two responses.
    closed: u64,
    /// Closed by the server in the middle of a response.
    cut: u64,
    reset: u64,
    sent_bytes: u64,
    received_bytes: u64,
    statuses: BTreeMap<u16, u64>,
}

impl Tally {
    fn to_json(&self) -> Value {
        let statuses: BTreeMap<String, u64> = self
            .statuses
            .iter()
            .map(|(status, count)| (status.to_string(), *count))
            .collect();
        json!({
            "opened": self.opened,
            "not_opened": self.not_opened,
            "closed": self.closed,
            "cut": self.cut,
            "reset": self.reset,
            "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
            "statuses": statuses,
        })
    }
}

/// One connection.
struct Client {
    stream: TcpStream,
    /// The bytes being sent; the opening first, then `repeat`.
    saying: Vec<u8>,
    at: usize,
    is_opening: bool,
    answers: Answers,
}

/// The effect of a round on a connection.
enum Moved {
    Yes,
    No,
    /// It is over.
    Gone,
}

/// Runs a crowd of `count` until stdin ends, and prints its tally.
pub(super) fn run(behaviour: &Behaviour, address: SocketAddr, count: usize) -> Result<(), String> {
    let is_over = Arc::new(AtomicBool::new(false));
    let watch = Arc::clone(&is_over);
    std::thread::spawn(move || {
        let mut rest = Vec::new();
        // Whether it ends or breaks: the parent wants no more of this.
        let _ = std::io::stdin().read_to_end(&mut rest);
        watch.store(true, Ordering::Relaxed);
    });
    let mut crowd: Vec<Option<Client>> = (0..count).map(|_| None).collect();
    let (mut tally, mut scratch) = (Tally::default(), vec![0; 64 * 1024]);
    let (mut serial, mut tried_count) = (0, 0);
    let mut is_ready = false;
    while !is_over.load(Ordering::Relaxed) {
        let (mut has_moved, mut connects_left) = (false, CONNECTS_PER_ROUND_MAX);
        for place in &mut crowd {
            if place.is_none() && connects_left > 0 {
                (connects_left, serial, tried_count) =
                    (connects_left - 1, serial + 1, tried_count + 1);
                *place = Client::connect(behaviour, address, serial, &mut tally);
            }
            let Some(client) = place else {
                continue;
            };
            match client.round(behaviour, &mut scratch, &mut tally) {
                Moved::Yes => has_moved = true,
                Moved::No => {}
                Moved::Gone => *place = None,
            }
        }
        if !is_ready && tried_count >= count {
            is_ready = true;
            println!("ready");
        }
        let rest = if has_moved || !is_ready {
            Duration::ZERO
        } else {
            NOTHING_MOVED
        };
        std::thread::sleep(if is_ready {
            behaviour.pace.max(rest)
        } else {
            rest
        });
    }
    if behaviour.reads {
        read_what_came(&mut crowd, &mut scratch, &mut tally);
    }
    println!("{}", tally.to_json());
    Ok(())
}

/// The bytes that the server has sent before the parent had seen enough, also if the crowd, which
/// comes last on its CPU, had no turn since.
fn read_what_came(crowd: &mut [Option<Client>], scratch: &mut [u8], tally: &mut Tally) {
    for place in crowd {
        while let Some(client) = place {
            match client.read(scratch, tally) {
                Moved::Yes if client.answers.is_inside() => {}
                Moved::Yes | Moved::No => break,
                Moved::Gone => *place = None,
            }
        }
    }
}

impl Client {
    fn connect(
        behaviour: &Behaviour,
        address: SocketAddr,
        serial: u64,
        tally: &mut Tally,
    ) -> Option<Self> {
        let stream = match connect(address, behaviour.from_elsewhere) {
            Ok(stream) => stream,
            Err(_) => {
                tally.not_opened += 1;
                return None;
            }
        };
        tally.opened += 1;
        Some(Self {
            stream,
            saying: (behaviour.opening)(serial),
            at: 0,
            is_opening: true,
            answers: Answers::default(),
        })
    }

    fn round(&mut self, behaviour: &Behaviour, scratch: &mut [u8], tally: &mut Tally) -> Moved {
        let mut has_moved = false;
        if behaviour.reads {
            match self.read(scratch, tally) {
                Moved::Yes => has_moved = true,
                Moved::No => {}
                Moved::Gone => return Moved::Gone,
            }
        }
        if self.is_opening && self.at == self.saying.len() {
            self.is_opening = false;
            match behaviour.then {
                Then::GoOn => {}
                Then::HalfClose => {
                    // A closed connection already shows when it is read.
                    let _ = self.stream.shutdown(Shutdown::Write);
                }
                Then::Reset => {
                    // Without lingering, closing discards what is under way and sends RST.
                    let _ = sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
                    return Moved::Gone;
                }
            }
            self.saying.clone_from(&behaviour.repeat);
            self.at = 0;
        }
        match self.write(behaviour, tally) {
            Moved::No if has_moved => Moved::Yes,
            moved => moved,
        }
    }

    fn read(&mut self, scratch: &mut [u8], tally: &mut Tally) -> Moved {
        match self.stream.read(scratch) {
            Ok(0) => {
                match self.answers.is_inside() {
                    true => tally.cut += 1,
                    false => tally.closed += 1,
                }
                Moved::Gone
            }
            Ok(count) => {
                tally.received_bytes += count as u64;
                self.answers.take(&scratch[..count], &mut tally.statuses);
                Moved::Yes
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Moved::No,
            Err(_) => {
                tally.reset += 1;
                Moved::Gone
            }
        }
    }

    fn write(&mut self, behaviour: &Behaviour, tally: &mut Tally) -> Moved {
        if self.saying.is_empty() {
            return Moved::No;
        }
        // The opening goes out whole: only what follows is slow.
        let most = if self.is_opening {
            usize::MAX
        } else {
            behaviour.bytes_per_round
        };
        let left = &self.saying[self.at..];
        match self.stream.write(&left[..left.len().min(most)]) {
            Ok(count) => {
                tally.sent_bytes += count as u64;
                self.at += count;
                if !self.is_opening && self.at == self.saying.len() {
                    self.at = 0;
                }
                Moved::Yes
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Moved::No,
            Err(_) => {
                // The server's bytes before its close count, if they are read.
                let mut scratch = [0; 4096];
                while behaviour.reads && matches!(self.read(&mut scratch, tally), Moved::Yes) {}
                if !behaviour.reads {
                    tally.reset += 1;
                }
                Moved::Gone
            }
        }
    }
}

/// A connection that does not block, small buffers towards clients that do not read.
fn connect(address: SocketAddr, from_elsewhere: bool) -> std::io::Result<TcpStream> {
    let stream = if from_elsewhere {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0)))?;
        rustix::net::connect(&socket, &address)?;
        TcpStream::from(socket)
    } else {
        TcpStream::connect_timeout(&address, CONNECT_MAX)?
    };
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

// The process with the hostile clients, from the side of its parent; see `crowd` for the other.

/// The process with the hostile clients; dropping it ends it.
pub(super) struct CrowdProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl CrowdProcess {
    pub(super) fn start(
        attack: &Attack,
        subject: &Subject,
        cpu: usize,
        count: usize,
    ) -> Result<Self, String> {
        let myself = std::env::current_exe().map_err(|error| format!("who am I: {error}"))?;
        let mut command: Command = lasting(cpu);
        command.args(["nice", "-n", "10"]).arg(myself);
        command.args(["hostile-crowd", attack.name]);
        command.args([subject.address.to_string(), count.to_string()]);
        let cannot = |what: &str| format!("the crowd has no {what}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{command:?} cannot be started: {error}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or_else(|| cannot("stdout"))?;
        Ok(Self {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        })
    }

    pub(super) fn wait_ready(&mut self) -> Result<(), String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line) {
            Ok(_) if line == "ready\n" => Ok(()),
            other => Err(format!("the crowd is not ready: {other:?} {line}")),
        }
    }

    pub(super) fn finish(&mut self) -> Result<Value, String> {
        drop(self.stdin.take());
        let mut text = String::new();
        let read = self.stdout.read_to_string(&mut text);
        read.map_err(|error| format!("the crowd's tally: {error}"))?;
        serde_json::from_str(&text).map_err(|error| format!("the crowd's tally {text}: {error}"))
    }
}

impl Drop for CrowdProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

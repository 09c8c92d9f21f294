//! One thread, one queue: connections through epoll, responses when they are due.

use crate::Config;
use crate::arrivals::Arrivals;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const HEAD_END: &[u8] = b"\r\n\r\n";
const LISTENER: u64 = u64::MAX;
const SECOND_NS: u64 = 1_000_000_000;

struct Connection {
    stream: TcpStream,
    /// An incomplete head.
    partial: Vec<u8>,
    /// Which of the connections that had this place it is.
    generation: u64,
}

/// A response that is due.
struct Due {
    at_ns: u64,
    place: usize,
    generation: u64,
    text: Option<String>,
    /// The peer wants the connection closed after it.
    closes: bool,
}

/// The server.
pub(crate) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    epoll: OwnedFd,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    open: usize,
    open_most: usize,
    accepted: u64,
    queue: VecDeque<Due>,
    service_ns: u64,
    /// When the request at the end of the queue is done.
    busy_until_ns: u64,
    arrivals: Arrivals,
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The monotonic clock begins at 0.
    now.tv_sec.cast_unsigned() * SECOND_NS + now.tv_nsec.cast_unsigned()
}

impl Server {
    pub(crate) fn bind(config: &Config) -> io::Result<Self> {
        let listener = TcpListener::bind(config.listen)?;
        // The standard library's backlog is 128, which a flood of connections overflows.
        rustix::net::listen(&listener, 4096)?;
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &listener,
            EventData::new_u64(LISTENER),
            EventFlags::IN,
        )?;
        // Wakes are to be late by what the kernel takes, not by what it may save.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            epoll,
            connections: Vec::new(),
            free: Vec::new(),
            open: 0,
            open_most: 0,
            accepted: 0,
            queue: VecDeque::new(),
            service_ns: config.service_ns,
            busy_until_ns: 0,
            arrivals: Arrivals::with_capacity(config.recorded),
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Until it is killed.
    pub(crate) fn serve(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            let timeout = self.queue.front().map(|due| {
                let left_ns = due.at_ns.saturating_sub(now_ns());
                Timespec {
                    tv_sec: (left_ns / SECOND_NS) as i64,
                    tv_nsec: (left_ns % SECOND_NS) as i64,
                }
            });
            events.clear();
            let buffer = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, buffer, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    place => self.receive(place as usize),
                }
            }
            self.answer_due();
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let place = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            epoll::add(
                &self.epoll,
                &stream,
                EventData::new_u64(place as u64),
                EventFlags::IN,
            )?;
            self.accepted += 1;
            self.open += 1;
            self.open_most = self.open_most.max(self.open);
            self.connections[place] = Some(Connection {
                stream,
                partial: Vec::new(),
                generation: self.accepted,
            });
        }
    }

    fn receive(&mut self, place: usize) {
        let Some(connection) = &mut self.connections[place] else {
            return;
        };
        let mut buffer = [0; 16 << 10];
        let count = match connection.stream.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Ok(0) | Err(_) => return self.close(place),
            Ok(count) => count,
        };
        let now_ns = now_ns();
        let generation = connection.generation;
        connection.partial.extend_from_slice(&buffer[..count]);
        let mut heads = std::mem::take(&mut connection.partial);
        let mut from = 0;
        while let Some(end) = heads[from..].windows(4).position(|four| four == HEAD_END) {
            let head = String::from_utf8_lossy(&heads[from..from + end]).into_owned();
            from += end + HEAD_END.len();
            self.enqueue(place, generation, &head, now_ns);
        }
        heads.drain(..from);
        if let Some(connection) = &mut self.connections[place] {
            connection.partial = heads;
        }
    }

    fn enqueue(&mut self, place: usize, generation: u64, head: &str, now_ns: u64) {
        let target = head.split(' ').nth(1).unwrap_or_default();
        let text = target.strip_prefix("/arrivals?interval_ns=").map(|digits| {
            let interval_ns = digits.parse().unwrap_or(0);
            self.arrivals.describe(interval_ns, self.open_most)
        });
        if text.is_none() {
            self.arrivals.record(now_ns);
            self.busy_until_ns = self.busy_until_ns.max(now_ns) + self.service_ns;
        }
        self.queue.push_back(Due {
            at_ns: self.busy_until_ns.max(now_ns),
            place,
            generation,
            text,
            closes: head.to_ascii_lowercase().contains("\r\nconnection: close"),
        });
    }

    fn answer_due(&mut self) {
        let now_ns = now_ns();
        while let Some(due) = self.queue.pop_front_if(|due| due.at_ns <= now_ns) {
            let Some(connection) = &mut self.connections[due.place] else {
                continue;
            };
            if connection.generation != due.generation {
                continue;
            }
            let written = match &due.text {
                None => connection.stream.write_all(ANSWER),
                Some(text) => write!(
                    connection.stream,
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
                    text.len()
                ),
            };
            // A peer that asks and does not read is not served any further.
            if written.is_err() || due.closes {
                self.close(due.place);
            }
        }
    }

    fn close(&mut self, place: usize) {
        if self.connections[place].take().is_some() {
            self.open -= 1;
            self.free.push(place);
        }
    }
}

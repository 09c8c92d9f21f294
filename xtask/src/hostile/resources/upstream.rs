//! A server behind the proxy: it answers at once, late, or with a change of protocol.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
    /// Connections that were closed while their answer was due.
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

    /// Late requests whose connection was closed before their answer.
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

/// Waits until a late answer is due; whether the connection is closed before.
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

//! What accepted connections have from their listener, set once for all of them.
//!
//! Place: `listener` binds one, `handed_over` is given one. Absent on purpose: buffer sizes, which the
//! kernel tunes to each path when nobody sets them.
#![allow(unsafe_code)]

use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::time::Duration;

/// What the kernel takes of a connection beyond what it has sent, in bytes. Its own limit is 4 MiB: of a
/// client that stopped reading that is memory of nobody's account, and freeing it when the client is given
/// up on held all others of the shard up for a millisecond. The kernel asks for more when half is left,
/// 50 us at 10 Gbit/s.
const UNSENT_BYTES_MAX: libc::c_int = 128 << 10;

/// A TCP connection on which nothing has come for so long is probed, so often in such intervals, and then
/// fails: a peer that has vanished without a word is noticed after two minutes, where the kernel alone
/// would ask after two hours, or never.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// Has the kernel probe an idle TCP connection; of a listener, all that it accepts.
pub(crate) fn keep_alive(socket: impl AsFd) -> Result<(), Errno> {
    let socket = socket.as_fd();
    sockopt::set_socket_keepalive(socket, true)?;
    // An emulator without the times has its own.
    let _ = sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE);
    let _ = sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES);
    Ok(())
}

/// For TCP alone.
pub(crate) fn set(listener: impl AsFd) -> Result<(), Errno> {
    let listener = listener.as_fd();
    sockopt::set_tcp_nodelay(listener, true)?;
    keep_alive(listener)?;
    let unsent_bytes_max = UNSENT_BYTES_MAX;
    // SAFETY: the descriptor is open, and the option is an int that lives through the call.
    let outcome = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const unsent_bytes_max).cast(),
            size_of_val(&unsent_bytes_max) as libc::socklen_t,
        )
    };
    // An emulator without the option serves all the same.
    let _ = outcome;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    /// `SIOCOUTQNSD` of linux/sockios.h: what was written and not sent yet.
    const UNSENT: libc::Ioctl = 0x894b;

    /// Goal: what is accepted is probed while it is idle, without another system call.
    #[test]
    fn accepted_connections_are_kept_alive() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set(&listener).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), KEEPALIVE_IDLE);
        assert_eq!(
            sockopt::tcp_keepintvl(&accepted).unwrap(),
            KEEPALIVE_INTERVAL
        );
        assert_eq!(sockopt::tcp_keepcnt(&accepted).unwrap(), KEEPALIVE_PROBES);
    }

    /// Goal: of a connection whose peer does not read, the kernel keeps little, and no less than two parts
    /// of a body.
    #[test]
    fn who_does_not_read_is_kept_little_of() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set(&listener).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        assert!(accepted.nodelay().unwrap());
        accepted.set_nonblocking(true).unwrap();
        // What is refused while some is on its way goes after that has arrived: until the peer is full.
        let begin = Instant::now();
        loop {
            match accepted.write(&[0; 1 << 16]) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            let mut unsent: libc::c_int = 0;
            // SAFETY: the descriptor is open; the kernel writes one int.
            let answer = unsafe { libc::ioctl(accepted.as_raw_fd(), UNSENT, &raw mut unsent) };
            assert_eq!(answer, 0);
            assert!(unsent < UNSENT_BYTES_MAX + (128 << 10), "{unsent}");
            if unsent >= UNSENT_BYTES_MAX / 2 {
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{unsent}");
        }
        drop(client);
    }
}

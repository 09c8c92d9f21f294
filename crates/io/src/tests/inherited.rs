use super::*;
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

/// `SIOCOUTQNSD` of linux/sockios.h: bytes written and not sent yet.
const UNSENT: libc::Ioctl = 0x894b;

/// Goal: an accepted connection is probed while it is idle, without another system call.
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
    // Refused bytes go after those on their way have arrived: until the peer is full.
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

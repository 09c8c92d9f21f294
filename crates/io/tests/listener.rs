//! Refusals when listening, and their messages.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use millpond_io::{Address, IoError, ListenOptions, Listener};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

fn loopback() -> Address {
    "127.0.0.1:0".parse().unwrap()
}

fn inet(listener: &Listener) -> SocketAddr {
    listener.local_address().inet().unwrap()
}

/// Goal: the kernel's pick is reported and reachable.
#[test]
fn port_0_becomes_a_port_that_answers() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = Listener::bind(&address.parse().unwrap(), ListenOptions::default()).unwrap();
        assert_ne!(inet(&listener).port(), 0);
        TcpStream::connect(inet(&listener)).unwrap();
    }
}

/// Goal: a port in use gives one clear message that names it, however the other one listens; sockets of a killed
/// process have a second to disappear.
#[test]
fn a_taken_port_is_named() {
    for reuse_port in [false, true] {
        let options = ListenOptions {
            reuse_port,
            ..ListenOptions::default()
        };
        let first = Listener::bind(&loopback(), options).unwrap();
        for count in [1, 2] {
            let begin = Instant::now();
            let error = Listener::bind_group(first.local_address(), count, 16).unwrap_err();
            assert!(begin.elapsed() >= Duration::from_secs(1));
            assert_eq!(
                error,
                IoError::AddressTaken {
                    address: first.local_address().clone()
                }
            );
            let port = inet(&first).port();
            assert_eq!(
                error.to_string(),
                format!(
                    "127.0.0.1:{port} is taken by another program: stop it or choose another port"
                )
            );
        }
    }
}

/// Goal: an address of another machine is refused as such.
#[test]
fn a_foreign_address_is_named() {
    // 192.0.2.0/24 is reserved for documentation, no interface has it.
    let foreign: Address = "192.0.2.1:0".parse().unwrap();
    let error = Listener::bind(&foreign, ListenOptions::default()).unwrap_err();
    assert_eq!(error, IoError::AddressNotLocal { address: foreign });
}

/// Goal: all shards listen on the port the first one got, each with a queue of its own.
#[test]
fn a_group_shares_one_port() {
    let group = Listener::bind_group(&loopback(), 3, 16).unwrap();
    assert_eq!(group.len(), 3);
    assert!(
        group
            .iter()
            .all(|listener| inet(listener) == inet(&group[0]))
    );
    TcpStream::connect(inet(&group[0])).unwrap();
}

/// Goal: a unix socket is reachable by its path, for any number of shards, and the path goes with the last listener.
#[test]
fn a_unix_path_lives_as_long_as_its_listeners() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pond.sock");
    let mut group = Listener::bind_group(&Address::Unix(path.clone()), 2, 16).unwrap();
    UnixStream::connect(&path).unwrap();
    group.pop();
    UnixStream::connect(&path).unwrap();
    drop(group);
    assert!(!path.exists());
}

/// Goal: a path in use is taken, a path left behind by an ended process is not, and a file that is no socket is never
/// removed.
#[test]
fn only_abandoned_unix_sockets_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pond.sock");
    let address = Address::Unix(path.clone());
    let alive = UnixListener::bind(&path).unwrap();
    let taken = IoError::AddressTaken {
        address: address.clone(),
    };
    for count in [1, 2] {
        let error = Listener::bind_group(&address, count, 16).unwrap_err();
        assert_eq!(error, taken, "{count} listeners");
    }
    drop(alive);
    assert!(path.exists(), "the standard library leaves the path behind");
    drop(Listener::bind(&address, ListenOptions::default()).unwrap());

    std::fs::write(&path, b"precious").unwrap();
    assert_eq!(
        Listener::bind(&address, ListenOptions::default()).unwrap_err(),
        taken
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");

    let long = Address::Unix(directory.path().join("x".repeat(200)));
    let error = Listener::bind(&long, ListenOptions::default()).unwrap_err();
    assert_eq!(error, IoError::PathUnusable { address: long });
}

use super::*;
use std::net::{Ipv4Addr, TcpListener};

/// Goal: the limit of a socket is what it was given: the standard library's is 128 (or less, where the system allows
/// less), and a port where nothing listens has none.
#[test]
fn a_listener_is_found() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let Some(limit) = of_port(port) else {
        eprintln!("skipped: this kernel has no inet_diag");
        return;
    };
    let system = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
    let system: u32 = system.trim().parse().unwrap_or(u32::MAX);
    assert_eq!(limit, system.min(128));
    drop(listener);
    assert_eq!(of_port(port), None);
}

/// Goal: whatever comes from a socket is read to its end and no further.
#[test]
fn odd_messages_are_read_to_their_end() {
    assert_eq!(limits(&[], 80), (None, true));
    assert_eq!(limits(&[0; 16], 80), (None, false));
    assert_eq!(limits(&[255; 40], 80), (None, false));
    let mut done = vec![0; 20];
    done[..6].copy_from_slice(&[20, 0, 0, 0, 3, 0]);
    assert_eq!(limits(&done, 80), (None, true));
    let mut message = vec![0; HEAD_BYTES + 72];
    message[0] = 88;
    message[4] = 20;
    message[HEAD_BYTES + PORT_AT + 1] = 80;
    message[HEAD_BYTES + LIMIT_AT..][..4].copy_from_slice(&5_u32.to_ne_bytes());
    assert_eq!(limits(&message, 80), (Some(5), false));
    assert_eq!(limits(&message, 81), (None, false));
}

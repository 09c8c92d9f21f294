use super::*;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;

/// Goal: sockets are taken only if the environment means this process, and there are any.
#[test]
fn only_what_is_meant_for_us_is_taken() {
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(count_for(7, text("7"), text("2")), Ok(2));
    for (pid, count) in [
        (None, None),
        (text("8"), text("1")),
        (text("7"), None),
        (text("7"), text("0")),
        (text("7"), text("-1")),
        (text("7"), text("2000000000")),
        (text("x"), text("1")),
    ] {
        let shown = format!("{pid:?} {count:?}");
        let error = count_for(7, pid, count).unwrap_err();
        assert_eq!(error, IoError::NothingHandedOver, "{shown}");
        assert!(error.to_string().contains("--listen"), "{error}");
    }
}

/// Goal: a TCP and a unix socket are taken with their addresses, as listeners for several shards, and the opener's own
/// descriptors stay open.
#[test]
fn sockets_become_listeners() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    let taken = HandedOver::from_fd(tcp.as_raw_fd(), 1).unwrap();
    let local = tcp.local_addr().unwrap();
    assert_eq!(taken.address(), &Address::Inet(local));
    let listeners = taken.listeners(3).unwrap();
    assert!(
        listeners
            .iter()
            .all(|one| one.local_address() == taken.address())
    );
    drop((listeners, taken));
    TcpStream::connect(local).unwrap();
    let taken = HandedOver::from_fd(unix.as_raw_fd(), 1).unwrap();
    assert_eq!(taken.address(), &Address::Unix(path.clone()));
    drop(taken.listeners(1).unwrap());
    assert!(path.exists(), "the path belongs to the one who made it");
}

/// Goal: a descriptor that is not a listening stream socket is refused with its number; so are more sockets than
/// shards, of which some would never be served.
#[test]
fn what_cannot_be_served_is_refused() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let file = tempfile::tempfile().unwrap();
    for (number, part) in [
        (udp.as_raw_fd(), "stream"),
        (stream.as_raw_fd(), "does not listen"),
        (file.as_raw_fd(), "ocket"),
    ] {
        let error = HandedOver::from_fd(number, 1).unwrap_err().to_string();
        assert!(
            error.contains(&format!("descriptor {number} ")) && error.contains(part),
            "{error}"
        );
    }
    let both = HandedOver::of(&[listener.as_raw_fd(); 2]).unwrap();
    let error = both.listeners(1).unwrap_err();
    assert_eq!(
        error,
        IoError::TooManyHandedOver {
            sockets: 2,
            shards: 1
        }
    );
    assert_eq!(both.listeners(2).unwrap().len(), 2);
}

/// Goal: sockets of two addresses are refused. Only the first was checked for remote access, and a second one after a
/// loopback address allowed checkpoints to any client.
#[test]
fn two_addresses_are_refused() {
    let [one, other] = ["127.0.0.1:0", "127.0.0.2:0"].map(|at| TcpListener::bind(at).unwrap());
    let numbers = [one.as_raw_fd(), one.as_raw_fd(), other.as_raw_fd()];
    let error = HandedOver::of(&numbers).unwrap_err().to_string();
    let [one, other] = [one, other].map(|at| at.local_addr().unwrap().to_string());
    assert!(error.contains(&one) && error.contains(&other), "{error}");
}

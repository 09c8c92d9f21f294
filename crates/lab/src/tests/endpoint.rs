use super::*;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

/// Goal: an address is free again once nothing listens, and a leftover socket file does not stay.
#[test]
fn addresses_that_are_taken_are_seen() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = Address::Inet(listener.local_addr().unwrap());
    // The near end of a connection: nothing listens there, and no other program gets the port.
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let free = Address::Inet(near.local_addr().unwrap());
    let mut endpoint = Endpoint::here([free, taken.clone()].into(), 1);
    assert_eq!(endpoint.taken().unwrap(), Some(taken.clone()));
    endpoint.keep_those_that_accept().unwrap();
    assert_eq!(endpoint.addresses[..], [taken]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let endpoint = Endpoint::here([Address::Unix(path.clone())].into(), 1);
    assert!(endpoint.taken().unwrap().is_some() && path.exists());
    drop(listener);
    assert!(endpoint.taken().unwrap().is_none() && !path.exists());
    fs::write(&path, "a file of the user's").unwrap();
    assert!(endpoint.taken().unwrap().is_none() && path.exists());
}

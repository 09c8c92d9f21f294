use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Goal: two listen on one address at the same time, and connections from within reach the one there, also from another
/// thread; outside there is no listener. Not every user may make a namespace.
#[test]
fn one_address_is_two() {
    let spaces = match (NetworkNamespace::create(), NetworkNamespace::create()) {
        (Ok(one), Ok(two)) => [(one, b"1"), (two, b"2")],
        (Err(error), _) | (_, Err(error)) => {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            return;
        }
    };
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = outside.local_addr().unwrap();
    let listeners = spaces.each_ref().map(|(space, _)| {
        let listen = || TcpListener::bind(address).unwrap();
        space.within(listen).unwrap()
    });
    for (listener, (space, word)) in listeners.iter().zip(&spaces) {
        let connect = move || TcpStream::connect(address).unwrap();
        let from_thread = || std::thread::spawn(connect).join().unwrap();
        let mut client = space.within(from_thread).unwrap();
        listener.accept().unwrap().0.write_all(*word).unwrap();
        let mut read = [0];
        client.read_exact(&mut read).unwrap();
        assert_eq!(&read, *word);
    }
    outside.set_nonblocking(true).unwrap();
    assert_eq!(
        outside.accept().unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
}

/// Goal: a thread whose work panics in a namespace is back in the original one.
#[test]
fn a_panic_returns_home() {
    let Ok(space) = NetworkNamespace::create() else {
        return;
    };
    let place = || std::fs::read_link(OWN).unwrap();
    let home = place();
    let act = || -> io::Result<()> { space.within(|| panic!("on purpose")) };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).is_err());
    assert_eq!(place(), home);
    assert_ne!(space.within(place).unwrap(), home);
}

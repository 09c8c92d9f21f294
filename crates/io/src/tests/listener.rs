use super::*;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

/// Goal: an address that is released meanwhile, as by a killed server, can be bound; one that stays in use is refused
/// in the end.
#[test]
fn an_address_about_to_be_free_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    // No other process listens here: the loopback address is this process's.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let own = SocketAddr::from(([127, 64 + high, middle, low], 0));
    let port = TcpListener::bind(own).unwrap();
    let addresses = [
        Address::Inet(port.local_addr().unwrap()),
        Address::Unix(path.clone()),
    ];
    let mut holders = Some((port, UnixListener::bind(&path).unwrap()));
    for address in &addresses {
        let bind = || Listener::bind_group_now(address, 2, 16);
        let mut pauses = 0;
        let outcome = once_free(bind, || {
            pauses += 1;
            pauses < 3
        });
        let address = address.clone();
        assert_eq!(outcome.unwrap_err(), IoError::AddressTaken { address });
        assert_eq!(pauses, 3);
    }
    for address in &addresses {
        let bind = || Listener::bind_group_now(address, 2, 16);
        let group = once_free(bind, || holders.take().is_some());
        assert_eq!(group.unwrap().len(), 2);
    }
}

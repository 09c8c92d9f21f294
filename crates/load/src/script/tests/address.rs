use super::*;
use std::net::{TcpListener, TcpStream};

#[test]
fn services_are_numbers_or_names() {
    let table = "# all\nwww 80/tcp http-alt web # pages\ndns 53/udp\ndns 54/tcp\n";
    assert_eq!(port_in(table, "web"), Some(80));
    assert_eq!(port_in(table, "dns"), Some(54));
    assert_eq!(port_in(table, "pages"), None);
    let found = look_up("127.0.0.1", "http").unwrap();
    assert_eq!(found, [ScriptAddress("127.0.0.1:80".parse().unwrap())]);
    let error = look_up("127.0.0.1", "no-such-service").unwrap_err();
    assert!(error.contains("127.0.0.1:no-such-service"), "{error}");
}

#[test]
fn connecting_tells_who_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = ScriptAddress(listener.local_addr().unwrap().into());
    assert!(address.accepts_connections());
    // The near end of a connection: nothing listens there, and no other program gets the port.
    let kept = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let address = ScriptAddress(kept.local_addr().unwrap().into());
    assert!(!address.accepts_connections());
}

use super::*;

/// Goal: chosen ports can be bound and never collide with outgoing connections.
#[test]
fn ports_lie_outside_the_kernels_range() {
    let range = local_port_range();
    let chosen: Vec<u16> = (0..50).map(|_| choose().unwrap()).collect();
    for port in &chosen {
        assert!(*port < range.0 || *port > range.1);
    }
    // Another program may have taken some of them since, not all.
    assert!(
        chosen
            .iter()
            .any(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
    );
}

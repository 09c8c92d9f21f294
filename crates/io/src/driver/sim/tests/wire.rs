use super::*;

fn wire() -> Wire {
    Wire::new(PeerName::Unix, PeerName::Unix, 10)
}

fn read(wire: &mut Wire, end: usize) -> (Arrived, Vec<u8>) {
    let mut into = Vec::new();
    let arrived = wire.read(end, &mut into, usize::MAX);
    (arrived, into)
}

/// Goal: bytes arrive in order, no more than fit, and the FIN comes after the last one.
#[test]
fn bytes_come_before_the_fin_and_only_as_many_as_fit() {
    let mut wire = wire();
    assert_eq!(wire.write(INITIATOR, b"0123456789ab"), Ok(10));
    assert_eq!(wire.write(INITIATOR, b"x"), Ok(0));
    wire.finish(INITIATOR);
    assert_eq!(wire.write(INITIATOR, b"x"), Err(Errno::PIPE));
    assert_eq!(
        read(&mut wire, ACCEPTOR),
        (Arrived::Bytes(10), b"0123456789".to_vec())
    );
    assert_eq!(read(&mut wire, ACCEPTOR).0, Arrived::Finished);
    assert_eq!(read(&mut wire, INITIATOR).0, Arrived::Nothing);
    assert_eq!(wire.write(ACCEPTOR, b"y"), Ok(1));
    assert_eq!(
        read(&mut wire, INITIATOR),
        (Arrived::Bytes(1), b"y".to_vec())
    );
}

/// Goal: closing after all was read lets the last bytes through; closing before, or being
/// written to afterwards, destroys them.
#[test]
fn only_a_clean_close_spares_the_last_bytes() {
    let mut clean = wire();
    clean.write(ACCEPTOR, b"answer").unwrap();
    assert!(!clean.close(ACCEPTOR));
    assert_eq!(
        read(&mut clean, INITIATOR),
        (Arrived::Bytes(6), b"answer".to_vec())
    );
    assert_eq!(read(&mut clean, INITIATOR).0, Arrived::Finished);

    let mut unread = wire();
    unread.write(ACCEPTOR, b"answer").unwrap();
    unread.write(INITIATOR, b"more").unwrap();
    assert!(unread.close(ACCEPTOR));
    assert_eq!(
        read(&mut unread, INITIATOR),
        (Arrived::Failed(Errno::CONNRESET), Vec::new())
    );

    let mut late = wire();
    late.write(ACCEPTOR, b"answer").unwrap();
    late.close(ACCEPTOR);
    assert_eq!(late.write(INITIATOR, b"more"), Ok(4));
    assert_eq!(
        read(&mut late, INITIATOR).0,
        Arrived::Failed(Errno::CONNRESET)
    );
    assert_eq!(late.write(INITIATOR, b"x"), Err(Errno::CONNRESET));
}

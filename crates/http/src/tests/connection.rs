use super::*;

fn connection(phase: Phase) -> Connection {
    Connection {
        phase,
        ..Connection::new(SocketId::from_bits(1 << 32), 0)
    }
}

/// Goal: a connection that closes reads no more, and closes cleanly only if nothing that came since
/// says otherwise.
#[test]
fn closing_is_the_last_phase() {
    for phase in [
        Phase::BetweenRequests,
        Phase::MidRequest,
        Phase::ReadingBody,
    ] {
        for is_clean in [true, false] {
            let mut closing = connection(phase);
            closing.leave_unread();
            assert_eq!(closing.phase, phase, "it may be read yet");
            closing.close(is_clean);
            assert!(closing.must_wait() && closing.is_closing());
            assert_eq!(closing.closes_cleanly(), is_clean);
            let at_first = closing.phase;
            assert_eq!(at_first.with_reading(true), at_first);
            assert!(!closing.set_mid_request(true) && !closing.set_mid_request(false));
            closing.close(true);
            assert_eq!(closing.phase, at_first, "what was unclean stays so");
            closing.leave_unread();
            assert!(!closing.closes_cleanly());
            closing.is_peer_finished = true;
            assert!(closing.closes_cleanly(), "nothing can be on its way");
        }
    }
}

/// Goal: bytes of a request and its end change the phase once, and reading a body is a part of it.
#[test]
fn phases_follow_each_other() {
    use Phase::{BetweenRequests, MidRequest, ReadingBody};
    for (before, is_mid_request, after) in [
        (BetweenRequests, true, MidRequest),
        (BetweenRequests, false, BetweenRequests),
        (MidRequest, true, MidRequest),
        (MidRequest, false, BetweenRequests),
        (ReadingBody, true, ReadingBody),
        (ReadingBody, false, BetweenRequests),
    ] {
        let mut found = connection(before);
        assert_eq!(found.set_mid_request(is_mid_request), before != after);
        assert_eq!(found.phase, after);
    }
    assert_eq!(BetweenRequests.with_reading(true), ReadingBody);
    assert_eq!(ReadingBody.with_reading(false), MidRequest);
    assert_eq!(BetweenRequests.with_reading(false), BetweenRequests);
    assert!(connection(BetweenRequests).is_plain());
    assert!(!connection(MidRequest).is_plain());
}

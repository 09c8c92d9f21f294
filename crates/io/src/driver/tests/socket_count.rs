use super::*;

/// Goal: both kinds are held and have one peak; only accepted ones fill the cap.
#[test]
fn connected_sockets_do_not_fill_the_cap_of_accepted_ones() {
    let mut count = SocketCount::default();
    count.set_accepted_max(2);
    for opener in [Opener::Us, Opener::Us, Opener::Us, Opener::Peer] {
        count.opened(opener);
        assert!(!count.is_full(), "{count:?}");
    }
    count.opened(Opener::Peer);
    assert!(count.is_full());
    count.closed(Opener::Us);
    assert!(count.is_full());
    count.closed(Opener::Peer);
    assert!(!count.is_full());
    let shown = count.shown_in(DriverCounters::default());
    assert_eq!((shown.sockets_held, shown.sockets_peak), (3, 5));
}

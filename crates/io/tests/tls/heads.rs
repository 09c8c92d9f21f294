//! The PROXY protocol below TLS, or below plaintext: no connection is reported before its header is complete, what
//! follows are its first bytes, and a connection without a header is closed without a message.

use crate::scene::{End, Scene};
use crate::tls_support::{Authority, HANDSHAKE_TIMEOUT_NS};
use millpond_io::driver::sim::{Cuts, FaultPlan, PeerRead, SimPeer};
use millpond_io::proxy_protocol::ProxyHeadFailure;
use millpond_io::{Driver, Peer};
use rustls::version::TLS13;
use std::sync::Arc;

const TOLD: &str = "PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n";

/// No socket has to wait for a place in these scenes, except in the one about that.
const COUNT_MAX: usize = 16;

fn told() -> [Option<Peer>; 2] {
    ["192.0.2.7:4711", "198.51.100.1:443"].map(|text| Some(Peer::Inet(text.parse().unwrap())))
}

/// The server's response to a peer in plaintext.
fn read(peer: &mut SimPeer, heard: &mut Vec<u8>) -> Option<PeerRead> {
    match peer.read(heard, 4_000) {
        PeerRead::Bytes(_) | PeerRead::Nothing => None,
        end => Some(end),
    }
}

/// Goal: wherever the head and the message behind it are cut, in both versions, the owner gets the socket once, with
/// the header's addresses, and the message.
#[test]
fn heads_may_be_cut_anywhere() {
    let mut v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    v2.extend([192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 0x01, 0xbb]);
    for head in [TOLD.as_bytes(), &v2] {
        let all = [head, b"through the mill"].concat();
        let every = (1..all.len() as u64).map(|cut| Cuts::At(vec![cut]));
        for cuts in every.chain([Cuts::ByChance, Cuts::EveryByte]) {
            let mut scene = Scene::in_plaintext(COUNT_MAX);
            let mut peer = scene.network.connect().unwrap();
            peer.set_cuts(cuts.clone());
            assert_eq!(peer.write(&all).unwrap(), all.len());
            let mut heard = Vec::new();
            while heard.len() < 16 {
                scene.tick(1_000_000);
                assert_eq!(read(&mut peer, &mut heard), None, "{cuts:?}");
            }
            assert_eq!(heard, b"through the mill", "{cuts:?}");
            let [socket] = scene.accepted[..] else {
                panic!("{:?}", scene.accepted);
            };
            let driver = &scene.driver;
            assert_eq!([driver.peer(socket), driver.destination(socket)], told());
            assert_eq!(driver.tls_counters(), None, "nothing to tell in plaintext");
            drop(peer);
            scene.assert_empty();
            let counters = scene.heads();
            assert_eq!(counters.taken_v1 + counters.taken_v2, 1);
            assert_eq!(counters.awaited, 0);
        }
    }
}

/// Goal: a handshake may stand behind the head, in the same bytes or not; a sender that speaks for
/// itself has its own address.
#[test]
fn handshakes_stand_behind_heads() {
    let authority = Authority::new();
    let config = Arc::new(authority.client_config(&[&TLS13]));
    for (head, is_told) in [(TOLD, true), ("PROXY UNKNOWN\r\n", false)] {
        for cuts in [
            Cuts::ByChance,
            Cuts::EveryByte,
            Cuts::At(vec![head.len() as u64]),
        ] {
            let mut scene = Scene::awaiting_heads(&authority, COUNT_MAX);
            let mut client = scene.connect(&config);
            let peer = client.peer.as_mut().unwrap();
            peer.set_cuts(cuts);
            assert_eq!(peer.write(head.as_bytes()).unwrap(), head.len());
            scene.exchange(&mut client, b"through the mill");
            let socket = scene.accepted[0];
            let driver = &scene.driver;
            let own = Some(client.peer.as_ref().unwrap().name());
            let expected = if is_told { told()[0] } else { own };
            assert_eq!(driver.peer(socket), expected);
            client.finish();
            scene.run(&mut client, |client| client.end.is_some());
            assert_eq!(client.end, Some(End::Goodbye));
            drop(client);
            scene.assert_empty();
            assert_eq!(scene.heads().without_address, u64::from(!is_told));
        }
    }
}

/// Goal: a connection that sends no header, or half of one, is closed and counted with its cause, and the owner has
/// never seen it.
#[test]
fn the_headless_go_unheard() {
    use ProxyHeadFailure::{Closed, Malformed, Missing, Timeout};
    for (sent, ends, failure) in [
        ("GET / HTTP/1.1\r\n\r\n", false, Missing),
        ("PROXY TCP4 1.2.3.4 5.6.7.8 1 x\r\n", false, Malformed),
        ("PROXY TCP4 1.2", false, Timeout),
        ("", false, Timeout),
        ("PROXY TCP4 1.2", true, Closed),
        ("", true, Closed),
    ] {
        let mut scene = Scene::in_plaintext(COUNT_MAX);
        let start_ns = scene.network.now_ns();
        let mut peer = scene.network.connect().unwrap();
        peer.write(sent.as_bytes()).unwrap();
        if ends {
            peer.finish();
        }
        let mut heard = Vec::new();
        while scene.heads().refused_by(failure) == 0 {
            scene.tick(100_000_000);
        }
        scene.tick(100_000_000);
        assert!(read(&mut peer, &mut heard).is_some() || ends, "{sent:?}");
        assert_eq!(heard, b"", "{sent:?}");
        assert_eq!(scene.accepted, [], "{sent:?}");
        assert_eq!(scene.failed, [], "{sent:?}");
        let took_ns = scene.network.now_ns() - start_ns;
        let most_ns = HANDSHAKE_TIMEOUT_NS + HANDSHAKE_TIMEOUT_NS / 10;
        assert!(took_ns < most_ns, "{sent:?}: {took_ns}");
        assert!(took_ns >= HANDSHAKE_TIMEOUT_NS || failure != Timeout);
        drop(peer);
        scene.assert_empty();
    }
}

/// Goal: one deadline, from accept on, for the head and the handshake behind it.
#[test]
fn a_slow_head_leaves_less_time_for_the_handshake() {
    let authority = Authority::new();
    let mut scene = Scene::awaiting_heads(&authority, COUNT_MAX);
    let mut peer = scene.network.connect().unwrap();
    let start_ns = scene.network.now_ns();
    while scene.network.now_ns() < start_ns + HANDSHAKE_TIMEOUT_NS / 2 {
        scene.tick(100_000_000);
    }
    peer.write(TOLD.as_bytes()).unwrap();
    while scene.failed.is_empty() {
        scene.tick(100_000_000);
    }
    let took_ns = scene.network.now_ns() - start_ns;
    assert!(
        took_ns < HANDSHAKE_TIMEOUT_NS + HANDSHAKE_TIMEOUT_NS / 10,
        "{took_ns}"
    );
    assert_eq!(scene.accepted.len(), 1, "its head was whole");
    drop(peer);
    scene.assert_empty();
}

/// Goal: no more headers are awaited than allowed, and one that comes makes room; after accepting has stopped the
/// others have a short time, which the drain waits for.
#[test]
fn heads_awaited_are_bounded() {
    let mut scene = Scene::in_plaintext(2);
    let mut peers: Vec<SimPeer> = (0..3).map(|_| scene.network.connect().unwrap()).collect();
    scene.tick(1_000_000);
    assert_eq!(scene.heads().awaited, 2);
    assert_eq!(scene.heads().refused_by(ProxyHeadFailure::Crowded), 1);
    peers[0].write(TOLD.as_bytes()).unwrap();
    scene.tick(1_000_000);
    assert_eq!((scene.heads().awaited, scene.accepted.len()), (1, 1));
    assert_eq!(scene.driver.closing_count(), 0);
    let stopped_ns = scene.network.now_ns();
    scene.driver.stop_listening();
    assert_eq!(
        scene.driver.closing_count(),
        1,
        "its head may be on the way"
    );
    while scene.driver.closing_count() > 0 {
        scene.tick(10_000_000);
    }
    let took_ns = scene.network.now_ns() - stopped_ns;
    assert!(
        (1_000_000_000..1_200_000_000).contains(&took_ns),
        "{took_ns}"
    );
    assert_eq!(scene.heads().refused_by(ProxyHeadFailure::Timeout), 1);
    drop(peers);
    scene.assert_empty();
}

/// Goal: whatever the network does within its rights, each connection ends in one way, and nothing is
/// left of any.
#[test]
fn storms_leave_no_head_behind() {
    for seed in 0..60 {
        let mut plan = FaultPlan::drawn(seed);
        plan.connect_failures = 0.0;
        let mut scene = Scene::in_plaintext_with(seed, plan, COUNT_MAX);
        let mut rng = fastrand::Rng::with_seed(seed);
        let all = [TOLD.as_bytes(), b"through the mill"].concat();
        let mut peers = Vec::new();
        for _ in 0..rng.usize(1..12) {
            let mut peer = scene.network.connect().unwrap();
            let _ = peer.write(&all[..rng.usize(0..=all.len())]);
            if rng.bool() {
                peer.finish();
            }
            peers.push(peer);
            scene.tick(1_000_000);
        }
        for _ in 0..200 {
            scene.tick(1_000_000);
        }
        scene.network.set_plan(FaultPlan::none());
        peers.clear();
        scene.assert_empty();
    }
}

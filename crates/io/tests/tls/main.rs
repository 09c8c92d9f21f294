//! TLS over a simulated network: handshakes cut anywhere, slow, too long or broken; sessions that
//! are resumed; certificates that change; and storms in which nothing may be lost or left behind.
//!
//! The peers' side of TLS is rustls' own buffered client, which shares no code of ours.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../tls_support/mod.rs"]
mod tls_support;
mod scene;
mod heads;

use crate::scene::{Client, End, Scene};

use fastrand::Rng;
use millpond_io::Errno;
use millpond_io::driver::sim::{Cuts, FaultPlan};
use millpond_io::tls::TlsFailure;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, SupportedProtocolVersion};
use std::sync::Arc;
use tls_support::{
    Authority, HANDSHAKE_BYTES_MAX, HANDSHAKE_TIMEOUT_NS, PLAINTEXT_RESPONSE, client,
};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// Goal: wherever receives end, the handshake and the first message come out the same: every cut of
/// everything the client sends, once each, then all cuts at once.
#[test]
fn handshakes_may_be_cut_anywhere() {
    let authority = Authority::new();
    for version in VERSIONS {
        let config = Arc::new(authority.client_config(&[version]));
        let play = |cuts: Cuts| {
            let mut scene = Scene::calm(&authority);
            let mut client = scene.connect(&config);
            client.peer.as_ref().unwrap().set_cuts(cuts.clone());
            scene.exchange(&mut client, b"through the mill");
            let sent = client.peer.as_ref().unwrap().received();
            client.finish();
            scene.run(&mut client, |client| client.end.is_some());
            assert_eq!(client.end, Some(End::Goodbye), "{cuts:?}");
            assert_eq!(
                (scene.finished, &scene.failed[..]),
                (1, &[][..]),
                "{cuts:?}"
            );
            assert_eq!(scene.received, b"through the mill");
            drop(client);
            scene.assert_empty();
            assert_eq!((scene.tls().handshakes(), scene.tls().truncated), (1, 0));
            sent
        };
        let sent = play(Cuts::ByChance);
        assert!(sent > 200, "{sent}");
        play(Cuts::EveryByte);
        for cut in 1..sent {
            play(Cuts::At(vec![cut]));
        }
    }
}

/// Goal: whatever the network does within its rights, peers get back what they sent, in order and whole, and in the end
/// no state is left.
#[test]
fn storms_lose_nothing() {
    let authority = Authority::new();
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let mut plan = FaultPlan::drawn(seed);
        plan.connect_failures = 0.0;
        plan.accept_failures = 0.0;
        plan.resets = [0.0, 0.0, 0.001][rng.usize(0..3)];
        let mut scene = Scene::new(&authority, seed, plan);
        let config = Arc::new(authority.client_config(&[VERSIONS[rng.usize(0..2)]]));
        let mut clients: Vec<(Client, Vec<u8>)> = (0..rng.usize(1..6))
            .map(|_| {
                let len = [0, 1, 5_000, 40_000][rng.usize(0..4)];
                let message: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
                let mut client = scene.connect(&config);
                client.say(&message);
                (client, message)
            })
            .collect();
        let mut is_done = false;
        for _ in 0..100_000 {
            is_done = true;
            for (client, message) in &mut clients {
                client.turn();
                let is_over = client.heard.len() >= message.len() && !client.tls.is_handshaking();
                is_done &= is_over || client.end.is_some();
            }
            if is_done {
                break;
            }
            scene.tick(1_000_000);
        }
        let heard: Vec<_> = clients
            .iter()
            .map(|(c, m)| (c.heard.len(), m.len()))
            .collect();
        assert!(is_done, "seed {seed} hangs: {heard:?} {:?}", scene.tls());
        for (client, message) in &mut clients {
            assert!(message.starts_with(&client.heard), "seed {seed}");
            if client.heard.len() < message.len() {
                let is_reset = client.peer.as_ref().unwrap().is_reset_by_network();
                assert!(is_reset, "seed {seed}: {:?}", client.end);
            }
        }
        scene.network.set_plan(FaultPlan::none());
        clients.clear();
        scene.assert_empty();
    }
}

/// Goal: half a handshake ends when its time is over, counted from accept, and not before.
#[test]
fn a_slow_handshake_is_cut_in_time() {
    let authority = Authority::new();
    let config = Arc::new(authority.client_config(&[&TLS13]));
    let mut scene = Scene::calm(&authority);
    let mut hello = Vec::new();
    client(&config).write_tls(&mut hello).unwrap();
    let mut peer = scene.network.connect().unwrap();
    let start_ns = scene.network.now_ns();
    for byte in &hello[..hello.len() - 1] {
        peer.write(std::slice::from_ref(byte)).unwrap();
        scene.tick(30_000_000);
    }
    assert_eq!(scene.failed, []);
    while scene.failed.is_empty() {
        scene.tick(100_000_000);
    }
    let took_ns = scene.network.now_ns() - start_ns;
    assert_eq!(scene.failed, [Errno::TIMEDOUT]);
    let most_ns = HANDSHAKE_TIMEOUT_NS + HANDSHAKE_TIMEOUT_NS / 10;
    assert!(
        (HANDSHAKE_TIMEOUT_NS..most_ns).contains(&took_ns),
        "{took_ns}"
    );
    assert_eq!(scene.tls().failed_by(TlsFailure::Timeout), 1);
    drop(peer);
    scene.assert_empty();
}

/// Goal: a peer that sends without end before the handshake is over is stopped at the limit, and one without TLS gets a
/// plaintext response if it uses HTTP.
#[test]
fn endless_and_foreign_beginnings_end() {
    let authority = Authority::new();
    // A client's first message that says it has 60,000 bytes, in records of 4,000.
    let mut endless = Vec::new();
    while endless.len() < 2 * HANDSHAKE_BYTES_MAX {
        endless.extend_from_slice(&[22, 3, 1, 0x0f, 0xa0]);
        let is_first = endless.len() == 5;
        let start: &[u8] = if is_first { &[1, 0, 0xea, 0x60] } else { &[] };
        endless.extend_from_slice(start);
        endless.resize(endless.len() + 4_000 - start.len(), 0);
    }
    for (bytes, failure, answer) in [
        (&endless[..], TlsFailure::TooLong, None),
        (
            b"GET / HTTP/1.1\r\n",
            TlsFailure::Plaintext,
            Some(PLAINTEXT_RESPONSE),
        ),
        (b"G", TlsFailure::Plaintext, Some(PLAINTEXT_RESPONSE)),
        (b"\x00\x00", TlsFailure::NotTls, None),
        (b"\x16\x02\x00\x00\x01\x01", TlsFailure::Malformed, None),
        (
            b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\xff",
            TlsFailure::Malformed,
            None,
        ),
    ] {
        let mut scene = Scene::calm(&authority);
        let mut peer = scene.network.connect().unwrap();
        let mut sent = 0;
        let mut heard = Vec::new();
        for _ in 0..100 {
            sent += peer.write(&bytes[sent..]).unwrap_or(bytes.len() - sent);
            scene.tick(1_000_000);
            peer.read(&mut heard, 1_000);
        }
        assert_eq!(
            scene.tls().failed_by(failure),
            1,
            "{failure:?}: {:?}",
            scene.tls()
        );
        assert_eq!(scene.failed, [Errno::PROTO]);
        if let Some(answer) = answer {
            assert_eq!(heard, answer);
        }
        drop(peer);
        scene.assert_empty();
    }
}

/// Goal: only http/1.1 is accepted: a client that offers only others gets the matching alert.
#[test]
fn other_protocols_are_refused_by_name() {
    let authority = Authority::new();
    for (offered, is_served) in [
        (&[][..], true),
        (&["http/1.1"], true),
        (&["h2", "http/1.1"], true),
        (&["h2"], false),
    ] {
        let mut config = authority.client_config(&VERSIONS);
        config.alpn_protocols = offered
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let mut scene = Scene::calm(&authority);
        let mut client = scene.connect(&Arc::new(config));
        if is_served {
            scene.exchange(&mut client, b"x");
            continue;
        }
        scene.run(&mut client, |client| client.end.is_some());
        let alert = rustls::AlertDescription::NoApplicationProtocol;
        assert_eq!(
            client.end,
            Some(End::Tls(rustls::Error::AlertReceived(alert)))
        );
        assert_eq!(scene.tls().failed_by(TlsFailure::Protocol), 1);
    }
}

/// Goal: a session is resumed on another shard, whose driver never met the client before.
#[test]
fn sessions_are_resumed_on_every_shard() {
    let authority = Authority::new();
    for version in VERSIONS {
        let config = Arc::new(authority.client_config(&[version]));
        let mut scene = Scene::calm(&authority);
        scene.exchange(&mut scene.connect(&config), b"first");
        assert_eq!(scene.tls().full_tls12 + scene.tls().full_tls13, 1);
        for _ in 0..3 {
            let mut other = Scene::calm(&authority);
            let mut client = other.connect(&config);
            other.exchange(&mut client, b"again");
            let tls = other.tls();
            let resumed = [tls.resumed_tls12, tls.resumed_tls13];
            assert_eq!(resumed.iter().sum::<u64>(), 1, "{tls:?}");
            assert_eq!(resumed[0] == 1, version == &TLS12);
        }
    }
}

/// Goal: a new certificate is for new connections, an open one goes on; a broken file changes
/// nothing, and the next good one is taken.
#[test]
fn certificates_are_renewed_under_open_connections() {
    let mut authority = Authority::new();
    let mut scene = Scene::calm(&authority);
    let old = Arc::new(authority.client_config(&[&TLS13]));
    let mut open = scene.connect(&old);
    scene.exchange(&mut open, b"before");
    authority.renew();
    let new = Arc::new(authority.client_config(&[&TLS13]));
    scene.exchange(&mut scene.connect(&old), b"not yet");

    assert_eq!(authority.server.reload().unwrap(), []);
    scene.exchange(&mut scene.connect(&new), b"after");
    let mut stale = scene.connect(&Arc::new(authority_without(&old)));
    scene.run(&mut stale, |client| client.end.is_some());
    assert!(matches!(stale.end, Some(End::Tls(_))), "{:?}", stale.end);
    scene.exchange(&mut open, b"still");

    let path = authority.certificate_path();
    let good = std::fs::read(&path).unwrap();
    std::fs::write(&path, "nothing").unwrap();
    let error = authority.server.reload().unwrap_err().to_string();
    assert!(error.contains("server.crt"), "{error}");
    scene.exchange(&mut scene.connect(&new), b"as before");
    std::fs::write(&path, good).unwrap();
    assert_eq!(authority.server.reload().unwrap(), []);
    scene.exchange(&mut scene.connect(&new), b"and again");
    scene.exchange(&mut open, b"to the end");
}

/// The same trust without the sessions it remembers.
fn authority_without(config: &ClientConfig) -> ClientConfig {
    let mut config = config.clone();
    config.resumption = rustls::client::Resumption::disabled();
    config
}

/// Goal: bytes changed on their way end the connection with an alert; earlier ones are valid.
#[test]
fn a_changed_record_ends_the_connection() {
    let authority = Authority::new();
    let config = Arc::new(authority.client_config(&[&TLS13]));
    let mut scene = Scene::calm(&authority);
    let mut client = scene.connect(&config);
    scene.exchange(&mut client, b"good");
    client.say(b"also good");
    client.send();
    client.say(b"bad");
    let mut record = Vec::new();
    client.tls.write_tls(&mut record).unwrap();
    *record.last_mut().unwrap() ^= 1;
    client.peer.as_mut().unwrap().write(&record).unwrap();
    scene.run(&mut client, |client| client.end.is_some());
    assert_eq!(scene.received, b"goodalso good");
    let alert = rustls::AlertDescription::BadRecordMac;
    assert_eq!(
        client.end,
        Some(End::Tls(rustls::Error::AlertReceived(alert)))
    );
    assert_eq!(
        (scene.tls().broken, &scene.failed[..]),
        (1, &[Errno::PROTO][..])
    );
    drop(client);
    scene.assert_empty();
}

/// Goal: new keys in the middle of everything change nothing that the owner sees.
#[test]
fn keys_may_change_at_any_time() {
    let authority = Authority::new();
    let config = Arc::new(authority.client_config(&[&TLS13]));
    let mut scene = Scene::calm(&authority);
    let mut client = scene.connect(&config);
    client.peer.as_ref().unwrap().set_cuts(Cuts::EveryByte);
    for round in 0..10_u8 {
        scene.exchange(&mut client, &[round; 100]);
        client.tls.refresh_traffic_keys().unwrap();
    }
    assert_eq!(scene.failed, []);
}

/// Goal: a FIN without `close_notify` ends the bytes, is counted, and is reported like any other end.
#[test]
fn an_end_without_a_goodbye_is_counted() {
    let authority = Authority::new();
    let config = Arc::new(authority.client_config(&[&TLS13]));
    let mut scene = Scene::calm(&authority);
    let mut client = scene.connect(&config);
    scene.exchange(&mut client, b"cut");
    // Half a record, and no more.
    client
        .peer
        .as_mut()
        .unwrap()
        .write(&[23, 3, 3, 0, 50, 1, 2, 3])
        .unwrap();
    client.peer.as_mut().unwrap().finish();
    scene.run(&mut client, |client| client.end.is_some());
    assert_eq!((scene.finished, scene.tls().truncated), (1, 1));
    assert_eq!(scene.received, b"cut");
    drop(client);
    scene.assert_empty();
}

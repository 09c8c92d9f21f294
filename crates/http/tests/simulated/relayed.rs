//! Requests passed on to other servers over the simulated network, with everything going wrong: a client gets the
//! upstream's whole response or a failure, and no state is left.

use crate::relay::Relay;
use crate::stage::{MILLISECOND_NS, SECOND_NS, expect_nothing_in, run_until};
use millpond_http::client::Timeouts;
use millpond_http::{Client, ClientConfig, ServeConfig, ShardServer, ShardStart};
use millpond_io::Address;
use millpond_io::connection_pool::{PoolConfig, Target};
use millpond_io::driver::sim::{FaultPlan, Network, PeerRead, SimPeer, Turn};
use millpond_mempool::PoolMode;
use std::cell::RefCell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;

const CLIENTS: usize = 4;
const REQUESTS: usize = 6;
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello, mill!";
const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

/// An upstream's reaction to a request.
fn answer(network: &Network, peer: &mut SimPeer) -> bool {
    match network.random_below(10) {
        // After its response it sends an unsolicited one.
        0 => {
            let _ = peer.write(ANSWER.as_bytes());
            let _ = peer.write(ANSWER.as_bytes());
            true
        }
        1 => {
            let _ = peer.write(&ANSWER.as_bytes()[..network.random_below(50) as usize]);
            false
        }
        2 => false,
        3 => {
            let _ = peer.write(b"nonsense\r\n\r\n");
            true
        }
        // Silence, until the relay has had enough.
        4 => true,
        _ => peer.write(ANSWER.as_bytes()).is_ok(),
    }
}

/// Accepts, and serves each connection until it ends.
fn upstream(network: &Network, address: &Address) {
    assert!(network.listen(address));
    let address = address.clone();
    let mut peers: Vec<(SimPeer, Vec<u8>)> = Vec::new();
    network.spawn(move |network| {
        while let Some(peer) = network.accept(&address) {
            peers.push((peer, Vec::new()));
        }
        peers.retain_mut(|(peer, got)| match peer.read(got, 4096) {
            PeerRead::Bytes(_) if got.ends_with(b"\r\n\r\n") => {
                got.clear();
                answer(network, peer)
            }
            PeerRead::Bytes(_) | PeerRead::Nothing => true,
            PeerRead::Finished | PeerRead::Failed(_) => false,
        });
        Turn::At(network.now_ns() + MILLISECOND_NS)
    });
}

/// Whether it is all of a response; panics if it is none of those there may be.
fn is_whole(got: &[u8]) -> bool {
    let text = std::str::from_utf8(got).unwrap();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let length: usize = length.unwrap().parse().unwrap();
    assert!(body.len() <= length, "{text}");
    if head.starts_with("HTTP/1.1 200") {
        assert!("hello, mill!".starts_with(body), "{text}");
    } else {
        let status = &head[9..12];
        assert!(["502", "503", "504"].contains(&status), "{text}");
    }
    body.len() == length
}

/// Asks so many times; a connection that ends is made anew.
fn client(network: &Network, done: &Rc<RefCell<usize>>) {
    let done = Rc::clone(done);
    let (mut peer, mut got, mut asked): (Option<SimPeer>, _, _) = (None, Vec::new(), 0);
    network.spawn(move |network| {
        if asked == REQUESTS && got.is_empty() && peer.is_none() {
            *done.borrow_mut() += 1;
            return Turn::Done;
        }
        let Some(mut open) = peer.take() else {
            if let Ok(mut new) = network.connect()
                && new.write(REQUEST) == Ok(REQUEST.len())
            {
                asked += 1;
                peer = Some(new);
            }
            return Turn::Soon;
        };
        match open.read(&mut got, 4096) {
            PeerRead::Bytes(_) if is_whole(&got) => {
                got.clear();
                if asked < REQUESTS && open.write(REQUEST) == Ok(REQUEST.len()) {
                    asked += 1;
                    peer = Some(open);
                }
            }
            PeerRead::Bytes(_) | PeerRead::Nothing => peer = Some(open),
            // A cut response is not whole.
            PeerRead::Finished | PeerRead::Failed(_) => got.clear(),
        }
        Turn::At(network.now_ns() + MILLISECOND_NS)
    });
}

fn play(seed: u64) {
    let plan = FaultPlan {
        descriptors_max: usize::MAX,
        accept_failures: 0.0,
        window_bytes: 64 << 10,
        ..FaultPlan::drawn(seed)
    };
    let network = Network::new(seed, plan);
    network.set_tick_limit(3_000_000);
    let mut driver = network.driver(PoolMode::On).unwrap();
    driver.listen_anywhere().unwrap();
    let addresses =
        [9001, 9002].map(|port| Address::from(SocketAddr::from(([127, 0, 0, 1], port))));
    let config = ServeConfig::new("relay", SocketAddr::from(([127, 0, 0, 1], 80)).into());
    let make = |start: ShardStart| {
        let pool = PoolConfig {
            connections_max: 3,
            ..PoolConfig::default()
        };
        let client = ClientConfig {
            pool,
            ..ClientConfig::default()
        };
        let timeouts = Timeouts {
            first_byte_ns: SECOND_NS,
            between_bytes_ns: SECOND_NS,
            ..Timeouts::default()
        };
        let targets = addresses.iter().cloned().map(Target::at).collect();
        let client = Client::new(&start, client);
        let relay = Relay::new(client, targets, start.pool_mode);
        Ok::<_, Infallible>(relay.with_timeouts(timeouts).with_retries(1))
    };
    let mut server = ShardServer::new(&config, driver, make).unwrap();
    for address in &addresses {
        upstream(&network, address);
    }
    let done = Rc::new(RefCell::new(0));
    for _ in 0..CLIENTS {
        client(&network, &done);
    }
    let finished = Rc::clone(&done);
    let is_done = move || *finished.borrow() >= CLIENTS;
    run_until(&network, &mut server, is_done, seed);
    assert_eq!(*done.borrow(), CLIENTS);
    assert_eq!(server.service().open_runs(), 0, "seed {seed}");
    assert_eq!(server.service().client.exchange_count(), 0, "seed {seed}");
    expect_nothing_in(
        &server,
        ["relay_runs", "http_exchanges", "io_pool_waiters"],
        seed,
    );
}

/// Goal: whatever upstreams and the network do, each client gets a whole response, a reported failure, or a cut; every
/// request ends; and nothing is left.
#[test]
fn every_request_that_is_passed_on_ends() {
    for seed in 0..60 {
        play(seed);
    }
}

//! Tunnels through the proxy over the simulated network: both sides send, finish and respond after the other's end, in
//! plaintext or with TLS on either side.
//!
//! Invariants for every seed: each side gets every byte the other one sent, and then its end.

use crate::line::{Line, Speech, tls_client, tls_server};
use crate::proxied::{configured, limits};
use crate::stage::{MILLISECOND_NS, SECOND_NS, expect_nothing_in, run_until};
use millpond_http::proxy::{Proxy, ProxyControl};
use millpond_http::{ServeConfig, ShardServer, ShardStart};
use millpond_io::driver::sim::{FaultPlan, Network, PeerRead, SimDriver, Turn};
use millpond_io::tls::Tls;
use millpond_io::{Address, Driver};
use millpond_mempool::PoolMode;
use std::cell::RefCell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;

const ASKED: &[u8] = b"GET /t HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n";
const SWITCHED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n";

/// Nothing; a little; more than a block; more than all windows in between.
const LENGTHS: [usize; 4] = [0, 100, 50_000, 400_000];

/// Bytes a side has got, when it has sent all, finished and seen the other's end.
type Got = Rc<RefCell<Vec<Option<usize>>>>;

/// One end of the tunnel.
struct Side {
    line: Line,
    /// Bytes before the tunnel: the head to send.
    head: Vec<u8>,
    is_head_begun: bool,
    /// Bytes before the tunnel: the other's head has come.
    is_open: bool,
    left_bytes: usize,
    /// It sends its bytes only after the other's end.
    answers: bool,
    has_finished: bool,
    got: Vec<u8>,
    has_ended: bool,
}

impl Side {
    fn new(line: Line, head: &[u8], length: usize, answers: bool) -> Self {
        Self {
            line,
            head: head.to_vec(),
            is_head_begun: false,
            is_open: false,
            left_bytes: length,
            answers,
            has_finished: false,
            got: Vec::new(),
            has_ended: false,
        }
    }

    fn write_head(&mut self) {
        let count = self.line.write(&self.head).unwrap();
        self.is_head_begun |= count > 0;
        self.head.drain(..count);
    }

    /// Reads; the other's head is taken off.
    fn read(&mut self) {
        match self.line.read(&mut self.got, 16 << 10) {
            PeerRead::Bytes(_) | PeerRead::Nothing => {}
            PeerRead::Finished => self.has_ended = true,
            PeerRead::Failed(error) => panic!("{error}"),
        }
        let end = self.got.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end.filter(|_| !self.is_open) {
            self.got.drain(..end + 4);
            self.is_open = true;
        }
    }

    /// Whether all is over.
    fn turn(&mut self, network: &Network) -> bool {
        if !self.has_ended {
            self.read();
        }
        let is_asking = self.head.starts_with(b"GET");
        if !self.head.is_empty() {
            // Neither side responds before a request.
            if is_asking || self.is_open || self.is_head_begun {
                self.write_head();
            }
        } else if self.is_open && (!self.answers || self.has_ended) {
            let count = self.left_bytes.min(network.random_below(30_000) as usize);
            if count > 0 {
                self.left_bytes -= self.line.write(&vec![b'z'; count]).unwrap();
            }
            if self.left_bytes == 0 && !self.has_finished && network.random_below(8) == 0 {
                self.line.finish();
                self.has_finished = true;
            }
        }
        self.has_finished && self.has_ended
    }
}

fn run_side(network: &Network, mut side: Side, index: usize, got: &Got) {
    let got = Rc::clone(got);
    network.spawn(move |network| {
        if side.turn(network) {
            assert!(side.got.iter().all(|&byte| byte == b'z'));
            got.borrow_mut()[index] = Some(side.got.len());
            return Turn::Done;
        }
        Turn::At(network.now_ns() + MILLISECOND_NS)
    });
}

fn play(seed: u64) {
    let speech = [Speech::Clear, Speech::Tls12, Speech::Tls13][(seed % 3) as usize];
    let has_tls_upstream = seed % 4 >= 2;
    let sealed = |driver: SimDriver| {
        let server = (speech != Speech::Clear).then(|| tls_server(&limits()));
        Tls::towards_others(driver, server.as_ref(), PoolMode::On)
    };
    match speech == Speech::Clear && !has_tls_upstream {
        true => play_over(seed, speech, has_tls_upstream, |driver| driver),
        false => play_over(seed, speech, has_tls_upstream, sealed),
    }
}

fn play_over<D: Driver>(
    seed: u64,
    speech: Speech,
    has_tls_upstream: bool,
    layer: impl FnOnce(SimDriver) -> D,
) {
    let plan = FaultPlan {
        resets: 0.0,
        connect_failures: 0.0,
        accept_failures: 0.0,
        descriptors_max: usize::MAX,
        window_bytes: 64 << 10,
        ..FaultPlan::drawn(seed)
    };
    let network = Network::new(seed, plan);
    network.set_tick_limit(1_000_000);
    let mut driver = network.driver(PoolMode::On).unwrap();
    driver.listen_anywhere().unwrap();
    let address = Address::from(SocketAddr::from(([127, 0, 0, 1], 9001)));
    let mut proxied = configured(std::slice::from_ref(&address));
    proxied.upgrades = "raw".parse().unwrap();
    proxied.upstreams[0].tls = has_tls_upstream.then(|| tls_client(&limits()));
    proxied.timeouts.tunnel_idle_ns = 10 * SECOND_NS;
    let control = ProxyControl::new(proxied, speech != Speech::Clear, None).unwrap();
    let config = ServeConfig {
        limits: limits(),
        ..ServeConfig::new("proxy", SocketAddr::from(([127, 0, 0, 1], 80)).into())
    };
    let make = |start: ShardStart| Ok::<_, Infallible>(Proxy::new(&control, &start, limits()));
    let mut server = ShardServer::new(&config, layer(driver), make).unwrap();
    let lengths = [0, 0].map(|_: u8| LENGTHS[network.random_below(4) as usize]);
    // If both only respond to each other, neither begins.
    let who_answers = network.random_below(3) as usize;
    let got: Got = Rc::new(RefCell::new(vec![None; 2]));
    spawn_upstream(
        &network,
        &address,
        has_tls_upstream,
        (lengths[1], who_answers == 1),
        &got,
    );
    let line = Line::new(&network, speech);
    let client = Side::new(line, ASKED, lengths[0], who_answers == 0);
    run_side(&network, client, 0, &got);
    let done = Rc::clone(&got);
    let is_done = move || done.borrow().iter().all(Option::is_some);
    run_until(&network, &mut server, is_done, seed);
    let expected = [Some(lengths[1]), Some(lengths[0])];
    assert_eq!(*got.borrow(), expected, "seed {seed}");
    let pools = ["proxy_requests", "http_exchanges", "io_pool_waiters"];
    expect_nothing_in(&server, pools, seed);
}

fn spawn_upstream(
    network: &Network,
    address: &Address,
    is_tls: bool,
    (length, answers): (usize, bool),
    got: &Got,
) {
    assert!(network.listen(address));
    let (address, got) = (address.clone(), Rc::clone(got));
    network.spawn(move |network| {
        let Some(peer) = network.accept(&address) else {
            return Turn::At(network.now_ns() + MILLISECOND_NS);
        };
        let line = Line::accepted(peer, is_tls);
        run_side(network, Side::new(line, SWITCHED, length, answers), 1, &got);
        Turn::Done
    });
}

/// Goal: whatever the network does to them, half-closes pass both ways, and nothing is lost or kept.
#[test]
fn half_closes_pass_both_ways() {
    for seed in 0..60 {
        play(seed);
    }
}

//! The proxy over the simulated network: clients and upstreams that stall, close, dribble and lie at
//! every stage, on top of what the network does by itself; in plaintext or with TLS, on either side.
//!
//! Invariants for every seed: an upstream never gets a body that is not the one its client sent, a client never gets a
//! response that is not whole, a failure with a known status or a cut, and nothing is left when all have gone.

use crate::line::{Line, Speech, tls_client, tls_server};
use crate::stage::{MILLISECOND_NS, SECOND_NS, expect_nothing_in, run_until};
use millpond_http::proxy::{
    HalfClose, MirrorConfig, MirrorMethods, MirrorShare, Proxy, ProxyConfig, ProxyControl,
    UpstreamConfig,
};
use millpond_http::{LimitValues, Limits, ServeConfig, ShardServer, ShardStart};
use millpond_io::connection_pool::Endpoint;
use millpond_io::driver::sim::{FaultPlan, Network, PeerRead, SimDriver, Turn};
use millpond_io::tls::Tls;
use millpond_io::{Address, Driver, StopHandle};
use millpond_mempool::PoolMode;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;

const MIRROR_TIMEOUT_NS: u64 = SECOND_NS;
const CLIENTS: usize = 4;
const REQUESTS: usize = 6;
/// None; one that is kept; one just too long for that; one of more than a receive.
const BODIES: [usize; 4] = [0, 1024, 8193, 100_000];

/// Bytes on their way out, a part at a time as the window allows.
#[derive(Default)]
struct Unsent(Vec<u8>);

impl Unsent {
    /// False: the connection is gone.
    fn push(&mut self, peer: &mut Line) -> bool {
        if self.0.is_empty() {
            return true;
        }
        match peer.write(&self.0) {
            Ok(count) => {
                self.0.drain(..count);
                true
            }
            Err(_) => false,
        }
    }
}

/// Head and body; the body is as long as X-Bytes says, all of it the letter z.
fn message(start: &str, body_bytes: usize, is_chunked: bool) -> Vec<u8> {
    let body = "z".repeat(body_bytes);
    let framed = match (is_chunked, body_bytes) {
        (false, _) => format!("Content-Length: {body_bytes}\r\n\r\n{body}"),
        (true, 0) => "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        (true, _) => {
            format!("Transfer-Encoding: chunked\r\n\r\n{body_bytes:x}\r\n{body}\r\n0\r\n\r\n")
        }
    };
    format!("{start}\r\nHost: a\r\nX-Bytes: {body_bytes}\r\n{framed}").into_bytes()
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| line.strip_prefix(name))
}

/// Takes a whole message off the front of `got`: its head. Panics if it is not what it says it is.
fn take_message(got: &mut Vec<u8>) -> Option<String> {
    let head_end = got.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&got[..head_end]).unwrap().to_owned();
    let body = &got[head_end..];
    let body_bytes = match field(&head, "Content-Length: ") {
        Some(length) => length.parse().unwrap(),
        None if head.contains("Transfer-Encoding: chunked") => {
            let end = body.windows(5).position(|five| five == b"0\r\n\r\n")?;
            end + 5
        }
        None => 0,
    };
    if body.len() < body_bytes {
        return None;
    }
    let letters = body[..body_bytes]
        .iter()
        .filter(|&&byte| byte == b'z')
        .count();
    if let Some(expected) = field(&head, "X-Bytes: ") {
        assert_eq!(letters, expected.parse::<usize>().unwrap(), "{head}");
    }
    got.drain(..head_end + body_bytes);
    Some(head)
}

/// An upstream's reaction to a request: its response, and whether it goes on.
fn answer(network: &Network) -> (Vec<u8>, bool) {
    let body_bytes = BODIES[network.random_below(4) as usize];
    let is_chunked = network.random_below(2) == 0;
    let mut whole = message("HTTP/1.1 200 OK", body_bytes, is_chunked);
    match network.random_below(12) {
        // After its response it sends an unsolicited one.
        0 => {
            whole.extend(message("HTTP/1.1 200 OK", 7, false));
            (whole, true)
        }
        // A part, and then the end; or silence.
        kind @ (1 | 2) => {
            whole.truncate(network.random_below(whole.len() as u64) as usize);
            (whole, kind == 2)
        }
        3 => (Vec::new(), false),
        4 => (b"nonsense\r\n\r\n".to_vec(), true),
        5 => (Vec::new(), true),
        _ => (whole, true),
    }
}

/// One connection of an upstream.
struct Accepted {
    peer: Line,
    got: Vec<u8>,
    unsent: Unsent,
    goes_on: bool,
}

impl Accepted {
    /// False: it is over.
    fn turn(&mut self, network: &Network) -> bool {
        if !self.unsent.push(&mut self.peer) {
            return false;
        }
        if !self.goes_on {
            return !self.unsent.0.is_empty();
        }
        match self.peer.read(&mut self.got, 16 << 10) {
            PeerRead::Bytes(_) => {
                // Some respond before they have read it all, and some never read to the end.
                match network.random_below(400) {
                    0 => return false,
                    1 => (self.unsent.0, self.goes_on) = answer(network),
                    _ => {}
                }
                while take_message(&mut self.got).is_some() {
                    let (bytes, goes_on) = answer(network);
                    self.unsent.0.extend(bytes);
                    self.goes_on = goes_on;
                }
                true
            }
            PeerRead::Nothing => true,
            PeerRead::Finished | PeerRead::Failed(_) => false,
        }
    }
}

fn upstream(network: &Network, address: &Address, is_tls: bool) {
    assert!(network.listen(address));
    let address = address.clone();
    let mut accepted: Vec<Accepted> = Vec::new();
    network.spawn(move |network| {
        while let Some(peer) = network.accept(&address) {
            accepted.push(Accepted {
                peer: Line::accepted(peer, is_tls),
                got: Vec::new(),
                unsent: Unsent::default(),
                goes_on: true,
            });
        }
        accepted.retain_mut(|it| it.turn(network));
        Turn::At(network.now_ns() + MILLISECOND_NS)
    });
}

/// A faulty client's treatment of its request, or of the response.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Manners {
    Good,
    /// Goes when so many bytes of the response have come.
    Leaves(usize),
    /// Says nothing more, and reads.
    StopsSaying,
    /// Reads nothing until it is left.
    StopsReading,
    /// Closes its sending side behind its request.
    Finishes,
}

fn manners(network: &Network) -> Manners {
    match network.random_below(9) {
        3 => Manners::Finishes,
        0 => Manners::Leaves(network.random_below(2_000) as usize),
        1 => Manners::StopsSaying,
        2 => Manners::StopsReading,
        _ => Manners::Good,
    }
}

/// How often clients got which result, over all seeds.
type Statuses = Rc<RefCell<BTreeMap<String, usize>>>;

struct Asking {
    peer: Line,
    unsent: Unsent,
    got: Vec<u8>,
    manners: Manners,
    patience_until_ns: u64,
}

impl Asking {
    fn begin(network: &Network, speech: Speech) -> Self {
        let peer = Line::new(network, speech);
        let method = ["GET", "PUT", "POST"][network.random_below(3) as usize];
        let body_bytes = BODIES[network.random_below(4) as usize];
        let is_chunked = network.random_below(2) == 0;
        let mut request = message(&format!("{method} /a HTTP/1.1"), body_bytes, is_chunked);
        let manners = manners(network);
        if manners == Manners::StopsSaying {
            request.truncate(1 + network.random_below(request.len() as u64 - 1) as usize);
        }
        Self {
            peer,
            unsent: Unsent(request),
            got: Vec::new(),
            manners,
            patience_until_ns: network.now_ns() + 20 * SECOND_NS,
        }
    }

    /// False: this request has ended, one way or the other.
    fn turn(&mut self, network: &Network, statuses: &Statuses) -> bool {
        // An early response may leave the rest of a request unwanted.
        let is_open = self.unsent.push(&mut self.peer);
        if self.manners == Manners::Finishes && is_open && self.unsent.0.is_empty() {
            self.peer.finish();
            self.manners = Manners::Good;
        }
        if self.manners == Manners::StopsReading && is_open {
            return network.now_ns() < self.patience_until_ns;
        }
        match self.peer.read(&mut self.got, 16 << 10) {
            PeerRead::Bytes(_) | PeerRead::Nothing => {}
            // A cut response is not whole.
            PeerRead::Finished | PeerRead::Failed(_) => return false,
        }
        if matches!(self.manners, Manners::Leaves(bytes) if self.got.len() >= bytes) {
            return false;
        }
        while let Some(head) = take_message(&mut self.got) {
            let status = &head["HTTP/1.1 ".len()..][..3];
            assert!(
                ["100", "200", "400", "408", "502", "503", "504"].contains(&status),
                "{head}"
            );
            let is_failure = matches!(status, "502" | "503" | "504");
            assert_eq!(is_failure, head.contains("Proxy-Status: "), "{head}");
            if status != "100" {
                *statuses.borrow_mut().entry(status.to_owned()).or_default() += 1;
                return false;
            }
        }
        assert!(
            network.now_ns() < self.patience_until_ns,
            "no response and no end"
        );
        true
    }
}

fn client(network: &Network, speech: Speech, done: &Rc<RefCell<usize>>, statuses: &Statuses) {
    let (done, statuses) = (Rc::clone(done), Rc::clone(statuses));
    let (mut asking, mut asked): (Option<Asking>, _) = (None, 0);
    network.spawn(move |network| {
        if asking
            .as_mut()
            .is_some_and(|it| !it.turn(network, &statuses))
        {
            asking = None;
        }
        if asking.is_none() && asked == REQUESTS {
            *done.borrow_mut() += 1;
            return Turn::Done;
        }
        if asking.is_none() {
            asking = Some(Asking::begin(network, speech));
            asked += 1;
        }
        Turn::At(network.now_ns() + MILLISECOND_NS)
    });
}

pub(crate) fn limits() -> Limits {
    LimitValues {
        head_timeout_ns: 2 * SECOND_NS,
        body_grace_ns: 2 * SECOND_NS,
        write_stall_ns: 2 * SECOND_NS,
        ..LimitValues::default()
    }
    .checked()
    .unwrap()
}

pub(crate) fn configured(addresses: &[Address]) -> ProxyConfig {
    let upstreams = addresses.iter().map(|address| UpstreamConfig {
        name: address.to_string(),
        place: Endpoint::Addresses(vec![address.clone()]),
        host: "upstream".to_owned(),
        weight: 1,
        tls: None,
        proxy_protocol: None,
    });
    let mut config = ProxyConfig::new(upstreams.collect());
    config.connections_max = 2;
    config.pending_max = 2;
    config.retry_percent = 100;
    config.timeouts.connection_ns = SECOND_NS;
    config.timeouts.write_ns = SECOND_NS;
    config.timeouts.first_byte_ns = SECOND_NS;
    config.timeouts.between_bytes_ns = SECOND_NS;
    config.timeouts.total_ns = 8 * SECOND_NS;
    config
}

/// Runs a proxy over a network without faults, in front of the one upstream that `stage` puts there, beside a
/// client.
pub(crate) fn before_one(stage: impl FnOnce(&Network, &Address, StopHandle)) {
    before_one_with(|_| {}, stage);
}

fn before_one_with(
    change: impl FnOnce(&mut ProxyConfig),
    stage: impl FnOnce(&Network, &Address, StopHandle),
) {
    let network = Network::new(1, FaultPlan::none());
    network.set_tick_limit(1_000_000);
    let mut driver = network.driver(PoolMode::On).unwrap();
    driver.listen_anywhere().unwrap();
    let address = Address::from(SocketAddr::from(([127, 0, 0, 1], 9001)));
    let mut proxied = configured(std::slice::from_ref(&address));
    // Clients say by a FIN that they have asked all.
    let timeout_ns = 60 * SECOND_NS;
    proxied.half_close = HalfClose::Allow { timeout_ns };
    change(&mut proxied);
    let control = ProxyControl::new(proxied, false, None).unwrap();
    let config = ServeConfig {
        limits: limits(),
        ..ServeConfig::new("proxy", SocketAddr::from(([127, 0, 0, 1], 80)).into())
    };
    let make = |start: ShardStart| Ok::<_, Infallible>(Proxy::new(&control, &start, limits()));
    let mut server = ShardServer::new(&config, driver, make).unwrap();
    stage(&network, &address, server.stop_handle());
    server.run().unwrap();
}

/// Which sides use TLS: clients, upstreams, both or none.
fn drawn_sides(seed: u64) -> (Speech, bool) {
    let speech = match seed % 6 {
        0..3 => Speech::Clear,
        3 => Speech::Tls12,
        _ => Speech::Tls13,
    };
    (speech, seed % 4 >= 2)
}

fn play(seed: u64, statuses: &Statuses) {
    let (speech, has_tls_upstreams) = drawn_sides(seed);
    let in_the_clear = |driver| driver;
    let sealed = |driver: SimDriver| {
        let server = (speech != Speech::Clear).then(|| tls_server(&limits()));
        Tls::towards_others(driver, server.as_ref(), PoolMode::On)
    };
    match speech == Speech::Clear && !has_tls_upstreams {
        true => play_over(seed, in_the_clear, statuses),
        false => play_over(seed, sealed, statuses),
    }
}

fn play_over<D: Driver>(seed: u64, layer: impl FnOnce(SimDriver) -> D, statuses: &Statuses) {
    let (speech, has_tls_upstreams) = drawn_sides(seed);
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
    let mut proxied = configured(&addresses);
    if seed.is_multiple_of(3) {
        let timeout_ns = SECOND_NS / 2;
        proxied.half_close = HalfClose::Allow { timeout_ns };
    }
    // One as bad as the upstreams; it must not be noticed.
    let mirror = Address::from(SocketAddr::from(([127, 0, 0, 1], 9003)));
    if seed.is_multiple_of(2) {
        proxied.mirrors.push(MirrorConfig {
            name: mirror.to_string(),
            place: Endpoint::Addresses(vec![mirror.clone()]),
            host: "mirror".to_owned(),
            tls: None,
            share: MirrorShare::of_percent(50.0).unwrap(),
        });
        proxied.mirroring.methods = MirrorMethods::All;
        proxied.mirroring.timeout_ns = MIRROR_TIMEOUT_NS;
    }
    for upstream in &mut proxied.upstreams {
        upstream.tls = has_tls_upstreams.then(|| tls_client(&limits()));
    }
    let control = ProxyControl::new(proxied, speech != Speech::Clear, None).unwrap();
    let config = ServeConfig {
        limits: limits(),
        ..ServeConfig::new("proxy", SocketAddr::from(([127, 0, 0, 1], 80)).into())
    };
    let make = |start: ShardStart| Ok::<_, Infallible>(Proxy::new(&control, &start, limits()));
    let mut server = ShardServer::new(&config, layer(driver), make).unwrap();
    for address in &addresses {
        upstream(&network, address, has_tls_upstreams);
    }
    upstream(&network, &mirror, false);
    let done = Rc::new(RefCell::new(0));
    for _ in 0..CLIENTS {
        client(&network, speech, &done, statuses);
    }
    let finished = Rc::clone(&done);
    let (clock, all_done_ns) = (network.clone(), Cell::new(None));
    let is_done = move || {
        if *finished.borrow() < CLIENTS {
            return false;
        }
        // Copies end by themselves.
        let since_ns = all_done_ns.get().unwrap_or(clock.now_ns());
        all_done_ns.set(Some(since_ns));
        clock.now_ns() >= since_ns + 2 * MIRROR_TIMEOUT_NS
    };
    run_until(&network, &mut server, is_done, seed);
    assert_eq!(*done.borrow(), CLIENTS, "seed {seed}");
    expect_nothing_in(
        &server,
        ["proxy_requests", "http_exchanges", "io_pool_waiters"],
        seed,
    );
}

/// Goal: whatever clients, upstreams and the network do, each request ends, with a whole response, with a reported
/// failure or with a cut; bodies arrive as they were sent; and nothing is left.
#[test]
fn every_request_through_the_proxy_ends() {
    let statuses = Statuses::default();
    for seed in 0..60 {
        play(seed, &statuses);
    }
    for expected in ["200", "502", "504"] {
        assert!(statuses.borrow().contains_key(expected), "{statuses:?}");
    }
}

/// Goal: an address without a response is waited for exactly as long as `--connect-timeout`, whether that is shorter or
/// longer than the pool's own default.
#[test]
fn connecting_takes_as_long_as_it_may() {
    for connect_s in [1, 9, 40] {
        let answered_ns = Rc::new(Cell::new(0));
        let change = |config: &mut ProxyConfig| {
            config.timeouts.connection_ns = connect_s * SECOND_NS;
            config.timeouts.total_ns = 100 * SECOND_NS;
            config.tries_max = 1;
        };
        before_one_with(change, |network, address, stop| {
            network.silence(address);
            let mut peer = network.connect().unwrap();
            peer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let (mut got, answered_ns) = (Vec::new(), Rc::clone(&answered_ns));
            let began_ns = network.now_ns();
            network.spawn(move |network| {
                if let PeerRead::Nothing = peer.read(&mut got, 1 << 16) {
                    return Turn::At(network.now_ns() + 10 * MILLISECOND_NS);
                }
                assert!(got.starts_with(b"HTTP/1.1 504 "), "{}", got.escape_ascii());
                answered_ns.set(network.now_ns() - began_ns);
                stop.request_stop();
                Turn::Done
            });
        });
        let expected_ns = connect_s * SECOND_NS;
        let late_ns = answered_ns.get() - expected_ns;
        assert!(late_ns < SECOND_NS / 2, "{connect_s} s: {late_ns} ns late");
    }
}

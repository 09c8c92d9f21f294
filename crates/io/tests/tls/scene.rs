//! A server in memory that sends everything back, and clients of rustls that it knows nothing of.

use crate::tls_support::{Authority, HANDSHAKE_TIMEOUT_NS, client};
use millpond_io::driver::sim::{FaultPlan, Network, PeerRead, SimDriver, SimPeer};
use millpond_io::proxy_protocol::ProxyHeadCounters;
use millpond_io::tls::{Tls, TlsCounters};
use millpond_io::{Driver, Errno, Event, SendOutcome, ShardPools, SocketId};
use millpond_mempool::{Buffer, PoolMode};
use rustls::{ClientConfig, ClientConnection};
use std::io::{Read, Write};
use std::sync::Arc;

/// A server that sends everything back, and the events it got.
pub(crate) struct Scene {
    pub(crate) network: Network,
    pub(crate) driver: Tls<SimDriver>,
    pub(crate) pools: ShardPools,
    pub(crate) accepted: Vec<SocketId>,
    pub(crate) received: Vec<u8>,
    pub(crate) finished: usize,
    pub(crate) failed: Vec<Errno>,
}

impl Scene {
    pub(crate) fn new(authority: &Authority, seed: u64, plan: FaultPlan) -> Self {
        Self::over(seed, plan, |driver| {
            Tls::new(driver, &authority.server, PoolMode::On)
        })
    }

    /// Where the PROXY protocol comes before TLS, and `count_max` heads may be awaited.
    pub(crate) fn awaiting_heads(authority: &Authority, count_max: usize) -> Self {
        Self::over(1, FaultPlan::none(), |driver| {
            Tls::new(driver, &authority.server, PoolMode::On).awaiting_heads(
                HANDSHAKE_TIMEOUT_NS,
                count_max,
                PoolMode::On,
            )
        })
    }

    /// Where it comes before plaintext.
    pub(crate) fn in_plaintext(count_max: usize) -> Self {
        Self::in_plaintext_with(1, FaultPlan::none(), count_max)
    }

    pub(crate) fn in_plaintext_with(seed: u64, plan: FaultPlan, count_max: usize) -> Self {
        Self::over(seed, plan, |driver| {
            Tls::in_plaintext(driver, PoolMode::On).awaiting_heads(
                HANDSHAKE_TIMEOUT_NS,
                count_max,
                PoolMode::On,
            )
        })
    }

    fn over(seed: u64, plan: FaultPlan, layer: impl FnOnce(SimDriver) -> Tls<SimDriver>) -> Self {
        let network = Network::new(seed, plan);
        network.set_tick_limit(2_000_000);
        let mut driver = network.driver(PoolMode::On).unwrap();
        driver.listen_anywhere().unwrap();
        Self {
            network,
            driver: layer(driver),
            pools: ShardPools::new(PoolMode::On),
            accepted: Vec::new(),
            received: Vec::new(),
            finished: 0,
            failed: Vec::new(),
        }
    }

    pub(crate) fn calm(authority: &Authority) -> Self {
        Self::new(authority, 1, FaultPlan::none())
    }

    /// One tick; a peer that has sent its FIN gets its response, then is closed.
    pub(crate) fn tick(&mut self, wait_ns: u64) {
        let Self {
            driver,
            pools,
            accepted,
            received,
            finished,
            failed,
            ..
        } = self;
        let until_ns = self.network.now_ns() + wait_ns;
        let echo =
            |driver: &mut Tls<SimDriver>, pools: &mut ShardPools, event: Event<'_>| match event {
                Event::Accepted { socket, .. } => accepted.push(socket),
                Event::Received { socket, bytes } => {
                    received.extend_from_slice(bytes);
                    let mut answer = Buffer::new();
                    answer.extend_from_slice(&pools.blocks, bytes).unwrap();
                    if driver.send(socket, answer) == SendOutcome::Blocked {
                        driver.pause_receive(socket);
                    }
                }
                Event::SendBlocked { socket } => driver.pause_receive(socket),
                Event::SendDrained { socket } => driver.resume_receive(socket),
                Event::PeerFinished { socket } => {
                    *finished += 1;
                    driver.close_after_send(socket);
                }
                Event::Failed { error, .. } => failed.push(error),
                _ => {}
            };
        driver.tick(Some(until_ns), pools, echo).unwrap();
    }

    pub(crate) fn tls(&self) -> TlsCounters {
        self.driver.tls_counters().unwrap()
    }

    pub(crate) fn heads(&self) -> ProxyHeadCounters {
        self.driver.proxy_head_counters().unwrap()
    }

    pub(crate) fn connect(&self, config: &Arc<ClientConfig>) -> Client {
        Client {
            peer: Some(self.network.connect().unwrap()),
            tls: client(config),
            heard: Vec::new(),
            end: None,
        }
    }

    /// Ticks until `done`; the client goes on meanwhile.
    pub(crate) fn run(&mut self, client: &mut Client, mut done: impl FnMut(&mut Client) -> bool) {
        for _ in 0..200_000 {
            client.turn();
            if done(client) {
                return;
            }
            self.tick(1_000_000);
        }
        panic!(
            "hangs: {:?} {:?}, heard {}",
            self.tls(),
            client.end,
            client.heard.len()
        );
    }

    /// A message there and back.
    pub(crate) fn exchange(&mut self, client: &mut Client, message: &[u8]) {
        client.say(message);
        let from = client.heard.len();
        self.run(client, |client| {
            client.heard.len() >= from + message.len() || client.end.is_some()
        });
        assert_eq!(&client.heard[from..], message, "{:?}", client.end);
    }

    /// All connections are gone, and with them everything they took.
    pub(crate) fn assert_empty(&mut self) {
        for _ in 0..2_000 {
            self.tick(10_000_000);
        }
        assert_eq!(self.driver.socket_count(), 0);
        self.driver.trim_pools();
        self.driver.visit_pool_stats(&mut |stats| {
            assert!(stats.identity_holds(), "{stats:?}");
            assert_eq!((stats.live_objects, stats.live_bytes), (0, 0), "{stats:?}");
        });
        let heads = self.driver.proxy_head_counters().unwrap_or_default();
        assert_eq!(heads.awaited, 0);
        let refused: u64 = heads.refused.iter().sum();
        let accepted = self.driver.counters().accepted;
        let Some(tls) = self.driver.tls_counters() else {
            let taken = heads.taken_v1 + heads.taken_v2;
            assert_eq!(taken + refused, accepted, "each ends in one way: {heads:?}");
            return;
        };
        assert_eq!((tls.handshaking, tls.established), (0, 0));
        let failed: u64 = tls.failed.iter().sum();
        assert_eq!(
            tls.handshakes() + failed + refused,
            accepted,
            "each ends in one way: {tls:?} {heads:?}"
        );
    }
}

/// How a client's connection ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    Goodbye,
    Fin,
    Broken(Errno),
    Tls(rustls::Error),
}

pub(crate) struct Client {
    pub(crate) peer: Option<SimPeer>,
    pub(crate) tls: ClientConnection,
    pub(crate) heard: Vec<u8>,
    pub(crate) end: Option<End>,
}

impl Client {
    pub(crate) fn say(&mut self, message: &[u8]) {
        self.tls.set_buffer_limit(None);
        self.tls.writer().write_all(message).unwrap();
    }

    /// Sends what there is room for, and takes in what came.
    pub(crate) fn turn(&mut self) {
        self.send();
        let Some(peer) = &mut self.peer else {
            return;
        };
        let mut bytes = Vec::new();
        let outcome = peer.read(&mut bytes, 4_000);
        let mut rest = &bytes[..];
        while !rest.is_empty() && self.end.is_none() {
            self.tls.read_tls(&mut rest).unwrap();
            if let Err(error) = self.tls.process_new_packets() {
                self.end = Some(End::Tls(error));
            }
            let mut part = Vec::new();
            match self.tls.reader().read_to_end(&mut part) {
                Ok(_) => self.end = self.end.take().or(Some(End::Goodbye)),
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
            self.heard.extend_from_slice(&part);
        }
        match outcome {
            PeerRead::Finished => self.end = self.end.take().or(Some(End::Fin)),
            PeerRead::Failed(error) => self.end = self.end.take().or(Some(End::Broken(error))),
            PeerRead::Bytes(_) | PeerRead::Nothing => {}
        }
        self.send();
    }

    pub(crate) fn send(&mut self) {
        struct Writer<'a>(&'a mut SimPeer);
        impl Write for Writer<'_> {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                match self.0.write(bytes)? {
                    0 => Err(std::io::ErrorKind::WouldBlock.into()),
                    count => Ok(count),
                }
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        while let Some(peer) = &mut self.peer
            && self.tls.wants_write()
            && self.tls.write_tls(&mut Writer(peer)).is_ok()
        {}
    }

    /// Ends its side with a goodbye.
    pub(crate) fn finish(&mut self) {
        self.tls.send_close_notify();
        self.send();
        self.peer.as_mut().unwrap().finish();
    }
}

//! From a key's place to addresses: at once, or through the resolver, for as long as its response holds.

use std::sync::Arc;

use crate::address::Address;
use crate::driver::Driver;
use crate::resolver::{Answer, ResolveError, ResolverClient};
use crate::shard::ShardContext;
use crate::timer_wheel::TimerId;

use super::error::{AcquireError, AcquirePhase};
use super::{ConnectionPool, NAME_TIMER, PoolKey};

#[cfg(feature = "tls")]
use crate::tls::TlsClient;

/// How much longer expired addresses are used when the resolver does not respond in time.
const OVERTIME_NS: u64 = 5_000_000_000;

/// State of a key's addresses.
#[derive(Debug)]
pub(super) struct Naming {
    /// The last good ones.
    addresses: Option<Arc<[Address]>>,
    /// Why there are none, if the name has none.
    failure: Option<ResolveError>,
    /// The resolver did not respond in time, and no earlier address is known.
    is_late: bool,
    /// Until then either of them holds.
    valid_until_ns: u64,
    /// When the resolver was asked; it has not responded.
    asked_ns: Option<u64>,
    /// When it responded last, and how long that had taken.
    answered: (u64, u64),
    timer: Option<TimerId>,
    /// Which address to try first: the one that worked last.
    pub(super) preferred: usize,
}

impl Naming {
    pub(super) fn new(place: &Endpoint) -> Self {
        let addresses = match place {
            Endpoint::Addresses(addresses) => Some(addresses.as_slice().into()),
            Endpoint::Name { .. } => None,
        };
        Self {
            valid_until_ns: if addresses.is_some() { u64::MAX } else { 0 },
            addresses,
            failure: None,
            is_late: false,
            asked_ns: None,
            answered: (0, 0),
            timer: None,
            preferred: 0,
        }
    }

    pub(super) fn is_asking(&self) -> bool {
        self.asked_ns.is_some()
    }

    /// The last lookup found no address, and none is known from before.
    pub(super) fn is_unresolved(&self) -> bool {
        self.failure.is_some() || self.is_late
    }

    fn why_unresolved(&self) -> Option<AcquireError> {
        match &self.failure {
            Some(failure) => Some(failure.clone().into()),
            None if self.is_late => Some(AcquireError::TimedOut {
                phase: AcquirePhase::Resolve,
            }),
            None => None,
        }
    }

    /// How long the response took that came just now; 0 if none did.
    pub(super) fn took_until(&self, now_ns: u64) -> u64 {
        match self.answered {
            (answered_ns, took_ns) if answered_ns == now_ns => took_ns,
            _ => 0,
        }
    }
}

impl ConnectionPool {
    /// The addresses to connect to, if they are known and valid. If the name has none, a waiting request fails; else
    /// the resolver is asked, and its response continues the request.
    pub(super) fn addresses<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        key: PoolKey,
    ) -> Option<Arc<[Address]>> {
        let naming = &self.keys.get(key.0)?.naming;
        if naming.asked_ns.is_some() {
            return None;
        }
        if shard.now_ns < naming.valid_until_ns {
            if let Some(failure) = naming.failure.clone() {
                self.fail_all(shard, key, &failure.into());
                return None;
            }
            if let Some(addresses) = &naming.addresses {
                return Some(Arc::clone(addresses));
            }
        }
        self.ask(shard, key);
        None
    }

    /// Resolves the name of a key, whether a request waits for it or not, unless the known result is valid.
    pub fn resolve<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, key: PoolKey) {
        let _ = self.addresses(shard, key);
    }

    /// Why the name of a key has no address, if it has none.
    #[must_use]
    pub fn why_unresolved(&self, key: PoolKey) -> Option<AcquireError> {
        self.keys.get(key.0)?.naming.why_unresolved()
    }

    fn ask<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, key: PoolKey) {
        let user = self.timer_user(NAME_TIMER, key.to_bits());
        let Some(state) = self.keys.get_mut(key.0) else {
            return;
        };
        let Endpoint::Name { host, port } = &state.target.place else {
            return;
        };
        let asked = match &self.resolver {
            Some(resolver) => resolver.ask(key.to_bits(), host, *port),
            None => Err(ResolveError::NoResolver { name: host.clone() }),
        };
        match asked {
            Ok(()) => {
                let naming = &mut state.naming;
                naming.asked_ns = Some(shard.now_ns);
                let timer = naming
                    .timer
                    .get_or_insert_with(|| shard.timers.create(user));
                let until_ns = shard.now_ns.saturating_add(self.config.resolve_max_ns);
                shard.timers.set(*timer, until_ns);
            }
            Err(error) => self.fail_all(shard, key, &error.into()),
        }
    }

    /// The shard was woken: takes in what the resolver has found.
    pub fn on_wake<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        while let Some(answer) = self.resolver.as_mut().and_then(ResolverClient::next_answer) {
            self.answered(shard, answer);
        }
    }

    fn answered<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, answer: Answer) {
        let key = PoolKey::from_bits(answer.id);
        self.naming_ends(shard, key);
        let Some(state) = self.keys.get_mut(key.0) else {
            return;
        };
        let naming = &mut state.naming;
        let took_ns = naming
            .asked_ns
            .take()
            .map_or(0, |asked_ns| shard.now_ns - asked_ns);
        naming.answered = (shard.now_ns, took_ns);
        naming.is_late = false;
        naming.valid_until_ns = shard.now_ns.saturating_add(answer.valid_ns);
        match answer.result {
            Ok(addresses) => {
                if naming.addresses.as_ref() != Some(&addresses) {
                    naming.preferred = 0;
                }
                naming.addresses = Some(addresses);
                naming.failure = None;
                self.advance(shard, key);
            }
            Err(failure) => {
                naming.addresses = None;
                naming.failure = Some(failure.clone());
                self.fail_all(shard, key, &failure.into());
            }
        }
        self.feed_starved(shard);
    }

    /// The resolver takes too long: the earlier addresses, if any, are used meanwhile.
    pub(super) fn resolved_too_slowly<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        key: PoolKey,
    ) {
        self.naming_ends(shard, key);
        let Some(state) = self.keys.get_mut(key.0) else {
            return;
        };
        let naming = &mut state.naming;
        if naming.asked_ns.take().is_none() {
            return;
        }
        if naming.addresses.is_some() {
            naming.valid_until_ns = shard.now_ns.saturating_add(OVERTIME_NS);
            return self.advance(shard, key);
        }
        naming.is_late = true;
        let phase = AcquirePhase::Resolve;
        self.fail_all(shard, key, &AcquireError::TimedOut { phase });
    }

    /// No request waits for the resolver any more.
    pub(super) fn naming_ends<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, key: PoolKey) {
        let timer = self
            .keys
            .get_mut(key.0)
            .and_then(|state| state.naming.timer.take());
        if let Some(timer) = timer {
            shard.timers.remove(timer);
        }
    }
}

// The peers of a pool, and its limits.

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;

/// Settings for all keys of a pool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolConfig {
    /// Connections of all keys together: in use, parked and being opened. Beyond it the connection
    /// parked for longest makes room, of another key if there is one.
    pub connections_max: usize,
    /// A parked connection is closed after so long: below the upstream's own limit, so that this side closes.
    pub idle_max_ns: u64,
    /// A connection this old is not used again: so that a name's new addresses are noticed.
    pub age_max_ns: u64,
    /// A connection serves so often at most.
    pub uses_max: u32,
    /// From the first attempt until a connection is open, over all addresses of the upstream.
    pub connect_max_ns: u64,
    /// The same with the TLS handshake.
    pub tls_max_ns: u64,
    /// Until the resolver has responded.
    pub resolve_max_ns: u64,
    /// How long one address has before the next is tried beside it (RFC 8305, 5).
    pub stagger_ns: u64,
    /// Distinguishes the pool's timers from others of its shard: one of bits 27 to 31 that no other user of the shard's
    /// timers sets in the lower half of theirs.
    pub timer_mark: u32,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            // nginx keeps its side open for 75 s, haproxy and node for less if configured: node's default is 5 s.
            idle_max_ns: 4 * SECOND_NS,
            age_max_ns: 10 * MINUTE_NS,
            uses_max: u32::MAX,
            connect_max_ns: 5 * SECOND_NS,
            tls_max_ns: 10 * SECOND_NS,
            resolve_max_ns: 5 * SECOND_NS,
            stagger_ns: SECOND_NS / 4,
            timer_mark: 1 << 29,
        }
    }
}

/// Where an upstream is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Endpoint {
    /// At these addresses, the best first; they are one and the same server.
    Addresses(Vec<Address>),
    /// Wherever the name leads.
    Name {
        /// The host's name.
        host: String,
        /// Its port.
        port: u16,
    },
}

/// An upstream: its place, what is spoken there, and how many connections it gets.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where.
    pub place: Endpoint,
    /// TLS, with the identities of both sides, or plaintext. The shard's driver must be
    /// [`crate::tls::Tls`].
    #[cfg(feature = "tls")]
    pub tls: Option<TlsClient>,
    /// Connections at most: in use, parked and being opened.
    pub connections_max: usize,
    /// Requests that may wait for one of them at most.
    pub waiters_max: usize,
}

impl Target {
    /// At one address, in plaintext, with room for 256 connections.
    #[must_use]
    pub fn at(address: Address) -> Self {
        Self::new(Endpoint::Addresses(vec![address]))
    }

    /// Wherever a name leads: otherwise as [`Self::at`].
    #[must_use]
    pub fn named(host: &str, port: u16) -> Self {
        Self::new(Endpoint::Name {
            host: host.to_owned(),
            port,
        })
    }

    fn new(place: Endpoint) -> Self {
        Self {
            place,
            #[cfg(feature = "tls")]
            tls: None,
            connections_max: 256,
            waiters_max: 1024,
        }
    }

    /// The same, over TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(mut self, tls: TlsClient) -> Self {
        self.tls = Some(tls);
        self
    }
}

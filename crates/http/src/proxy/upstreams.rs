//! The upstreams of one shard: which there are, which may be used, and what became of their requests.
//!
//! `service` takes one per try, and reports how the try ended. A reload replaces the list; an upstream that stays is
//! found by name and keeps connections, health and counts; one that leaves is kept aside until the last request there
//! has ended.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use millpond_io::connection_pool::{PoolKey, Target};
use millpond_io::monotonic_ns;
use millpond_io::proxy_protocol::{ProxyHeadText, ProxyProtocol};
use millpond_io::tls::TlsClient;
use millpond_mempool::{BlockPool, PoolError};

use crate::client::{
    Client, ExchangeEvent, ExchangeFailure, ExchangeId, ExchangeReport, OutgoingRequest,
    ReceivedHead,
};
use crate::head_text::{Authority, Field, FieldName, FieldValue, RequestTarget};
use crate::log;
use crate::log::{LogLevel, write_json_text};
use crate::method::Method;
use crate::serve::StatusPage;
use crate::status::StatusCode;

use super::balance::hash;
use super::balance::{Balancer, Candidate};
use super::client_peer::NameWatch;
use super::config::{HostPolicy, ProxyConfig, ProxyControl, UpstreamConfig};
use super::counters::{Cell, UpstreamCounters, UpstreamRegistry};
use super::failure::{Failure, FailureLog, Kind, Side};
use super::service::{PROBE_USER, Proxy};

/// Names an upstream of one shard for as long as it has requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct UpstreamId(u32);

/// Which upstreams a request was sent to already, by their place in the list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tried(u128);

impl Tried {
    fn has(self, index: usize) -> bool {
        self.0 >> (index & 127) & 1 != 0
    }

    fn add(&mut self, index: usize) {
        self.0 |= 1 << (index & 127);
    }

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Properties of an upstream in a shard.
const STATES: [Cell; 5] = [
    Cell::IsUsable,
    Cell::IsUnresolved,
    Cell::IsConfigured,
    Cell::IsDown,
    Cell::IsEjected,
];

/// As what a failure is counted that has a cell for its kind.
const fn cell_of(failure: Failure) -> Cell {
    match failure {
        Failure::ConnectTimeout
        | Failure::ResolveTimeout
        | Failure::WriteTimeout
        | Failure::ResponseTimeout
        | Failure::ReadTimeout => Cell::FailedTimeout,
        Failure::Unresolved
        | Failure::Refused
        | Failure::Unreachable
        | Failure::CertificateName
        | Failure::CertificateAuthority
        | Failure::CertificateExpired
        | Failure::Certificate
        | Failure::TlsAlert
        | Failure::NotTls
        | Failure::TlsIncompatible
        | Failure::TlsClosed
        | Failure::TlsFailed => Cell::FailedConnect,
        Failure::Broken | Failure::Incomplete | Failure::Truncated => Cell::FailedBroken,
        Failure::HeadTooLong
        | Failure::TooManyFields
        | Failure::TrailerTooLong
        | Failure::BadChunks
        | Failure::BadResponse
        | Failure::SwitchNotAsked
        | Failure::OtherProtocol => Cell::FailedResponse,
        Failure::NoneUsable
        | Failure::Saturated
        | Failure::Local
        | Failure::Loop
        | Failure::TooManyOptions => Cell::FailedLocal,
    }
}

/// One upstream.
pub(super) struct Upstream {
    id: UpstreamId,
    config: UpstreamConfig,
    pub(super) key: PoolKey,
    limits: (usize, usize),
    identity: u64,
    health: Health,
    outstanding: u32,
    counters: Arc<UpstreamCounters>,
    pub(super) probe: Option<ExchangeId>,
    /// The status of the probe under way was good.
    pub(super) is_probe_good: bool,
    pub(super) probe_due_ns: u64,
    failures: FailureLog,
    name: NameWatch,
}

impl Upstream {
    pub(super) fn id(&self) -> UpstreamId {
        self.id
    }

    pub(super) fn host(&self) -> Authority<'_> {
        // Checked when the configuration was taken.
        Authority::known(self.config.host.as_bytes())
    }

    pub(super) fn proxy_protocol(&self) -> Option<ProxyProtocol> {
        self.config.proxy_protocol
    }

    fn answered(&mut self, status: StatusCode) {
        self.health.succeeded();
        self.counters.count(match status.code() / 100 {
            1 => Cell::Responses1xx,
            2 => Cell::Responses2xx,
            3 => Cell::Responses3xx,
            4 => Cell::Responses4xx,
            _ => Cell::Responses5xx,
        });
    }

    /// One request fewer.
    fn release(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
        let outstanding = u64::from(self.outstanding);
        self.counters.set(Cell::Outstanding, outstanding);
    }

    fn completed(&self, report: &ExchangeReport) {
        let counters = &self.counters;
        counters.count(match report.is_reused {
            true => Cell::ReusedConnections,
            false => Cell::NewConnections,
        });
        counters.add(Cell::FirstByteNs, report.first_byte_ns);
        counters.durations.add(report.total_ns);
        counters.add(Cell::BodyBytes, report.body_bytes);
    }
}

/// The upstreams of one shard.
pub(super) struct Upstreams {
    list: Vec<Upstream>,
    /// Not in the configuration any more, but with requests under way.
    leaving: Vec<Upstream>,
    /// Kept for its memory.
    candidates: Vec<Candidate>,
    balancer: Balancer,
    ejection: EjectionPolicy,
    host: HostPolicy,
    outstanding_max: u32,
    ids: u32,
    shard_index: usize,
}

/// Result of one choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) id: UpstreamId,
    pub(super) key: PoolKey,
    index: usize,
}

impl Upstreams {
    pub(super) fn new(config: &ProxyConfig, shard_index: usize, seed: u64) -> Self {
        Self {
            list: Vec::new(),
            leaving: Vec::new(),
            candidates: Vec::new(),
            balancer: Balancer::new(config.balance.clone(), seed),
            ejection: config.ejection,
            host: config.host,
            outstanding_max: 0,
            ids: 0,
            shard_index,
        }
    }

    /// Replaces all upstreams by those of `config`.
    pub(super) fn configure(
        &mut self,
        config: &ProxyConfig,
        client: &Client,
        registry: &UpstreamRegistry,
        now_ns: u64,
    ) {
        let limits = (config.connections_max, config.pending_max);
        let mut before = std::mem::take(&mut self.list);
        for wanted in &config.upstreams {
            // One with TLS begins anew: its certificates may be others.
            let stays = before.iter().position(|it| {
                let is_same = it.config.name == wanted.name
                    && it.limits == limits
                    && it.config.proxy_protocol == wanted.proxy_protocol;
                is_same && it.config.tls.is_none() && wanted.tls.is_none()
            });
            let upstream = match stays {
                Some(index) => Ok(Upstream {
                    config: wanted.clone(),
                    ..before.swap_remove(index)
                }),
                None => self.new_upstream(wanted, limits, client, registry, now_ns),
            };
            match upstream {
                Ok(upstream) => self.list.push(upstream),
                Err(error) => {
                    let name = &wanted.name;
                    log::write(
                        LogLevel::Error,
                        format_args!("upstream {name} is left out: {error}"),
                    );
                }
            }
        }
        for mut upstream in before {
            client.remove_target(upstream.key);
            for cell in STATES {
                upstream.counters.set(cell, 0);
            }
            if let Some(probe) = upstream.probe.take() {
                client.abort(probe);
            }
            if upstream.outstanding > 0 {
                self.leaving.push(upstream);
            }
        }
        if config.probe.is_none() {
            for upstream in &mut self.list {
                upstream.health.is_not_probed();
            }
        }
        self.ejection = config.ejection;
        self.host = config.host;
        let most = config.connections_max.saturating_add(config.pending_max);
        self.outstanding_max = u32::try_from(most).unwrap_or(u32::MAX);
        self.balancer.reset(config.balance.clone(), self.list.len());
    }

    fn new_upstream(
        &mut self,
        wanted: &UpstreamConfig,
        limits: (usize, usize),
        client: &Client,
        registry: &UpstreamRegistry,
        now_ns: u64,
    ) -> Result<Upstream, PoolError> {
        let tls = wanted.tls.clone();
        let target = Target {
            place: wanted.place.clone(),
            tls: match wanted.proxy_protocol {
                Some(_) => tls.map(TlsClient::behind_head),
                None => tls,
            },
            connections_max: limits.0,
            waiters_max: limits.1,
        };
        self.ids = self.ids.wrapping_add(1);
        let key = client.add_target(target)?;
        Ok(Upstream {
            id: UpstreamId(self.ids),
            config: wanted.clone(),
            key,
            limits,
            identity: hash(wanted.name.as_bytes()),
            health: Health::default(),
            outstanding: 0,
            counters: registry.counters(&wanted.name, self.shard_index),
            probe: None,
            is_probe_good: false,
            probe_due_ns: now_ns,
            failures: FailureLog::default(),
            name: NameWatch::new(key, &wanted.place),
        })
    }

    pub(super) fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Upstream> {
        self.list.iter_mut()
    }

    /// The names to resolve, with their labels.
    pub(super) fn names(&mut self) -> impl Iterator<Item = (&str, &mut NameWatch)> {
        let list = self.list.iter_mut();
        list.map(|it| (&*it.config.name, &mut it.name))
    }

    /// The upstream for the next try; it has one request more from now on.
    pub(super) fn choose(
        &mut self,
        now_ns: u64,
        key_hash: Option<u64>,
        tried: &mut Tried,
    ) -> Result<Chosen, Failure> {
        let mut chosen = self.only_choice(now_ns, *tried);
        // An ejected upstream may be well again, which is better than none; then, once more where it failed.
        let retried = [(true, *tried), (false, *tried), (false, Tried::default())];
        for (heeds_ejection, tried) in retried {
            if chosen.is_some() {
                break;
            }
            self.refresh_candidates(now_ns, heeds_ejection, tried);
            chosen = self.balancer.choose(&self.candidates, key_hash);
        }
        let Some(index) = chosen else {
            return Err(self.why_none());
        };
        let is_retry = !tried.is_none();
        tried.add(index);
        let upstream = &mut self.list[index];
        upstream.outstanding += 1;
        let counters = &upstream.counters;
        counters.set(Cell::Outstanding, u64::from(upstream.outstanding));
        counters.count(Cell::Tries);
        if is_retry {
            counters.count(Cell::Retries);
        }
        Ok(Chosen {
            id: upstream.id,
            key: upstream.key,
            index,
        })
    }

    /// Where there is one upstream, and it is well, nothing is to be balanced.
    fn only_choice(&self, now_ns: u64, tried: Tried) -> Option<usize> {
        let [only] = self.list.as_slice() else {
            return None;
        };
        let is_usable = tried.is_none()
            && only.outstanding < self.outstanding_max
            && only.health.is_usable(now_ns);
        is_usable.then_some(0)
    }

    /// `Host` for the upstream of this try; `asked` is the client's value.
    pub(super) fn host_for<'h>(&'h self, chosen: Chosen, asked: Authority<'h>) -> Authority<'h> {
        match self.host {
            HostPolicy::Keep if !asked.is_empty() => asked,
            _ => self.list[chosen.index].host(),
        }
    }

    /// In which version the upstream of this try gets a PROXY header.
    pub(super) fn proxy_protocol_for(&self, chosen: Chosen) -> Option<ProxyProtocol> {
        self.list[chosen.index].proxy_protocol()
    }

    fn refresh_candidates(&mut self, now_ns: u64, heeds_ejection: bool, tried: Tried) {
        self.candidates.clear();
        for (index, upstream) in self.list.iter().enumerate() {
            let has_room = upstream.outstanding < self.outstanding_max;
            let is_well = match heeds_ejection {
                true => upstream.health.is_usable(now_ns),
                false => !upstream.health.is_down(),
            };
            self.candidates.push(Candidate {
                weight: upstream.config.weight,
                identity: upstream.identity,
                outstanding: upstream.outstanding,
                is_usable: has_room && is_well && !tried.has(index),
            });
        }
    }

    fn why_none(&self) -> Failure {
        match self.list.iter().any(|it| !it.health.is_down()) {
            true => Failure::Saturated,
            false => Failure::NoneUsable,
        }
    }

    fn find(&mut self, id: UpstreamId) -> Option<&mut Upstream> {
        let all = self.list.iter_mut().chain(&mut self.leaving);
        all.into_iter().find(|upstream| upstream.id == id)
    }

    /// Its name in logs.
    pub(super) fn name(&self, id: UpstreamId) -> &str {
        let mut all = self.list.iter().chain(&self.leaving);
        let found = all.find(|upstream| upstream.id == id);
        found.map_or("", |upstream| &upstream.config.name)
    }

    /// The head of a response came.
    pub(super) fn answered(&mut self, id: UpstreamId, status: StatusCode) {
        if let Some(upstream) = self.find(id) {
            upstream.answered(status);
        }
    }

    /// A try ended with a whole response.
    pub(super) fn completed(&mut self, id: UpstreamId, report: &ExchangeReport) {
        if let Some(upstream) = self.find(id) {
            upstream.completed(report);
        }
        self.release(id);
    }

    /// Both at once.
    pub(super) fn answered_whole(
        &mut self,
        id: UpstreamId,
        status: StatusCode,
        report: &ExchangeReport,
    ) {
        if let Some(upstream) = self.find(id) {
            upstream.answered(status);
            upstream.completed(report);
            upstream.release();
        }
        self.forget_leavers();
    }

    /// The client has gone before its response was whole.
    pub(super) fn client_gone(&mut self, id: UpstreamId) {
        if let Some(upstream) = self.find(id) {
            upstream.counters.count(Cell::ClientGone);
        }
        self.release(id);
    }

    /// A tunnel was closed because no bytes passed for too long: no side is at fault.
    pub(super) fn tunnel_idle(&mut self, id: UpstreamId) {
        self.count(id, Cell::TunnelsIdle);
        self.release(id);
    }

    pub(super) fn count(&mut self, id: UpstreamId, cell: Cell) {
        if let Some(upstream) = self.find(id) {
            upstream.counters.count(cell);
        }
    }

    /// A try ended without a whole response. `is_stale`: over a kept connection that had ended unnoticed, which is no
    /// sign of the upstream's health. `error`: the cause, if there was an exchange.
    pub(super) fn failed(
        &mut self,
        id: UpstreamId,
        failure: Failure,
        error: Option<&ExchangeFailure>,
        is_stale: bool,
        now_ns: u64,
    ) {
        let ejection = self.ejection;
        let Some(upstream) = self.find(id) else {
            return;
        };
        upstream.counters.count(cell_of(failure));
        upstream.counters.count_failure(failure);
        let is_its_fault = failure.side() == Side::Upstream && !is_stale;
        let should_go = is_its_fault && upstream.health.failed(now_ns, &ejection);
        if should_go {
            upstream.health.eject(now_ns, &ejection);
            upstream.counters.count(Cell::Ejections);
        }
        // Names have lines of their own: see `client_peer`.
        let is_name = matches!(failure, Failure::Unresolved | Failure::ResolveTimeout);
        if is_its_fault && !is_name {
            let what = (Kind::Upstream, &*upstream.config.name);
            upstream.failures.failed(what, failure, error, now_ns);
        }
        self.release(id);
    }

    fn release(&mut self, id: UpstreamId) {
        if let Some(upstream) = self.find(id) {
            upstream.release();
        }
        self.forget_leavers();
    }

    /// Those without a request any more.
    #[inline]
    fn forget_leavers(&mut self) {
        if !self.leaving.is_empty() {
            self.leaving.retain(|upstream| upstream.outstanding > 0);
        }
    }

    /// A probe ended; true when the upstream came or went by that.
    pub(super) fn probed(
        &mut self,
        id: UpstreamId,
        is_success: bool,
        policy: &ProbePolicy,
    ) -> bool {
        let Some(upstream) = self.find(id) else {
            return false;
        };
        upstream.probe = None;
        if !is_success {
            upstream.counters.count(Cell::ProbesFailed);
        }
        upstream.health.probed(is_success, policy)
    }

    /// The name of an upstream, and whether its probes found it down: for logs.
    pub(super) fn describe(&mut self, id: UpstreamId) -> Option<(&str, bool)> {
        let upstream = self.find(id)?;
        Some((&upstream.config.name, upstream.health.is_down()))
    }

    pub(super) fn by_probe(&mut self, probe: ExchangeId) -> Option<&mut Upstream> {
        self.list
            .iter_mut()
            .find(|upstream| upstream.probe == Some(probe))
    }

    /// Shows the other shards what is so now.
    pub(super) fn publish(&self, client: &Client, now_ns: u64) {
        for upstream in &self.list {
            let stats = client.target_stats(upstream.key);
            let is_usable = upstream.health.is_usable(now_ns);
            let is_down = upstream.health.is_down();
            for (cell, value) in [
                (Cell::IsUsable, u64::from(is_usable)),
                (Cell::Parked, stats.parked as u64),
                (Cell::InUse, stats.leased as u64),
                (Cell::Waiting, stats.waiting as u64),
                (Cell::IsUnresolved, u64::from(stats.is_unresolved)),
                (Cell::IsConfigured, 1),
                (Cell::IsDown, u64::from(is_down)),
                (Cell::IsEjected, u64::from(!is_down && !is_usable)),
            ] {
                upstream.counters.set(cell, value);
            }
        }
    }
}

// Whether an upstream is usable, from the results of probes and requests.
//
// ```text
// probes:     Unprobed/Up --failures in a row--> Down --successes in a row, or no probes any more--> Up
// requests:   in use --failures in a row--> ejected for base * 2^n --> in use, on probation
//                                              ^                          | one failure
//                                              +--------------------------+
// ```
//
// A success on probation halves what the next ejection would last, so that one that fails every
// other request does not start from the shortest ejection each time.

/// When probes change what is thought of an upstream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProbePolicy {
    /// The target, fetched with GET; a status of 2xx or 3xx is a success.
    pub path: String,
    /// From one probe to the next.
    pub interval_ns: u64,
    /// For the whole probe.
    pub timeout_ns: u64,
    /// So many in a row bring it back.
    pub successes_min: u32,
    /// So many in a row take it out.
    pub failures_max: u32,
}

impl ProbePolicy {
    /// Every 2 s, 1 s each, two successes or three failures.
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            interval_ns: 2_000_000_000,
            timeout_ns: 1_000_000_000,
            successes_min: 2,
            failures_max: 3,
        }
    }

    /// The target, of a policy that [`super::ProxyControl`] has accepted.
    pub(super) fn target(&self) -> RequestTarget<'_> {
        RequestTarget::received(self.path.as_bytes())
    }
}

/// When failures of requests take an upstream out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EjectionPolicy {
    /// So many failures in a row; 0: never.
    pub failures_max: u32,
    /// How long the first time.
    pub base_ns: u64,
    /// How long at most.
    pub longest_ns: u64,
}

impl Default for EjectionPolicy {
    fn default() -> Self {
        Self {
            failures_max: 5,
            base_ns: 1_000_000_000,
            longest_ns: 60_000_000_000,
        }
    }
}

/// Health of one upstream.
#[derive(Clone, Debug, Default)]
pub(super) struct Health {
    is_down: bool,
    /// Probes in a row that contradict the current state.
    contrary_probes: u32,
    failures_in_row: u32,
    /// Ejections not yet forgiven: the exponent of the next one's length.
    ejections: u32,
    ejected_until_ns: u64,
    is_on_probation: bool,
}

/// Doublings after which any base has reached any sensible limit.
const EJECTIONS_MAX: u32 = 32;

impl Health {
    /// Probes found it up, or there are none; and it is not ejected.
    #[inline]
    pub(super) fn is_usable(&self, now_ns: u64) -> bool {
        !self.is_down && now_ns >= self.ejected_until_ns
    }

    /// Result of the probes alone.
    pub(super) fn is_down(&self) -> bool {
        self.is_down
    }

    /// A probe ended; true when that changed what is thought of the upstream.
    pub(super) fn probed(&mut self, is_success: bool, policy: &ProbePolicy) -> bool {
        if is_success != self.is_down {
            self.contrary_probes = 0;
            return false;
        }
        self.contrary_probes += 1;
        let needed = match self.is_down {
            true => policy.successes_min,
            false => policy.failures_max,
        };
        if self.contrary_probes < needed {
            return false;
        }
        self.contrary_probes = 0;
        self.is_down = !self.is_down;
        if !self.is_down {
            // It responds: earlier failures do not count any more.
            self.failures_in_row = 0;
            self.ejected_until_ns = 0;
        }
        true
    }

    /// It is not probed any more, so no probe could find that it is up again.
    pub(super) fn is_not_probed(&mut self) {
        self.is_down = false;
        self.contrary_probes = 0;
    }

    /// A request got a response, whatever its status.
    #[inline]
    pub(super) fn succeeded(&mut self) {
        self.failures_in_row = 0;
        if self.is_on_probation {
            self.is_on_probation = false;
            self.ejections /= 2;
        }
    }

    /// A request got no response; true when the upstream should be ejected for it, if others are left: then
    /// [`Self::eject`]. While it is ejected, only requests that were under way or had no other upstream can fail: they
    /// add no information.
    pub(super) fn failed(&mut self, now_ns: u64, policy: &EjectionPolicy) -> bool {
        if now_ns < self.ejected_until_ns {
            return false;
        }
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        policy.failures_max > 0
            && (self.is_on_probation || self.failures_in_row >= policy.failures_max)
    }

    /// Takes it out; returns until when.
    pub(super) fn eject(&mut self, now_ns: u64, policy: &EjectionPolicy) -> u64 {
        let factor = 1_u64 << self.ejections;
        let length_ns = policy.base_ns.saturating_mul(factor).min(policy.longest_ns);
        self.ejections = (self.ejections + 1).min(EJECTIONS_MAX);
        self.failures_in_row = 0;
        self.is_on_probation = true;
        self.ejected_until_ns = now_ns.saturating_add(length_ns);
        self.ejected_until_ns
    }
}

// Health checks: one small request to each upstream, again and again.

impl Proxy {
    /// Begins the probes that are due, and plans the next.
    pub(super) fn begin_probes(&mut self, now_ns: u64, blocks: &BlockPool) {
        let Some(policy) = self.config.probe.as_ref() else {
            return;
        };
        let mut next_ns = now_ns.saturating_add(policy.interval_ns);
        for upstream in self.upstreams.iter_mut() {
            if upstream.probe_due_ns > now_ns {
                next_ns = next_ns.min(upstream.probe_due_ns);
                continue;
            }
            upstream.probe_due_ns = now_ns.saturating_add(policy.interval_ns);
            if upstream.probe.is_some() {
                continue;
            }
            let preface = upstream.proxy_protocol().map(ProxyHeadText::own);
            let begun = probe(policy, upstream.host(), preface, blocks)
                .and_then(|request| self.client.begin(upstream.key, request, blocks));
            // Without memory here, nothing is found out about the upstream.
            upstream.probe = begun.ok();
            upstream.is_probe_good = false;
        }
        self.client.set_next_timer(next_ns);
    }

    pub(super) fn probe_event(&mut self, id: ExchangeId, event: ExchangeEvent<'_>) {
        let Some(upstream) = self.upstreams.by_probe(id) else {
            return;
        };
        let is_success = match event {
            ExchangeEvent::Head(answer) => {
                upstream.is_probe_good = is_good(&answer);
                return;
            }
            ExchangeEvent::Whole { head, .. } => is_good(&head),
            ExchangeEvent::End { .. } => upstream.is_probe_good,
            ExchangeEvent::Failed { failure, .. } if failure.is_local() => {
                // No connection is free for the probe: it has no result.
                upstream.probe = None;
                return;
            }
            ExchangeEvent::Failed { .. } => false,
            _ => return,
        };
        let id = upstream.id();
        let Some(policy) = self.config.probe.as_ref() else {
            upstream.probe = None;
            return;
        };
        if self.upstreams.probed(id, is_success, policy) {
            self.upstreams.publish(&self.client, monotonic_ns());
            if let Some((name, is_down)) = self.upstreams.describe(id) {
                let (level, state) = match is_down {
                    true => (LogLevel::Warn, "is down: its health checks fail"),
                    false => (LogLevel::Info, "is up again: its health checks succeed"),
                };
                log::write(level, format_args!("upstream {name} {state}"));
            }
        }
    }
}

fn is_good(answer: &ReceivedHead<'_>) -> bool {
    matches!(answer.status().code(), 200..400)
}

/// The request of one probe.
fn probe(
    policy: &ProbePolicy,
    host: Authority<'_>,
    preface: Option<ProxyHeadText>,
    blocks: &BlockPool,
) -> Result<OutgoingRequest, PoolError> {
    const USER_AGENT: Field<'_> = (
        FieldName::USER_AGENT,
        FieldValue::from_static("millpond-probe"),
    );
    let target = policy.target();
    let mut request = OutgoingRequest::new(blocks, Method::Get, target, host, &[USER_AGENT])?;
    if let Some(preface) = preface {
        request.set_proxy_head(blocks, &preface)?;
    }
    request.timeouts.total_ns = policy.timeout_ns;
    request.user = PROBE_USER;
    Ok(request)
}

// How the upstreams are, as pages beside `/metrics`: JSON for programs, a table for people.
//
// Both are made from the cells of all shards, up to a second old; shards are not asked.

/// An upstream's state for the status pages.
struct UpstreamTotals {
    name: String,
    shards: u64,
    usable: u64,
    down: u64,
    ejected: u64,
    unresolved: u64,
    outstanding: u64,
    parked: u64,
    in_use: u64,
    waiting: u64,
    tries: u64,
    failures: u64,
}

/// A column's name, and its number of an upstream.
type Column = (&'static str, fn(&UpstreamTotals) -> u64);

/// The columns that both pages have.
const NUMBERS: [Column; 11] = [
    ("shards", |it| it.shards),
    ("usable_shards", |it| it.usable),
    ("down_shards", |it| it.down),
    ("ejected_shards", |it| it.ejected),
    ("unresolved_shards", |it| it.unresolved),
    ("outstanding", |it| it.outstanding),
    ("connections_parked", |it| it.parked),
    ("connections_in_use", |it| it.in_use),
    ("waiting", |it| it.waiting),
    ("tries", |it| it.tries),
    ("failures", |it| it.failures),
];

/// Failures that are the upstream's fault.
const FAILURES: [Cell; 4] = [
    Cell::FailedConnect,
    Cell::FailedTimeout,
    Cell::FailedBroken,
    Cell::FailedResponse,
];

impl UpstreamTotals {
    fn new(name: &str, sum: &dyn Fn(Cell) -> u64) -> Self {
        Self {
            name: name.to_owned(),
            shards: sum(Cell::IsConfigured),
            usable: sum(Cell::IsUsable),
            down: sum(Cell::IsDown),
            ejected: sum(Cell::IsEjected),
            unresolved: sum(Cell::IsUnresolved),
            outstanding: sum(Cell::Outstanding),
            parked: sum(Cell::Parked),
            in_use: sum(Cell::InUse),
            waiting: sum(Cell::Waiting),
            tries: sum(Cell::Tries),
            failures: FAILURES.into_iter().map(sum).sum(),
        }
    }

    /// Of all shards together: the common state, or that they differ.
    fn word(&self) -> &'static str {
        let is_all = |count: u64| count == self.shards;
        match () {
            // Health checks fail as well, and their error has the reason.
            () if is_all(self.unresolved) => "unresolved",
            () if is_all(self.down) => "down",
            () if is_all(self.ejected) => "ejected",
            () if is_all(self.usable) && self.unresolved == 0 => "up",
            () => "differs",
        }
    }
}

fn states(control: &ProxyControl) -> Vec<UpstreamTotals> {
    let mut states = Vec::new();
    control.registry.visit(|name, sum| {
        // One that has left the configuration is in no shard.
        if sum(Cell::IsConfigured) > 0 {
            states.push(UpstreamTotals::new(name, sum));
        }
    });
    states
}

fn json(states: &[UpstreamTotals]) -> Vec<u8> {
    let mut text = b"{\"upstreams\":[".to_vec();
    for (index, state) in states.iter().enumerate() {
        let start: &[u8] = if index == 0 { b"" } else { b"," };
        text.extend_from_slice(start);
        text.extend_from_slice(b"{\"upstream\":");
        write_json_text(&mut text, &state.name);
        // Writing to a Vec cannot fail.
        let _ = write!(text, ",\"state\":\"{}\"", state.word());
        for (name, number) in NUMBERS {
            let _ = write!(text, ",\"{name}\":{}", number(state));
        }
        text.push(b'}');
    }
    text.extend_from_slice(b"]}\n");
    text
}

fn table(states: &[UpstreamTotals]) -> String {
    let mut text = format!("{:<40} {:<10}", "upstream", "state");
    for (name, _) in NUMBERS {
        let _ = write!(text, " {name}");
    }
    for state in states {
        let _ = write!(
            text,
            "\n{:<40} {:<10}",
            state.name.escape_default().to_string(),
            state.word()
        );
        for (name, number) in NUMBERS {
            let _ = write!(text, " {:>width$}", number(state), width = name.len());
        }
    }
    text.push('\n');
    text
}

impl ProxyControl {
    /// `/upstreams` and `/upstreams.json`, for [`crate::ServeConfig::status_pages`].
    #[must_use]
    pub fn status_pages(self: &Arc<Self>) -> Vec<StatusPage> {
        let (for_json, for_table) = (Arc::clone(self), Arc::clone(self));
        vec![
            StatusPage::new("/upstreams.json", FieldValue::JSON, move || {
                json(&states(&for_json))
            }),
            StatusPage::new("/upstreams", FieldValue::TEXT_PLAIN, move || {
                table(&states(&for_table)).into_bytes()
            }),
        ]
    }
}

#[cfg(test)]
#[path = "tests/health.rs"]
mod health_tests;

#[cfg(test)]
#[path = "tests/states.rs"]
mod states_tests;

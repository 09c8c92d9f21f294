//! The proxy of one shard: requests of clients to upstreams, responses of upstreams to clients.
//!
//! `server` calls it with each request and with the parts of its body; the shard's [`Client`] reports every event of
//! the exchange with the upstream to it. A part of a body is copied from the receive buffer straight into the other
//! side's output.
//!
//! ```text
//! client --call, stream(Body)--> Proxied --begin, write--> Client --> upstream
//!    ^                              |                         |
//!    +------- continue_with(head, part) --+<---- exchange_event ----+
//! ```
//!
//! Back-pressure: an upstream that takes nothing leaves no room, and the client's body is not received;
//! a client that takes nothing has its upstream paused. Between them lie at most a block of 32 KiB for
//! the client, another with its driver, and what two receives brought.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use millpond_io::connection_pool::PoolConfig;
use millpond_io::{Peer, monotonic_ns};
use millpond_mempool::{BlockPool, Buffer, Handle, PoolError, PoolStats, Slab};

use crate::client::{
    Client, ClientConfig, ExchangeEvent, ExchangeId, OutgoingRequest, ReceivedHead, Timeouts,
};
use crate::completions::Completions;
use crate::head::{Framing, Version};
use crate::head_text::{FieldName, FieldValue};
use crate::limits::Limits;
use crate::method::Method;
use crate::metrics::MetricsText;
use crate::request::Request;
use crate::response::Response;
use crate::service::{
    AfterFin, Flow, RequestToken, Service, ServiceContext, ShardStart, StreamEvent,
};
use crate::status::StatusCode;

use super::answering::KnownResponses;
use super::answering::RetryBudget;
use super::answering::{BodyState, Proxied, handle_of, state_of};
use super::answering::{Trailers, may_pass};
use super::balance::{forwards_left, key_hash};
use super::client_peer::ClientPeer;
use super::config::{MIRROR_IN_FLIGHT_MAX, MIRRORS_MAX};
use super::config::{ProxyConfig, ProxyControl};
use super::counters::{REFUSALS, RefusalCounters, UPSTREAMS};
use super::failure::{Failure, Refused};
use super::mirrors::MIRRORS;
use super::mirrors::{Mirrors, Original, Sampling, is_mirrored};
use super::request_head::{
    ForwardedFields, OutgoingHead, RequestWay, encode_request_head, wanted_protocol,
};
use super::response_head::HeadMemory;
use super::response_head::Nominated;
use super::upstreams::{Chosen, Tried, Upstreams};

/// Bodies up to this length are awaited whole: they leave with their head in one send, and can be sent
/// again.
const KEPT_BODY_BYTES_MAX: u64 = 8 * 1024;

/// User data of exchanges that are probes; no handle has it.
pub(super) const PROBE_USER: u64 = u64::MAX;

/// The proxy of one shard.
pub struct Proxy {
    pub(super) control: Arc<ProxyControl>,
    limits: Limits,
    generation: u64,
    pub(super) config: Arc<ProxyConfig>,
    pub(super) client: Client,
    pub(super) upstreams: Upstreams,
    pub(super) budget: RetryBudget,
    pub(super) requests: Slab<Proxied>,
    /// By the slot of the client's socket.
    peers: Vec<Option<ClientPeer>>,
    known_requests: KnownRequests,
    pub(super) known_responses: KnownResponses,
    pub(super) trailers: Trailers,
    /// Requests that wait for 100 Continue, the oldest first, and until when.
    pub(super) awaiting: VecDeque<(u64, Handle<Proxied>)>,
    pub(super) half_closed: HalfClosed,
    pub(super) mirrors: Mirrors,
    refusals: Arc<RefusalCounters>,
    pub(super) names_due_ns: u64,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Proxy")
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

impl Proxy {
    /// The proxy of one shard.
    pub fn new(control: &Arc<ProxyControl>, start: &ShardStart, limits: Limits) -> Self {
        // Before the configuration: at worst it is taken twice.
        let generation = control.generation();
        let config = control.current();
        let client_limits = config.answer_limits(limits);
        let client = Client::new(
            start,
            ClientConfig {
                pool: PoolConfig {
                    // Mirrors take no connection from upstreams.
                    connections_max: PoolConfig::default().connections_max
                        + MIRRORS_MAX * MIRROR_IN_FLIGHT_MAX,
                    ..PoolConfig::default()
                },
                limits: client_limits,
                resolver: control.resolver.clone(),
                buffers_small_responses: true,
            },
        );
        control.attend(start.waker.clone());
        let now_ns = monotonic_ns();
        let seed = now_ns ^ (start.index as u64) << 48;
        let mut proxy = Self {
            control: Arc::clone(control),
            limits,
            generation,
            upstreams: Upstreams::new(&config, start.index, seed),
            budget: RetryBudget::new(config.retry_percent),
            config,
            client,
            requests: Slab::new("proxy_requests", start.pool_mode),
            peers: Vec::new(),
            known_requests: KnownRequests::new(),
            known_responses: KnownResponses::new(),
            trailers: Trailers::new(limits),
            awaiting: VecDeque::new(),
            half_closed: HalfClosed::new(),
            mirrors: Mirrors::new(start.pool_mode, start.index),
            refusals: control.refusals.counters("", start.index),
            names_due_ns: now_ns,
        };
        proxy.configure(now_ns);
        // Health checks and lookups begin now, and not with the first client.
        start.waker.wake();
        proxy
    }

    fn configure(&mut self, now_ns: u64) {
        let limits = self.config.answer_limits(self.limits);
        self.client.set_limits(limits);
        self.client.set_idle_max(self.config.idle_max_ns);
        self.client.set_open_max(self.config.open_max_ns());
        let registry = &self.control.registry;
        self.upstreams
            .configure(&self.config, &self.client, registry, now_ns);
        self.upstreams.publish(&self.client, now_ns);
        let registry = &self.control.mirror_registry;
        self.mirrors.configure(&self.config, &self.client, registry);
        self.names_due_ns = now_ns;
        self.check_names(now_ns);
        if self.config.probe.is_some() {
            self.client.set_next_timer(now_ns);
        }
    }

    /// Takes a new configuration, if there is one.
    #[inline]
    fn look_for_configuration(&mut self, now_ns: u64) {
        let generation = self.control.generation();
        if generation != self.generation {
            self.generation = generation;
            self.config = self.control.current();
            // Also of connections that are open: a client may stay for days.
            for peer in self.peers.iter_mut().flatten() {
                peer.judge(&self.config.trusted);
            }
            self.budget = RetryBudget::new(self.config.retry_percent);
            // Stored heads were written with the old changes.
            self.known_requests = KnownRequests::new();
            self.known_responses = KnownResponses::new();
            self.configure(now_ns);
        }
    }

    /// Begins what can be begun of a request.
    fn forward(
        &mut self,
        request: &mut Request<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Result<Flow, Refused> {
        let blocks = &context.pools.blocks;
        let peer = self.peers.get(context.token.slot() as usize);
        let way = RequestWay {
            via_name: &self.control.via_name,
            client: peer.and_then(Option::as_ref),
            is_tls: self.control.is_tls,
            fields: self.config.forwarded,
            upgrade: None,
            max_forwards: None,
            changes: &self.config.request_changes,
        };
        let (head, may_upgrade) =
            self.known_requests
                .head_of(blocks, request, way, &self.config.upgrades)?;
        let is_streamed = comes_in_parts(request);
        let (framing, body) = match is_streamed {
            true => (request.head.framing, Buffer::new()),
            false => whole_body(request, blocks)?,
        };
        let expects_continue = request.head.expects_continue;
        let proxied = Proxied {
            token: context.token,
            method: request.method,
            head,
            framing,
            body,
            body_state: match (is_streamed, expects_continue) {
                (false, _) => BodyState::Kept,
                (true, true) => BodyState::AwaitsContinue,
                (true, false) => BodyState::Passing,
            },
            copy: None,
            is_body_lost: false,
            expects_continue,
            may_upgrade,
            passes_trailers: passes_trailers(request),
            passes_response_trailers: false,
            is_new_version: request.version() == Version::Http11,
            key_hash: key_hash(self.upstreams.balancer().balance(), request),
            tried: Tried::default(),
            tries: 0,
            started_ns: context.now_ns,
            met_stale: false,
            current: None,
            is_answering: false,
            is_answered: false,
            is_half_closed: false,
            is_paused: false,
        };
        self.budget.earn();
        let flow = match is_streamed {
            true => Flow::Stream(proxied.wants()),
            false => Flow::Pending,
        };
        let handle = self.requests.insert(proxied)?;
        if let Err(failure) = self.begin_try(handle, context.now_ns, &context.pools.blocks) {
            self.requests.remove(handle);
            return Err(failure.into());
        }
        if is_streamed && expects_continue {
            self.await_continue(handle, context.now_ns);
        }
        if !self.mirrors.is_empty() {
            self.mirror(handle, context.now_ns, &context.pools.blocks);
        }
        context.state = state_of(handle);
        Ok(flow)
    }

    /// Copies a request that has been forwarded to mirrors, if it is one of the sample, or begins to copy
    /// its body.
    fn mirror(&mut self, handle: Handle<Proxied>, now_ns: u64, blocks: &BlockPool) {
        let Some(proxied) = self.requests.get_mut(handle) else {
            return;
        };
        let sampling = Sampling {
            method: proxied.method,
            framing: proxied.framing,
            may_upgrade: proxied.may_upgrade,
            expects_continue: proxied.expects_continue,
        };
        let sampled = self.mirrors.sample(&sampling, now_ns);
        if sampled.is_none() {
            return;
        }
        if proxied.body_state != BodyState::Kept {
            proxied.copy = self.mirrors.begin_body(sampled);
            return;
        }
        let original = Original {
            method: proxied.method,
            head: &proxied.head,
            framing: proxied.framing,
            body: &proxied.body,
        };
        let no_trailer = &std::iter::empty();
        self.mirrors
            .send(sampled, &original, no_trailer, &self.client, blocks);
    }

    /// The next part of a body that is copied for mirrors, once the upstream has it; with the end of the
    /// body the copies are sent.
    fn mirror_part(&mut self, handle: Handle<Proxied>, part: BodyPart<'_>, blocks: &BlockPool) {
        let Some(proxied) = self.requests.get_mut(handle) else {
            return;
        };
        let Some(copy) = proxied.copy else {
            return;
        };
        let trailer = match part {
            BodyPart::Data(part) => match self.mirrors.copy_part(copy, part, blocks) {
                // The upstream has all of it, and may respond before the end is reported.
                Some(copied_bytes) if proxied.framing == Framing::Length(copied_bytes) => &[],
                Some(_) => return,
                None => {
                    proxied.copy = None;
                    return;
                }
            },
            BodyPart::End(trailer) if proxied.passes_trailers => trailer,
            BodyPart::End(_) => &[],
        };
        proxied.copy = None;
        let Some((sampled, body)) = self.mirrors.take_body(copy) else {
            return;
        };
        let original = Original {
            method: proxied.method,
            head: &proxied.head,
            framing: proxied.framing,
            body: &body,
        };
        let trailer = &self.trailers.passing(trailer);
        self.mirrors
            .send(sampled, &original, trailer, &self.client, blocks);
    }

    /// A request is over.
    pub(super) fn remove_request(&mut self, handle: Handle<Proxied>) -> Option<Proxied> {
        self.abandon_copy(handle);
        self.requests.remove(handle)
    }

    /// The same, for a caller that has no more use for it.
    #[inline]
    pub(super) fn discard_request(&mut self, handle: Handle<Proxied>) {
        self.abandon_copy(handle);
        self.requests.discard(handle);
    }

    #[inline]
    fn abandon_copy(&mut self, handle: Handle<Proxied>) {
        if self.mirrors.is_copying()
            && let Some(copy) = self.requests.get(handle).and_then(|it| it.copy)
        {
            self.mirrors.abandon_body(copy);
        }
    }

    /// Sends the request to the next upstream.
    pub(super) fn begin_try(
        &mut self,
        handle: Handle<Proxied>,
        now_ns: u64,
        blocks: &BlockPool,
    ) -> Result<(), Failure> {
        let Self {
            requests,
            upstreams,
            client,
            config,
            peers,
            ..
        } = self;
        let proxied = requests.get_mut(handle).ok_or(Failure::Local)?;
        let chosen = upstreams.choose(now_ns, proxied.key_hash, &mut proxied.tried)?;
        let preface = upstreams.proxy_protocol_for(chosen).and_then(|version| {
            let peer = peers.get(proxied.token.slot() as usize)?.as_ref()?;
            Some(peer.proxy_head(version))
        });
        let host = upstreams.host_for(chosen, proxied.head.client_host());
        let begun = proxied.head.with_host(blocks, host).and_then(|head| {
            let left_ns = config
                .timeouts
                .total_ns
                .saturating_sub(now_ns.saturating_sub(proxied.started_ns));
            let mut request = OutgoingRequest::of_lines(proxied.method, head);
            if let Some(preface) = preface {
                request.set_proxy_head(blocks, &preface)?;
            }
            request.body = proxied.framing;
            request.awaits_continue = proxied.expects_continue;
            request.may_upgrade = proxied.may_upgrade;
            request.needs_own_connection = proxied.met_stale;
            request.timeouts = Timeouts {
                total_ns: left_ns,
                ..config.timeouts
            };
            request.user = handle.to_bits();
            client.begin(chosen.key, request, blocks)
        });
        let exchange = match begun {
            Ok(exchange) => exchange,
            Err(_) => {
                upstreams.failed(chosen.id, Failure::Local, None, false, now_ns);
                return Err(Failure::Local);
            }
        };
        proxied.current = Some((chosen, exchange));
        proxied.tries += 1;
        if !proxied.body.is_empty() && client.write(exchange, &proxied.body, blocks).is_err() {
            client.abort(exchange);
            upstreams.failed(chosen.id, Failure::Local, None, false, now_ns);
            return Err(Failure::Local);
        }
        Ok(())
    }

    /// The next part of the client's body, or its end. On an error the exchange cannot go on.
    fn pass_body(
        &mut self,
        handle: Handle<Proxied>,
        part: BodyPart<'_>,
        blocks: &BlockPool,
    ) -> Result<(), Failure> {
        let Some(proxied) = self.requests.get_mut(handle) else {
            return Err(Failure::Local);
        };
        let Some((_, exchange)) = proxied.current else {
            return Err(Failure::Local);
        };
        // An end without a body as well: another try would have nothing to end with.
        proxied.is_body_lost = true;
        let client = &self.client;
        let passed = match part {
            BodyPart::Data(part) => client.write(exchange, part, blocks),
            BodyPart::End(trailer) if proxied.passes_trailers && !trailer.is_empty() => {
                client.finish_passing(exchange, self.trailers.passing(trailer), blocks)
            }
            BodyPart::End(_) => client.finish(exchange, &[], blocks),
        };
        passed.map_err(|_| Failure::Local)?;
        proxied.body_state = match part {
            BodyPart::End(_) => BodyState::Passed,
            BodyPart::Data(_) if client.room_bytes(exchange) == 0 => BodyState::Blocked,
            BodyPart::Data(_) => BodyState::Passing,
        };
        if proxied.copy.is_some() {
            self.mirror_part(handle, part, blocks);
        }
        Ok(())
    }

    /// The part of an exchange in parts that failed on the way to the upstream.
    fn fail_in_turn(
        &mut self,
        handle: Handle<Proxied>,
        failure: Failure,
        response: &mut Response<'_>,
        now_ns: u64,
    ) -> Flow {
        if let Some(proxied) = self.remove_request(handle)
            && let Some((Chosen { id, .. }, exchange)) = proxied.current
        {
            self.client.abort(exchange);
            self.upstreams.failed(id, failure, None, false, now_ns);
        }
        if !response.is_sent() {
            failure.answer(response, self.config.quiet_errors);
        }
        Flow::Done
    }
}

/// The next step for a client's body.
#[derive(Clone, Copy)]
enum BodyPart<'b> {
    Data(&'b [u8]),
    /// With its trailer section.
    End(&'b [u8]),
}

/// Whether the trailers of a request are passed on. Only chunked bodies need a check of the fields.
fn passes_trailers(request: &Request<'_>) -> bool {
    let framing = request.head.framing;
    framing == Framing::Chunked
        && Nominated::of(request.bytes, request.fields)
            .is_ok_and(|nominated| may_pass(framing, &nominated))
}

/// A body that is here: whatever it came as, its length is known by now.
fn whole_body(
    request: &mut Request<'_>,
    blocks: &BlockPool,
) -> Result<(Framing, Buffer), PoolError> {
    Ok(match request.head.framing {
        Framing::None => (Framing::None, Buffer::new()),
        _ => (
            Framing::Length(request.body().len() as u64),
            request.take_body(blocks)?,
        ),
    })
}

/// Whether the body of a request is passed on as it comes.
fn comes_in_parts(request: &Request<'_>) -> bool {
    match request.head.framing {
        Framing::Length(length) => {
            length > KEPT_BODY_BYTES_MAX || length > 0 && request.head.expects_continue
        }
        Framing::Chunked => true,
        Framing::None | Framing::UntilClose => false,
    }
}

impl Service for Proxy {
    fn takes_body_in_parts(&mut self, request: &Request<'_>) -> bool {
        comes_in_parts(request)
    }

    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        self.look_for_configuration(context.now_ns);
        match self.forward(request, context) {
            Ok(flow) => flow,
            Err(Refused::Failure(failure)) => {
                self.refusals.count_failure(failure);
                failure.answer(response, self.config.quiet_errors);
                Flow::Done
            }
            Err(Refused::NoForwardsLeft) => {
                // OPTIONS asks what this proxy supports, which is what its upstreams support; TRACE is refused, since
                // it would show the fields that earlier proxies have added.
                let status = match request.method {
                    crate::Method::Options => StatusCode::NO_CONTENT,
                    _ => StatusCode::METHOD_NOT_ALLOWED,
                };
                // Without memory nothing is sent, which becomes 503.
                let _ = response.send(status, None, &[]);
                Flow::Done
            }
        }
    }

    fn stream(
        &mut self,
        event: StreamEvent<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let handle = handle_of(context.state);
        let passed = match event {
            StreamEvent::Body(part) => {
                self.pass_body(handle, BodyPart::Data(part), &context.pools.blocks)
            }
            StreamEvent::BodyEnd { trailer } => {
                self.pass_body(handle, BodyPart::End(trailer), &context.pools.blocks)
            }
            StreamEvent::Room | StreamEvent::Resumed => Ok(()),
        };
        if let Err(failure) = passed {
            return self.fail_in_turn(handle, failure, response, context.now_ns);
        }
        let Some(proxied) = self.requests.get_mut(handle) else {
            return Flow::Done;
        };
        if matches!(event, StreamEvent::Room)
            && std::mem::take(&mut proxied.is_paused)
            && let Some((_, exchange)) = proxied.current
        {
            self.client.resume(exchange);
        }
        Flow::Stream(proxied.wants())
    }

    fn abandoned(&mut self, _token: RequestToken, state: u64) {
        if state != 0 {
            self.give_up(handle_of(state));
        }
    }

    fn watches_clients(&self) -> bool {
        true
    }

    fn client_finished(&mut self, _token: RequestToken, state: u64, now_ns: u64) -> AfterFin {
        self.after_fin(state, now_ns)
    }

    fn wants_peers(&self) -> bool {
        true
    }

    fn wants_destinations(&self) -> bool {
        self.config.tells_ends()
    }

    fn accepted(&mut self, slot: usize, peer: Peer, destination: Option<Peer>) {
        if self.peers.len() <= slot {
            self.peers.resize(slot + 1, None);
        }
        self.peers[slot] = Some(ClientPeer::new(peer, destination, &self.config.trusted));
    }

    fn client(&self) -> Option<&Client> {
        Some(&self.client)
    }

    fn exchange_event(
        &mut self,
        id: ExchangeId,
        user: u64,
        event: ExchangeEvent<'_>,
        completions: &mut Completions<'_>,
    ) {
        if user == PROBE_USER {
            return self.probe_event(id, event);
        }
        if is_mirrored(user) {
            let now_ns = completions.now_ns();
            return self.mirrors.event((id, user), &event, &self.client, now_ns);
        }
        let handle = Handle::<Proxied>::from_bits(user);
        let current = self
            .requests
            .get(handle)
            .and_then(|proxied| proxied.current);
        if current.is_none_or(|(_, exchange)| exchange != id) {
            return;
        }
        match event {
            ExchangeEvent::Room => {
                if let Some(proxied) = self.requests.get_mut(handle)
                    && proxied.body_state == BodyState::Blocked
                {
                    proxied.body_state = BodyState::Passing;
                    completions.continue_with(proxied.token, |_, _| Flow::Stream(proxied.wants()));
                }
            }
            ExchangeEvent::Informational(answer) => {
                self.take_informational(handle, &answer, completions);
            }
            ExchangeEvent::Head(answer) => self.take_head(handle, &answer, completions),
            ExchangeEvent::Body(part) => self.take_part(handle, part, completions),
            ExchangeEvent::Whole { head, body, report } => {
                self.take_whole(handle, (&head, body), report, completions);
            }
            ExchangeEvent::PeerFinished => {
                if let Some(proxied) = self.requests.get(handle) {
                    completions.continue_with(proxied.token, |response, _| {
                        // It is open, and nothing is written for it.
                        let _ = response.finish();
                        Flow::Stream(proxied.wants())
                    });
                }
            }
            ExchangeEvent::End { trailer, report } => {
                self.take_end(handle, trailer, report, completions);
            }
            ExchangeEvent::Failed { failure, report } => {
                self.take_failure(handle, failure, report, completions);
            }
        }
    }

    fn alarm(&mut self, completions: &mut Completions<'_>) {
        let now_ns = completions.now_ns();
        self.begin_probes(now_ns, &completions.pools().blocks);
        self.end_waits(now_ns, completions);
        self.end_half_closed(now_ns, completions);
        self.check_names(now_ns);
        self.upstreams.publish(&self.client, now_ns);
    }

    fn on_wake(&mut self, completions: &mut Completions<'_>) {
        self.look_for_configuration(completions.now_ns());
        self.tell_names();
    }

    fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        visit(self.requests.stats());
        visit(self.mirrors.pool_stats());
        self.client.visit_pool_stats(visit);
    }

    /// The path may be the application's, and must not show upstreams' addresses.
    fn shows_metrics(&self, _request: &Request<'_>) -> bool {
        false
    }

    fn trim_pools(&mut self) -> usize {
        self.tell_names();
        self.upstreams.publish(&self.client, monotonic_ns());
        self.requests.trim() + self.mirrors.trim() + self.client.trim_pools()
    }

    fn write_metrics(&self, out: &mut MetricsText<'_>) {
        self.upstreams.publish(&self.client, monotonic_ns());
        self.control.registry.write(out, &UPSTREAMS);
        self.control.refusals.write(out, &REFUSALS);
        self.control.mirror_registry.write(out, &MIRRORS);
    }
}

// Requests whose fields were written for an upstream before: the fields are copied.

/// All that decides what is written of the fields, but the fields.
#[derive(Clone, Debug)]
pub(super) struct RequestKey<C = ClientPeer> {
    client: C,
    version: Version,
    is_tls: bool,
    fields: ForwardedFields,
}

impl RequestKey<&ClientPeer> {
    /// Whether a stored key gives the same result.
    fn is(&self, kept: &RequestKey) -> bool {
        self.client.is_told_like(&kept.client)
            && self.version == kept.version
            && self.is_tls == kept.is_tls
            && self.fields == kept.fields
    }

    fn to_keep(&self) -> RequestKey {
        RequestKey {
            client: self.client.clone(),
            version: self.version,
            is_tls: self.is_tls,
            fields: self.fields,
        }
    }
}

/// Request heads that were passed on, to be copied when equal ones come.
#[derive(Debug)]
pub(super) struct KnownRequests {
    /// The result: how long the host is with which what was written begins.
    memory: HeadMemory<RequestKey, usize>,
}

impl KnownRequests {
    pub(super) fn new() -> Self {
        Self {
            memory: HeadMemory::new(),
        }
    }

    /// Writes the head for the upstream; returns whether it asks for another protocol, one of `upgrades`. Sets the
    /// parts of `way` that the request decides.
    pub(super) fn head_of<'h>(
        &mut self,
        blocks: &BlockPool,
        request: &Request<'h>,
        mut way: RequestWay<'h>,
        upgrades: &UpgradeProtocols,
    ) -> Result<(OutgoingHead, bool), Refused> {
        let asked = asked(request, &way);
        if let Some((received, key)) = &asked
            && let Some((written, host_bytes)) =
                self.memory
                    .find(received, |kept| key.is(kept), key.client.salt)
        {
            let head = OutgoingHead::of_known_fields(blocks, request, written, host_bytes)?;
            return Ok((head, false));
        }
        if way.via_name.is_in(request) {
            return Err(Failure::Loop.into());
        }
        let nominated =
            Nominated::of(request.bytes, request.fields).map_err(|_| Failure::TooManyOptions)?;
        way.max_forwards = match forwards_left(request) {
            Some(0) => return Err(Refused::NoForwardsLeft),
            left => left.map(|left| left - 1),
        };
        way.upgrade = wanted_protocol(request, &nominated, upgrades);
        let head = encode_request_head(blocks, request, &nominated, &way)?;
        // With other methods the same fields may ask for another protocol.
        if let Some((received, key)) = asked.filter(|_| !nominated.has_upgrade) {
            let salt = key.client.salt;
            let (written, host_bytes) = head.fields();
            self.memory
                .remember((received, key.to_keep(), salt), written, host_bytes);
        }
        Ok((head, way.upgrade.is_some()))
    }
}

/// The fields as received, down to the empty line, and the key, if nothing else decides.
#[inline]
fn asked<'h>(
    request: &Request<'h>,
    way: &RequestWay<'h>,
) -> Option<(&'h [u8], RequestKey<&'h ClientPeer>)> {
    let first = request.fields.spans().first()?;
    let is_usual = request.target().as_bytes().first() == Some(&b'/')
        && !matches!(request.method, Method::Options | Method::Trace)
        && !request.head.expects_continue;
    let client = way.client.filter(|_| is_usual)?;
    let key = RequestKey {
        client,
        version: request.version(),
        is_tls: way.is_tls,
        fields: way.fields,
    };
    Some((request.bytes.get(first.name.start()..)?, key))
}

// Clients that sent `Expect: 100-continue`, and upstreams that do not respond to it.

/// How long a client that asked first waits for the upstream's 100 Continue, as curl does.
const CONTINUE_WAIT_NS: u64 = 1_000_000_000;

impl Proxy {
    /// The client of this request waits from now on.
    pub(super) fn await_continue(&mut self, handle: Handle<Proxied>, now_ns: u64) {
        let due_ns = now_ns + CONTINUE_WAIT_NS;
        self.awaiting.push_back((due_ns, handle));
        self.client.set_next_timer(due_ns);
    }

    /// An upstream that is silent may never send 100: its version may not support it, or it just reads on (RFC 9110
    /// 10.1.1). The client then gets 100 from the proxy, and sends its body.
    pub(super) fn end_waits(&mut self, now_ns: u64, completions: &mut Completions<'_>) {
        while let Some(&(due_ns, handle)) = self.awaiting.front() {
            let awaits = |proxied: &&mut Proxied| proxied.body_state == BodyState::AwaitsContinue;
            let proxied = self.requests.get_mut(handle).filter(awaits);
            if due_ns > now_ns && proxied.is_some() {
                self.client.set_next_timer(due_ns);
                return;
            }
            if let Some(proxied) = proxied {
                proxied.body_state = BodyState::Passing;
                completions.continue_with(proxied.token, |_, _| Flow::Stream(proxied.wants()));
            }
            self.awaiting.pop_front();
        }
    }
}

// Which protocols may take a connection over, and whether an upstream changed to the one it was asked for.
//
// An upstream is asked for one protocol: the first of the client's that is allowed. So 101 has one valid meaning, and
// an upstream cannot switch the client's connection to a protocol that is not allowed.

/// Names in one list; each costs a comparison with each protocol that a client offers.
const PROTOCOLS_MAX: usize = 8;

/// Protocols that may take a connection over, by their names in `Upgrade`. By default there are none.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UpgradeProtocols {
    names: Vec<String>,
}

impl UpgradeProtocols {
    /// WebSocket alone (RFC 6455).
    #[must_use]
    pub fn websocket() -> Self {
        Self {
            names: vec!["websocket".to_owned()],
        }
    }

    fn has(&self, protocol: &[u8]) -> bool {
        let mut names = self.names.iter();
        names.any(|name| protocol.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// The first protocol that the client offers and that is allowed.
    pub(super) fn first_of<'h>(&self, request: &Request<'h>) -> Option<FieldValue<'h>> {
        if self.names.is_empty() {
            return None;
        }
        let upgrade = FieldName::UPGRADE.as_bytes();
        let fields = request.fields.spans().iter();
        let offered =
            fields.filter(|field| field.name.of(request.bytes).eq_ignore_ascii_case(upgrade));
        let mut offered = offered
            .flat_map(|field| field.value.of(request.bytes).split(|&byte| byte == b','))
            .map(<[u8]>::trim_ascii);
        // A part of a value that was checked, and as good.
        offered.find(|it| self.has(it)).map(FieldValue::known)
    }
}

/// Whether 101 is for the protocol of the request, and for it alone (RFC 9110 7.8).
pub(super) fn is_agreed(asked: Option<&[u8]>, answer: &ReceivedHead<'_>) -> bool {
    let upgrade = FieldName::UPGRADE.as_bytes();
    let fields = answer.fields.spans().iter();
    let mut told = fields.filter(|field| field.name.of(answer.bytes).eq_ignore_ascii_case(upgrade));
    let (first, second) = (told.next(), told.next());
    let told = first.map(|field| field.value.of(answer.bytes).trim_ascii());
    match (asked, told, second) {
        (Some(asked), Some(told), None) => asked.eq_ignore_ascii_case(told),
        _ => false,
    }
}

/// A protocol that may not take a connection over.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UpgradeProtocolsError {
    /// No name, or one that no `Upgrade` can have.
    #[error("{name:?} is no protocol: write its name in Upgrade, e.g. websocket")]
    Malformed {
        /// As it was given.
        name: String,
    },
    /// Requests inside of it would pass by all that the proxy checks.
    #[error(
        "{name} cannot be let through: requests inside of it would reach the upstream unchecked"
    )]
    CarriesRequests {
        /// As it was given.
        name: String,
    },
    /// More than are compared.
    #[error("{count} protocols are too many: name at most {PROTOCOLS_MAX}")]
    TooMany {
        /// How many.
        count: usize,
    },
}

impl FromStr for UpgradeProtocols {
    type Err = UpgradeProtocolsError;

    /// Names with commas between them.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        for name in &names {
            let is_name = |byte: u8| crate::scan::is_token(byte) || byte == b'/';
            let name = name.clone();
            if name.is_empty() || !name.bytes().all(is_name) {
                return Err(UpgradeProtocolsError::Malformed { name });
            }
            let protocol = name.split('/').next().unwrap_or_default();
            let carriers = ["h2c", "h2", "http", "tls"];
            if carriers.iter().any(|it| protocol.eq_ignore_ascii_case(it)) {
                return Err(UpgradeProtocolsError::CarriesRequests { name });
            }
        }
        match names.len() {
            0..=PROTOCOLS_MAX => Ok(Self { names }),
            count => Err(UpgradeProtocolsError::TooMany { count }),
        }
    }
}

impl fmt::Display for UpgradeProtocols {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.names.join(","))
    }
}

// Clients that send a FIN before the response to their request.
//
// A client that has closed its connection cannot be distinguished from one that has closed only its sending side. The
// first is assumed by default, as in nginx and haproxy: otherwise requests without a waiting client would hold
// connections to upstreams until they respond.

/// Requests of half-closed clients served at a time, per shard. One more is cancelled.
pub const HALF_CLOSED_MAX: usize = 256;

/// Effect of a client's FIN on its request, before the response.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum HalfClose {
    /// The client has gone: the request is cancelled, at the upstream too.
    #[default]
    Cancel,
    /// The request is served, if its body is complete and no more than [`HALF_CLOSED_MAX`] such requests are under way.
    Allow {
        /// From the FIN to the end of the response; the request is cancelled then.
        timeout_ns: u64,
    },
}

impl Proxy {
    pub(super) fn after_fin(&mut self, state: u64, now_ns: u64) -> AfterFin {
        let HalfClose::Allow { timeout_ns } = self.config.half_close else {
            return AfterFin::Cancel;
        };
        let handle = handle_of(state);
        let proxied = self.requests.get(handle);
        if proxied.is_none_or(|proxied| proxied.is_half_closed) {
            // Its response is complete, or it is known already.
            return AfterFin::Answer;
        }
        if self.half_closed.len() >= HALF_CLOSED_MAX {
            let requests = &self.requests;
            self.half_closed
                .retain(|&(_, handle)| requests.get(handle).is_some());
        }
        if self.half_closed.len() >= HALF_CLOSED_MAX {
            return AfterFin::Cancel;
        }
        if let Some(proxied) = self.requests.get_mut(handle) {
            proxied.is_half_closed = true;
        }
        let due_ns = now_ns.saturating_add(timeout_ns);
        self.half_closed.push_back((due_ns, handle));
        self.client.set_next_timer(due_ns);
        AfterFin::Answer
    }

    /// Cancels the requests of half-closed clients whose time has passed.
    pub(super) fn end_half_closed(&mut self, now_ns: u64, completions: &mut Completions<'_>) {
        while let Some(&(due_ns, handle)) = self.half_closed.front() {
            let token = self.requests.get(handle).map(|proxied| proxied.token);
            if due_ns > now_ns && token.is_some() {
                self.client.set_next_timer(due_ns);
                return;
            }
            self.half_closed.pop_front();
            if let Some(token) = token {
                self.give_up(handle);
                completions.cancel(token);
            }
        }
    }
}

/// Requests of half-closed clients, and when they are cancelled: the first is due first.
pub(super) type HalfClosed = std::collections::VecDeque<(u64, Handle<Proxied>)>;

#[cfg(test)]
#[path = "tests/known_request.rs"]
mod known_request_tests;

#[cfg(test)]
#[path = "tests/upgrade.rs"]
mod upgrade_tests;

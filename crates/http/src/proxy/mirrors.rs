//! Copies of requests to mirrors: which requests, and what becomes of the copies.
//!
//! `service` asks [`Mirrors::sample`] about each request, forwards the request to its upstream first, and
//! then has it copied: at once, or, if its body comes in parts, once all of the body has been passed on. A
//! copy is an exchange of its own, with its own connections and timeouts; nothing of it reaches the
//! client, and a request waits for it nowhere. Its response is read, counted and dropped.
//!
//! Bounds, for each shard: [`MIRROR_IN_FLIGHT_MAX`] copies to each mirror are under way, as many bodies
//! are being copied for all mirrors ([`COPIES_MAX`]), each up to [`MirrorPolicy::body_bytes_max`]. At a
//! bound the sample is dropped and counted. A mirror that fails again and again has pauses ([`PAUSE_NS`]).
//!
//! The sample is taken by adding up shares, so it is as even as can be, and the same for all mirrors of
//! the same share: they get the same requests, which is what a comparison of two of them needs.

use std::sync::Arc;

use millpond_io::connection_pool::{PoolKey, Target};
use millpond_mempool::{BlockPool, Buffer, Handle, PoolMode, PoolStats, Slab};

use crate::client::{
    Client, ExchangeEvent, ExchangeFailure, ExchangeId, ExchangeReport, ExchangeWriteError,
    OutgoingRequest, Timeouts,
};
use crate::head::Framing;
use crate::head_text::{Authority, Field};
use crate::log;
use crate::log::LogLevel;
use crate::method::Method;
use crate::status::StatusCode;

use super::client_peer::NameWatch;
use super::config::{
    HostPolicy, MILLION, MIRROR_IN_FLIGHT_MAX, MIRRORS_MAX, MirrorConfig, MirrorPolicy, ProxyConfig,
};
use super::counters::{CellIndex, Counters, Metric, Registry, Shown};
use super::failure::{Failure, FailureLog, Kind};
use super::request_head::OutgoingHead;

/// Bodies that are being copied, of one shard.
const COPIES_MAX: usize = 64;

/// A longer body of a response is not read to its end: the connection is closed. Reading costs the shard's time, and a
/// faulty one may never stop.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// After so many failures in a row a mirror gets nothing for a while: failures cost the shard's time as well.
const FAILURES_MAX: u32 = 5;
const PAUSE_NS: u64 = 1_000_000_000;

/// User data of exchanges with mirrors begins here; no handle has such a value, and [`super::service::PROBE_USER`] is
/// not one of them.
const FIRST_USER: u64 = u64::MAX << 16;

/// Whether an exchange with this user data is a copy.
#[inline]
pub(super) fn is_mirrored(user: u64) -> bool {
    user >= FIRST_USER
}

/// The mirrors that get a copy of one request, one bit each.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Sampled(u8);

impl Sampled {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }

    fn has(self, index: usize) -> bool {
        self.0 >> index & 1 != 0
    }
}

const _: () = assert!(MIRRORS_MAX <= 8, "a bit for each mirror");

/// Conditions for copying a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampling {
    pub(super) method: Method,
    pub(super) framing: Framing,
    /// The upstream is asked for another protocol.
    pub(super) may_upgrade: bool,
    pub(super) expects_continue: bool,
}

/// A request to be copied, as its upstream got it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Original<'a> {
    pub(super) method: Method,
    pub(super) head: &'a OutgoingHead,
    pub(super) framing: Framing,
    pub(super) body: &'a [u8],
}

/// The body of a request in parts, as far as it has come.
#[derive(Debug)]
pub(super) struct Copied {
    sampled: Sampled,
    body: Buffer,
}

/// One mirror.
struct Mirror {
    user: u64,
    config: MirrorConfig,
    key: PoolKey,
    /// Shares added up since the last copy.
    saved_ppm: u32,
    in_flight_count: usize,
    /// In a row.
    failure_count: u32,
    paused_until_ns: u64,
    counters: Arc<MirrorCounters>,
    failures: FailureLog,
    name: NameWatch,
}

impl Mirror {
    fn ended(&mut self) {
        self.in_flight_count = self.in_flight_count.saturating_sub(1);
        self.show_in_flight();
    }

    fn show_in_flight(&self) {
        let count = self.in_flight_count as u64;
        self.counters.set(MirrorCell::InFlight, count);
    }

    fn answered(&self, status: StatusCode) {
        self.counters.count(match status.code() / 100 {
            3 => MirrorCell::Responses3xx,
            4 => MirrorCell::Responses4xx,
            5 => MirrorCell::Responses5xx,
            _ => MirrorCell::Responses2xx,
        });
    }

    fn completed(&mut self, report: &ExchangeReport) {
        self.failure_count = 0;
        let counters = &self.counters;
        counters.add(MirrorCell::FirstByteNs, report.first_byte_ns);
        counters.add(MirrorCell::TotalNs, report.total_ns);
        counters.add(MirrorCell::BodyBytes, report.body_bytes);
        self.ended();
    }

    /// One more failure in a row.
    fn pause_if_failing(&mut self, now_ns: u64) {
        self.failure_count = self.failure_count.saturating_add(1);
        if self.failure_count >= FAILURES_MAX {
            self.paused_until_ns = now_ns.saturating_add(PAUSE_NS);
        }
    }

    #[cold]
    fn cut(&mut self, now_ns: u64) {
        self.counters.count(MirrorCell::ResponsesTooLong);
        self.pause_if_failing(now_ns);
        self.ended();
    }

    #[cold]
    fn failed(&mut self, error: &ExchangeFailure, now_ns: u64) {
        let failure = Failure::from(error);
        self.counters.count(MirrorCell::Failed);
        self.counters.count_failure(failure);
        self.pause_if_failing(now_ns);
        // Names have lines of their own: see `client_peer`.
        if !matches!(failure, Failure::Unresolved | Failure::ResolveTimeout) {
            let what = (Kind::Mirror, &*self.config.name);
            self.failures.failed(what, failure, Some(error), now_ns);
        }
        self.ended();
    }

    /// Whether this request is in the sample.
    fn takes(&mut self, request: &Sampling, policy: &MirrorPolicy, now_ns: u64) -> bool {
        let excluded = match () {
            () if request.may_upgrade => Some(MirrorCell::ExcludedUpgrade),
            () if request.expects_continue => Some(MirrorCell::ExcludedExpect),
            () if !policy.methods.has(request.method) => Some(MirrorCell::ExcludedMethod),
            () => None,
        };
        if let Some(cell) = excluded {
            self.counters.count(cell);
            return false;
        }
        self.saved_ppm += self.config.share.parts_per_million();
        if self.saved_ppm < MILLION {
            return false;
        }
        self.saved_ppm -= MILLION;
        let is_too_long = matches!(request.framing, Framing::Length(length)
            if length > policy.body_bytes_max as u64);
        let dropped = match () {
            () if now_ns < self.paused_until_ns => Some(MirrorCell::DroppedPaused),
            () if is_too_long => Some(MirrorCell::DroppedBody),
            () if self.in_flight_count >= MIRROR_IN_FLIGHT_MAX => Some(MirrorCell::DroppedInFlight),
            () => None,
        };
        if let Some(cell) = dropped {
            self.counters.count(cell);
        }
        dropped.is_none()
    }
}

/// The mirrors of one shard.
pub(super) struct Mirrors {
    list: Vec<Mirror>,
    copies: Slab<Copied>,
    policy: MirrorPolicy,
    host: HostPolicy,
    users: u16,
    shard_index: usize,
}

impl Mirrors {
    pub(super) fn new(mode: PoolMode, shard_index: usize) -> Self {
        Self {
            list: Vec::new(),
            copies: Slab::new("proxy_mirror_copies", mode),
            policy: MirrorPolicy::default(),
            host: HostPolicy::default(),
            users: 0,
            shard_index,
        }
    }

    /// Replaces all mirrors by those of `config`. Copies under way to one that leaves
    /// end by themselves and are not counted any more.
    pub(super) fn configure(
        &mut self,
        config: &ProxyConfig,
        client: &Client,
        registry: &MirrorRegistry,
    ) {
        self.policy = config.mirroring;
        self.host = config.host;
        // Copies under way refer to mirrors by their index in the old list.
        for handle in self.copies.handles().collect::<Vec<_>>() {
            self.abandon_body(handle);
        }
        let mut before = std::mem::take(&mut self.list);
        for wanted in &config.mirrors {
            // One with TLS begins anew: its certificates may be others.
            let stays = before.iter().position(|it| {
                it.config.name == wanted.name && it.config.tls.is_none() && wanted.tls.is_none()
            });
            if let Some(index) = stays {
                self.list.push(Mirror {
                    config: wanted.clone(),
                    saved_ppm: 0,
                    ..before.swap_remove(index)
                });
                continue;
            }
            let key = client.add_target(Target {
                place: wanted.place.clone(),
                tls: wanted.tls.clone(),
                connections_max: MIRROR_IN_FLIGHT_MAX,
                waiters_max: MIRROR_IN_FLIGHT_MAX,
            });
            let name = &wanted.name;
            match key {
                Ok(key) => {
                    self.users = self.users.wrapping_add(1) & (u16::MAX >> 1);
                    self.list.push(Mirror {
                        user: FIRST_USER + u64::from(self.users),
                        config: wanted.clone(),
                        key,
                        saved_ppm: 0,
                        in_flight_count: 0,
                        failure_count: 0,
                        paused_until_ns: 0,
                        counters: registry.counters(name, self.shard_index),
                        failures: FailureLog::default(),
                        name: NameWatch::new(key, &wanted.place),
                    });
                }
                Err(error) => log::write(
                    LogLevel::Error,
                    format_args!("mirror {name} is left out: {error}"),
                ),
            }
        }
        for mirror in before {
            mirror.counters.set(MirrorCell::InFlight, 0);
            client.remove_target(mirror.key);
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Bodies are being copied.
    #[inline]
    pub(super) fn is_copying(&self) -> bool {
        !self.copies.is_empty()
    }

    /// The mirrors that get a copy of this request.
    pub(super) fn sample(&mut self, request: &Sampling, now_ns: u64) -> Sampled {
        let mut sampled = Sampled::NONE;
        for (index, mirror) in self.list.iter_mut().enumerate() {
            if mirror.takes(request, &self.policy, now_ns) {
                sampled.0 |= 1 << index;
            }
        }
        sampled
    }

    /// Begins to copy a body that comes in parts; `None`: there are as many already.
    pub(super) fn begin_body(&mut self, sampled: Sampled) -> Option<Handle<Copied>> {
        let copied = Copied {
            sampled,
            body: Buffer::new(),
        };
        let cell = match self.copies.len() < COPIES_MAX {
            true => match self.copies.insert(copied) {
                Ok(handle) => return Some(handle),
                Err(_) => MirrorCell::DroppedMemory,
            },
            false => MirrorCell::DroppedInFlight,
        };
        self.count_dropped(sampled, cell);
        None
    }

    /// The next part of a body: how much is copied with it. `None`: it is not copied any more.
    pub(super) fn copy_part(
        &mut self,
        handle: Handle<Copied>,
        part: &[u8],
        blocks: &BlockPool,
    ) -> Option<u64> {
        let copied = self.copies.get_mut(handle)?;
        let is_short = copied.body.len() + part.len() <= self.policy.body_bytes_max;
        let cell = match is_short {
            true if copied.body.extend_from_slice(blocks, part).is_ok() => {
                return Some(copied.body.len() as u64);
            }
            true => MirrorCell::DroppedMemory,
            false => MirrorCell::DroppedBody,
        };
        self.drop_body(handle, cell);
        None
    }

    /// All of the body has come.
    pub(super) fn take_body(&mut self, handle: Handle<Copied>) -> Option<(Sampled, Buffer)> {
        let copied = self.copies.remove(handle)?;
        Some((copied.sampled, copied.body))
    }

    /// The request has ended before its body had come whole.
    pub(super) fn abandon_body(&mut self, handle: Handle<Copied>) {
        self.drop_body(handle, MirrorCell::DroppedUnfinished);
    }

    fn drop_body(&mut self, handle: Handle<Copied>, cell: MirrorCell) {
        if let Some(copied) = self.copies.remove(handle) {
            self.count_dropped(copied.sampled, cell);
        }
    }

    fn count_dropped(&self, sampled: Sampled, cell: MirrorCell) {
        for (index, mirror) in self.list.iter().enumerate() {
            if sampled.has(index) {
                mirror.counters.count(cell);
            }
        }
    }

    /// Sends copies to the mirrors of the sample.
    pub(super) fn send<'t>(
        &mut self,
        sampled: Sampled,
        original: &Original<'_>,
        trailer: &(impl Iterator<Item = Field<'t>> + Clone),
        client: &Client,
        blocks: &BlockPool,
    ) {
        let (policy, host_policy) = (self.policy, self.host);
        for (index, mirror) in self.list.iter_mut().enumerate() {
            if !sampled.has(index) {
                continue;
            }
            // Since the sample was taken others may have begun.
            if mirror.in_flight_count >= MIRROR_IN_FLIGHT_MAX {
                mirror.counters.count(MirrorCell::DroppedInFlight);
                continue;
            }
            let asked = original.head.client_host();
            let host = match host_policy {
                HostPolicy::Keep if !asked.is_empty() => asked,
                // Checked when the configuration was taken.
                _ => Authority::known(mirror.config.host.as_bytes()),
            };
            let begun = begin(mirror, host, original, policy, client, blocks);
            let sent = begun.and_then(|exchange| {
                send_body(exchange, original, trailer, client, blocks)
                    .inspect_err(|_| client.abort(exchange))
            });
            match sent {
                Ok(()) => {
                    mirror.counters.count(MirrorCell::Mirrored);
                    mirror.in_flight_count += 1;
                    mirror.show_in_flight();
                }
                Err(_) => mirror.counters.count(MirrorCell::DroppedMemory),
            }
        }
    }

    /// Outcome of a copy.
    pub(super) fn event(
        &mut self,
        (id, user): (ExchangeId, u64),
        event: &ExchangeEvent<'_>,
        client: &Client,
        now_ns: u64,
    ) {
        let Some(mirror) = self.list.iter_mut().find(|it| it.user == user) else {
            if matches!(event, ExchangeEvent::Body(_)) {
                // Of a mirror that has left: nothing bounds it any more.
                client.abort(id);
            }
            return;
        };
        match event {
            ExchangeEvent::Head(answer) => mirror.answered(answer.status()),
            ExchangeEvent::Body(_) => {
                let report = client.report(id, now_ns).unwrap_or_default();
                if report.body_bytes > ANSWER_BYTES_MAX {
                    client.abort(id);
                    mirror.cut(now_ns);
                }
            }
            ExchangeEvent::Whole { head, report, .. } => {
                mirror.answered(head.status());
                mirror.completed(report);
            }
            ExchangeEvent::End { report, .. } => mirror.completed(report),
            ExchangeEvent::Failed { failure, .. } => mirror.failed(failure, now_ns),
            // All of it was written at once, and no other protocol was asked for.
            ExchangeEvent::Room | ExchangeEvent::Informational(_) | ExchangeEvent::PeerFinished => {
            }
        }
    }

    /// The names to resolve, with their labels.
    pub(super) fn names(&mut self) -> impl Iterator<Item = (&str, &mut NameWatch)> {
        let list = self.list.iter_mut();
        list.map(|it| (&*it.config.name, &mut it.name))
    }

    pub(super) fn pool_stats(&self) -> PoolStats {
        self.copies.stats()
    }

    pub(super) fn trim(&mut self) -> usize {
        self.copies.trim()
    }
}

fn begin(
    mirror: &Mirror,
    host: Authority<'_>,
    original: &Original<'_>,
    policy: MirrorPolicy,
    client: &Client,
    blocks: &BlockPool,
) -> Result<ExchangeId, ExchangeWriteError> {
    let head = original.head.with_host(blocks, host)?;
    let mut request = OutgoingRequest::of_lines(original.method, head);
    request.body = original.framing;
    let timeout_ns = policy.timeout_ns;
    request.timeouts = Timeouts {
        connection_ns: timeout_ns,
        write_ns: timeout_ns,
        first_byte_ns: timeout_ns,
        between_bytes_ns: timeout_ns,
        total_ns: timeout_ns,
        tunnel_idle_ns: timeout_ns,
    };
    request.user = mirror.user;
    Ok(client.begin(mirror.key, request, blocks)?)
}

fn send_body<'t>(
    exchange: ExchangeId,
    original: &Original<'_>,
    trailer: &(impl Iterator<Item = Field<'t>> + Clone),
    client: &Client,
    blocks: &BlockPool,
) -> Result<(), ExchangeWriteError> {
    if !original.body.is_empty() {
        client.write(exchange, original.body, blocks)?;
    }
    match original.framing {
        Framing::Chunked => client.finish_passing(exchange, trailer.clone(), blocks),
        _ => Ok(()),
    }
}

// Counters of each mirror.

/// Counters and gauges of a mirror, one index each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(super) enum MirrorCell {
    Mirrored,
    DroppedInFlight,
    DroppedPaused,
    DroppedBody,
    DroppedUnfinished,
    DroppedMemory,
    ExcludedMethod,
    ExcludedUpgrade,
    ExcludedExpect,
    Responses2xx,
    Responses3xx,
    Responses4xx,
    Responses5xx,
    Failed,
    ResponsesTooLong,
    FirstByteNs,
    TotalNs,
    BodyBytes,
    // From here on what is now, not counts.
    InFlight,
}

impl CellIndex for MirrorCell {
    fn index(self) -> usize {
        self as usize
    }
}

const CELLS: usize = MirrorCell::InFlight as usize + 1;

/// One shard's cells of one mirror.
pub(super) type MirrorCounters = Counters<MirrorCell, CELLS>;

/// All shards' cells, by the mirror's name.
pub(super) type MirrorRegistry = Registry<MirrorCell, CELLS>;

/// In `/metrics`.
pub(super) const MIRRORS: Shown<MirrorCell> = Shown {
    label: "mirror",
    metrics: &METRICS,
    failures: (
        "millpond_mirror_errors_total",
        "Copies without a whole response, by the error type of RFC 9209 and the cause; those there were.",
    ),
    durations: None,
};

const METRICS: [Metric<MirrorCell>; 10] = [
    Metric {
        name: "millpond_mirror_requests_total",
        kind: "counter",
        help: "Requests copied to the mirror.",
        cells: &[("", "", MirrorCell::Mirrored)],
    },
    Metric {
        name: "millpond_mirror_dropped_total",
        kind: "counter",
        help: "Requests of the sample that were not copied: as many copies as may be were under way (in_flight), \
               the mirror had failed five times in a row within the last second (paused), the body was too long or did not come whole, no memory.",
        cells: &[
            ("reason", "in_flight", MirrorCell::DroppedInFlight),
            ("reason", "paused", MirrorCell::DroppedPaused),
            ("reason", "body_too_long", MirrorCell::DroppedBody),
            ("reason", "body_unfinished", MirrorCell::DroppedUnfinished),
            ("reason", "memory", MirrorCell::DroppedMemory),
        ],
    },
    Metric {
        name: "millpond_mirror_excluded_total",
        kind: "counter",
        help: "Requests of kinds that are never copied, before the sample is taken.",
        cells: &[
            ("reason", "method", MirrorCell::ExcludedMethod),
            ("reason", "upgrade", MirrorCell::ExcludedUpgrade),
            ("reason", "expect", MirrorCell::ExcludedExpect),
        ],
    },
    Metric {
        name: "millpond_mirror_responses_total",
        kind: "counter",
        help: "Responses of the mirror by class of their status; all are dropped.",
        cells: &[
            ("class", "2xx", MirrorCell::Responses2xx),
            ("class", "3xx", MirrorCell::Responses3xx),
            ("class", "4xx", MirrorCell::Responses4xx),
            ("class", "5xx", MirrorCell::Responses5xx),
        ],
    },
    Metric {
        name: "millpond_mirror_failures_total",
        kind: "counter",
        help: "Copies without a complete response.",
        cells: &[("", "", MirrorCell::Failed)],
    },
    Metric {
        name: "millpond_mirror_responses_too_long_total",
        kind: "counter",
        help: "Responses that were longer than a mirror's may be; the connection was closed.",
        cells: &[("", "", MirrorCell::ResponsesTooLong)],
    },
    Metric {
        name: "millpond_mirror_first_byte_seconds_total",
        kind: "counter",
        help: "Sum of the times from having a connection to the first byte of a complete response.",
        cells: &[("", "", MirrorCell::FirstByteNs)],
    },
    Metric {
        name: "millpond_mirror_duration_seconds_total",
        kind: "counter",
        help: "Sum of the times from the beginning of a copy to the end of its complete response.",
        cells: &[("", "", MirrorCell::TotalNs)],
    },
    Metric {
        name: "millpond_mirror_body_bytes_total",
        kind: "counter",
        help: "Bytes of the bodies of complete responses.",
        cells: &[("", "", MirrorCell::BodyBytes)],
    },
    Metric {
        name: "millpond_mirror_in_flight",
        kind: "gauge",
        help: "Copies under way.",
        cells: &[("", "", MirrorCell::InFlight)],
    },
];

#[cfg(test)]
#[path = "tests/mirror_counters.rs"]
mod mirror_counters_tests;

//! A reverse proxy: clients on one side, the connection pool and its upstreams on the other.
//!
//! On the path: [`Proxy`] is a [`crate::Service`]; [`ProxyControl`] holds what all shards' proxies are
//! told, and tells them anew. In the order of the `mod` lines below: what is configured, which upstream
//! is chosen, what of a head is passed on, and how an exchange runs.
//!
//! Invariants: framing is written from what was parsed, on both sides; no hop-by-hop field passes; a
//! request is repeated only if it provably did not start, or if repeating it changes nothing and nobody
//! has seen an answer; every failure has a side at fault.
//!
//! Absent on purpose: caching, rewriting of targets and bodies, and being a tunnel for CONNECT.

mod config;
mod client_peer;
mod keyed_hash;
mod balance;
mod health;
mod counters;
mod mirror_config;
mod mirror_counters;
mod states;
mod names;
mod upstreams;
mod retry;
mod failure;
mod failure_log;
mod field_rule;
mod field_change;
mod head_memory;
mod via;
mod forwarded;
mod request_head;
mod known_request;
mod response_head;
mod known_answer;
mod trailers;
mod key;
mod proxied;
mod service;
mod answering;
mod continue_wait;
mod half_close;
mod upgrade;
mod probing;
mod mirrors;

pub use balance::{Balance, BalanceError, HashKey};
pub use client_peer::{TrustedPeers, TrustedPeersError};
pub use config::{
    HostPolicy, ProxyConfig, ProxyConfigError, ProxyControl, UPSTREAMS_MAX, UpstreamConfig,
};
pub(crate) use failure::Failure;
pub use field_change::{FieldChange, FieldChangeError, FieldChanges};
pub use half_close::{HALF_CLOSED_MAX, HalfClose};
pub use health::{EjectionPolicy, ProbePolicy};
pub use mirror_config::{
    MIRROR_BODY_BYTES_CAPACITY, MIRROR_IN_FLIGHT_MAX, MIRRORS_MAX, MirrorConfig, MirrorMethods,
    MirrorPolicy, MirrorShare, MirrorShareError,
};
pub use request_head::{ForwardedFields, ForwardedFieldsError};
pub use service::Proxy;
pub use upgrade::{UpgradeProtocols, UpgradeProtocolsError};

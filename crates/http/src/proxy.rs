//! A reverse proxy: clients on one side, the connection pool and its upstreams on the other.
//!
//! [`Proxy`] is a [`crate::Service`]; [`ProxyControl`] holds the configuration of all shards' proxies, and replaces it.
//! In the order of the `mod` lines below: configuration, choice of the upstream, fields that are passed on, and the
//! exchange.
//!
//! Invariants: framing is written from the parsed message, on both sides; no hop-by-hop field passes; a request is
//! repeated only if it provably did not start, or if it is idempotent and no response has reached the client; every
//! failure has a side at fault.

mod config;
mod client_peer;
mod balance;
mod counters;
mod upstreams;
mod failure;
mod request_head;
mod response_head;
mod service;
mod answering;
mod mirrors;

pub use balance::{Balance, BalanceError, HashKey};
pub use client_peer::{TrustedPeers, TrustedPeersError};
pub use config::{
    HostPolicy, ProxyConfig, ProxyConfigError, ProxyControl, UPSTREAMS_MAX, UpstreamConfig,
};
pub use config::{
    MIRROR_BODY_BYTES_CAPACITY, MIRROR_IN_FLIGHT_MAX, MIRRORS_MAX, MirrorConfig, MirrorMethods,
    MirrorPolicy, MirrorShare, MirrorShareError,
};
pub(crate) use failure::Failure;
pub use request_head::{ForwardedFields, ForwardedFieldsError};
pub use response_head::{FieldChange, FieldChangeError, FieldChanges};
pub use service::Proxy;
pub use service::{HALF_CLOSED_MAX, HalfClose};
pub use service::{UpgradeProtocols, UpgradeProtocolsError};
pub use upstreams::{EjectionPolicy, ProbePolicy};

//! A reverse proxy: clients on one side, the connection pool and its upstreams on the other.
//!
//! [`Proxy`] is a [`crate::Service`]; [`ProxyControl`] holds what all shards' proxies are told, and
//! tells them anew. In the order of the `mod` lines below: what is configured, which upstream is
//! chosen, what of a head is passed on, and how an exchange runs.
//!
//! Invariants: framing is written from what was parsed, on both sides; no hop-by-hop field passes; a
//! request is repeated only if it provably did not start, or if repeating it changes nothing and nobody
//! has seen a response; every failure has a side at fault.

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

//! TLS between a driver and its owner: a driver over a driver.
//!
//! [`Tls`] is a [`Driver`](crate::Driver) whose accepted sockets speak TLS to their peers and
//! plaintext to their owner, who need not know. It takes the events of the driver below, turns
//! ciphertext into plaintext, and hands them on; what its owner sends becomes records. A shard
//! without TLS has no part of this in it.
//!
//! ```text
//! inner driver -> intake (a queue) -> step: handshake, records -> owner's handler
//!            ^                            |                           |
//!            +------ alerts, flights -----+     seal <- Driver::send -+
//!
//! driver.rs       the Driver methods, one tick, delivery
//! layer.rs        sessions by socket, failing them, their pools and deadlines
//! intake.rs       events of the driver below, kept until its tick is over
//! step.rs         what one socket's bytes lead to
//! records.rs      the two sides, server and client, as one
//! session.rs      one connection's records: bytes in, bytes out, no sockets
//! server.rs       what all shards share: certificates, ticket keys; reloading
//! client.rs       whom to trust, sessions to resume
//! certificates.rs files to keys; which certificate for which name
//! validity.rs     when a certificate ends
//! counters.rs     handshakes and failures, by kind
//! awaited.rs      sockets whose PROXY protocol head comes before anything else
//! ```
//!
//! The PROXY protocol (see [`crate::proxy_protocol`]) has its place here too, below the handshake: it
//! needs the same of a driver over a driver, and two of those would copy twice.
//!
//! Why a queue: the handler of the driver below is lent that driver, not this one around it. What
//! arrives has to be copied once in any case, since records are opened where they lie and received
//! bytes are not ours to write to. So a tick holds what it received until it is over: one receive
//! of each ready socket, which the driver below bounds.
//!
//! A driver speaks TLS as a server, on what it accepts, or as a client, on what it connects; the other
//! kind stays in clear text. The layer has a session for both, and nothing but that session's
//! `records` tells them apart.
//!
//! Absent on purpose: early data (it can be replayed), asking clients for certificates, renegotiation,
//! and records of our own: rustls allocates for each record it opens or seals, which a test counts.

mod awaited;
mod blocking;
mod certificates;
mod client;
mod counters;
mod driver;
mod intake;
mod layer;
mod records;
mod server;
mod session;
mod step;
mod validity;

pub use blocking::BlockingTls;
pub use certificates::{CertificateFiles, CertificateWarning, TlsError};
pub use client::{NodeNames, TlsClient, TlsClientOptions, Trust, client_of_nodes};
pub use counters::{TlsCounters, TlsFailure};
pub use driver::Tls;
pub use server::{TlsOptions, TlsServer};

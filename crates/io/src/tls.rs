//! TLS between a driver and its owner: a driver over a driver.
//!
//! [`Tls`] is a [`Driver`](crate::Driver) whose accepted sockets use TLS towards their peers and plaintext towards
//! their owner, which is unaware of it. It takes the events of the driver below, turns ciphertext into plaintext, and
//! hands them on; the owner's bytes become records. A shard without TLS contains no part of this.
//!
//! ```text
//! inner driver -> a queue -> step: handshake, records -> owner's handler
//!            ^                            |                           |
//!            +------ alerts, flights -----+     seal <- Driver::send -+
//!
//! driver.rs       the Driver methods, one tick, delivery
//! layer.rs        sessions by socket, failing them, their pools and deadlines; the queue of events of the driver
//!                 below, kept until its tick is over; and what one socket's bytes lead to
//! session.rs      one connection's records: bytes in, bytes out, no sockets; server and client side as one
//! server.rs       what all shards share: certificates, ticket keys; reloading
//! client.rs       trust, sessions to resume; TLS over one blocking socket
//! certificates.rs files to keys; which certificate for which name
//! validity.rs     when a certificate ends
//! awaited_proxy_header.rs   sockets whose PROXY protocol head comes before anything else
//! ```
//!
//! The PROXY protocol (see [`crate::proxy_protocol`]) has its place here too, below the handshake: it
//! needs the same of a driver over a driver, and two of those would copy twice.
//!
//! Why a queue: the handler of the driver below gets that driver, not this one around it. Received bytes have to be
//! copied once in any case, since records are decrypted in place and the receive buffer is read-only. So a tick holds
//! its received bytes until it is over: one receive of each ready socket, which the driver below bounds.
//!
//! A driver uses TLS as a server, on accepted sockets, or as a client, on connected ones; the other kind stays in
//! plaintext. The layer has a session for both, and nothing but that session's `records` distinguishes them.

mod awaited_proxy_header;
mod certificates;
mod client;
mod driver;
mod layer;
mod server;
mod session;
mod validity;

use rustls::{CertificateError, Error, HandshakeKind, ProtocolVersion};

pub use certificates::{CertificateFiles, CertificateWarning, TlsError};
pub use client::{BlockingTls, NodeNames, TlsClient, TlsClientOptions, Trust, client_of_nodes};
pub use driver::Tls;
pub use server::{TlsOptions, TlsServer};

// Results of handshakes and of the connections after them, in numbers.

/// Why a connection ended that TLS did not let live.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
#[non_exhaustive]
pub enum TlsFailure {
    /// The peer sends plaintext HTTP.
    Plaintext,
    /// The peer's bytes are not TLS.
    NotTls,
    /// A record or message that cannot be read.
    Malformed,
    /// The peer offers no protocol (ALPN) that is spoken here.
    Protocol,
    /// No version, cipher or signature in common.
    Incompatible,
    /// The peer refused: most often it does not trust the certificate.
    PeerAlert,
    /// The peer's certificate is for another name than the one it was asked for.
    CertificateName,
    /// The peer's certificate is of an authority that is not trusted here.
    CertificateAuthority,
    /// The peer's certificate has expired, or is not valid yet.
    CertificateExpired,
    /// The peer has no certificate, or one that is wrong in another way.
    Certificate,
    /// The peer broke the rules, or its bytes were changed on the way.
    Misbehaved,
    /// The handshake took too long.
    Timeout,
    /// The handshake has too many bytes.
    TooLong,
    /// The peer went away in the middle of the handshake.
    Closed,
    /// The owner closed the connection in the middle of the handshake: no room, or a drain.
    Refused,
    /// No memory.
    Memory,
    /// Anything else.
    Internal,
}

impl TlsFailure {
    /// All of them, in order.
    pub const ALL: [Self; 17] = [
        Self::Plaintext,
        Self::NotTls,
        Self::Malformed,
        Self::Protocol,
        Self::Incompatible,
        Self::PeerAlert,
        Self::CertificateName,
        Self::CertificateAuthority,
        Self::CertificateExpired,
        Self::Certificate,
        Self::Misbehaved,
        Self::Timeout,
        Self::TooLong,
        Self::Closed,
        Self::Refused,
        Self::Memory,
        Self::Internal,
    ];

    /// As a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plaintext => "plaintext",
            Self::NotTls => "not_tls",
            Self::Malformed => "malformed",
            Self::Protocol => "protocol",
            Self::Incompatible => "incompatible",
            Self::PeerAlert => "peer_alert",
            Self::CertificateName => "certificate_name",
            Self::CertificateAuthority => "certificate_authority",
            Self::CertificateExpired => "certificate_expired",
            Self::Certificate => "certificate",
            Self::Misbehaved => "misbehaved",
            Self::Timeout => "timeout",
            Self::TooLong => "too_long",
            Self::Closed => "closed",
            Self::Refused => "refused",
            Self::Memory => "memory",
            Self::Internal => "internal",
        }
    }

    /// Of a connection that a library of others made with [`client_of_nodes`]. `None`: TLS had
    /// no part in it.
    #[must_use]
    pub fn of_io_error(error: &std::io::Error) -> Option<Self> {
        let inner = error.get_ref()?.downcast_ref::<Error>()?;
        Some(Self::from_error(inner))
    }

    fn from_error(error: &Error) -> Self {
        match error {
            Error::InvalidMessage(_) => Self::Malformed,
            Error::NoApplicationProtocol => Self::Protocol,
            Error::PeerIncompatible(_) => Self::Incompatible,
            Error::AlertReceived(_) => Self::PeerAlert,
            Error::InvalidCertificate(error) => Self::from_certificate_error(error),
            Error::NoCertificatesPresented => Self::Certificate,
            Error::PeerMisbehaved(_)
            | Error::DecryptError
            | Error::PeerSentOversizedRecord
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. } => Self::Misbehaved,
            _ => Self::Internal,
        }
    }

    fn from_certificate_error(error: &CertificateError) -> Self {
        match error {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::CertificateName
            }
            // A signature by another key: an authority that was made anew under its old name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Self::CertificateAuthority
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => Self::CertificateExpired,
            _ => Self::Certificate,
        }
    }
}

/// Counters since the driver was made, and current numbers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TlsCounters {
    /// Connections in the middle of their handshake, now.
    pub handshaking: u64,
    /// Connections past their handshake, now.
    pub established: u64,
    /// Handshakes of TLS 1.2 with a certificate.
    pub full_tls12: u64,
    /// Handshakes of TLS 1.3 with a certificate.
    pub full_tls13: u64,
    /// Handshakes of TLS 1.2 that resumed a session.
    pub resumed_tls12: u64,
    /// Handshakes of TLS 1.3 that resumed a session.
    pub resumed_tls13: u64,
    /// Handshakes that failed, in the order of [`TlsFailure::ALL`].
    pub failed: [u64; TlsFailure::ALL.len()],
    /// Established connections ended by what TLS does not allow.
    pub broken: u64,
    /// Connections whose peer sent a FIN without `close_notify`.
    pub truncated: u64,
    /// Ciphertext bytes of handshakes, from peers.
    pub handshake_bytes: u64,
}

impl TlsCounters {
    /// How many handshakes failed for this reason.
    #[must_use]
    pub const fn failed_by(&self, failure: TlsFailure) -> u64 {
        self.failed[failure as usize]
    }

    /// Handshakes that succeeded.
    #[must_use]
    pub const fn handshakes(&self) -> u64 {
        self.full_tls12 + self.full_tls13 + self.resumed_tls12 + self.resumed_tls13
    }

    fn count_handshake(&mut self, version: Option<ProtocolVersion>, kind: Option<HandshakeKind>) {
        let is_tls13 = version == Some(ProtocolVersion::TLSv1_3);
        let is_resumed = kind == Some(HandshakeKind::Resumed);
        *match (is_tls13, is_resumed) {
            (true, true) => &mut self.resumed_tls13,
            (true, false) => &mut self.full_tls13,
            (false, true) => &mut self.resumed_tls12,
            (false, false) => &mut self.full_tls12,
        } += 1;
    }
}

//! Why there is no connection, and how far it had come.

use crate::resolver::ResolveError;
use rustix::io::Errno;

/// State of a waiting request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AcquirePhase {
    /// Every connection that is allowed is in use.
    Queue,
    /// The name is being resolved.
    Resolve,
    /// A connection is opened.
    Connect,
    /// The TLS handshake.
    Tls,
}

/// Why a TLS handshake with an upstream failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The certificate is for another name.
    #[error("its certificate is for another name: give the name that is in it")]
    CertificateName,
    /// The certificate is of an authority that is not trusted here.
    #[error("its certificate is of an unknown authority: name the authority's certificate")]
    CertificateAuthority,
    /// The certificate has expired, or is not valid yet.
    #[error("its certificate has expired or is not valid yet: renew it, or set the clock")]
    CertificateExpired,
    /// The certificate is wrong in another way.
    #[error("its certificate is not valid")]
    Certificate,
    /// The upstream refused: it requires a certificate, or does not accept the one it got, or the name.
    #[error("it refused with an alert: it may ask for a certificate, or not know the name")]
    Alert,
    /// The received bytes are not TLS.
    #[error("what it sends is no TLS: check scheme and port")]
    NotTls,
    /// No version, cipher or signature in common.
    #[error("no version, cipher or signature of TLS is common to both")]
    Incompatible,
    /// The connection ended before the handshake did.
    #[error("it closed the connection: {0}")]
    Closed(Errno),
    /// Anything else.
    #[error("{0}; check certificates and names")]
    Other(Errno),
}

#[cfg(feature = "tls")]
impl HandshakeError {
    /// From the [`tls_failure`](crate::Driver::tls_failure) of a socket that failed with `error`.
    #[must_use]
    pub fn new(failure: Option<crate::tls::TlsFailure>, error: Errno) -> Self {
        use crate::tls::TlsFailure;
        match failure {
            Some(TlsFailure::CertificateName) => Self::CertificateName,
            Some(TlsFailure::CertificateAuthority) => Self::CertificateAuthority,
            Some(TlsFailure::CertificateExpired) => Self::CertificateExpired,
            Some(TlsFailure::Certificate) => Self::Certificate,
            Some(TlsFailure::PeerAlert) => Self::Alert,
            Some(TlsFailure::Malformed | TlsFailure::NotTls | TlsFailure::Plaintext) => {
                Self::NotTls
            }
            Some(TlsFailure::Incompatible | TlsFailure::Protocol) => Self::Incompatible,
            None | Some(TlsFailure::Closed) => Self::Closed(error),
            Some(_) => Self::Other(error),
        }
    }
}

/// Why there is no connection.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AcquireError {
    /// The name has no address.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// None of the upstream's addresses can be reached.
    #[error("cannot connect to the upstream: {0}")]
    Connect(Errno),
    /// The upstream, or this side, does not accept the other's certificate or TLS.
    #[error("the TLS handshake with the upstream failed: {0}")]
    Tls(HandshakeError),
    /// It took too long.
    #[error("no connection to the upstream in time: {}", waited_for(*phase))]
    TimedOut {
        /// How far it was.
        phase: AcquirePhase,
    },
    /// As many wait already as may.
    #[error(
        "{limit} requests wait for a connection to the upstream already: raise the limit or add upstreams"
    )]
    QueueFull {
        /// The most that may wait.
        limit: usize,
    },
    /// The key was removed.
    #[error("the upstream is no longer configured")]
    Removed,
    /// No memory, no descriptors, or a driver without TLS.
    #[error("no connection can be opened here: {0}")]
    Local(Errno),
}

const fn waited_for(phase: AcquirePhase) -> &'static str {
    match phase {
        AcquirePhase::Queue => "all its connections are in use",
        AcquirePhase::Resolve => "its name is not resolved",
        AcquirePhase::Connect => "it does not accept",
        AcquirePhase::Tls => "its TLS handshake does not end",
    }
}

impl AcquireError {
    /// It took too long.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Connect(Errno::TIMEDOUT))
    }

    /// The upstream is not to blame.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(
            self,
            Self::QueueFull { .. }
                | Self::Removed
                | Self::Local(_)
                | Self::TimedOut {
                    phase: AcquirePhase::Queue
                }
        )
    }

    /// How far it had come.
    #[must_use]
    pub const fn phase(&self) -> AcquirePhase {
        match self {
            Self::Resolve(_) => AcquirePhase::Resolve,
            Self::Connect(_) | Self::Local(_) => AcquirePhase::Connect,
            Self::Tls(_) => AcquirePhase::Tls,
            Self::TimedOut { phase } => *phase,
            Self::QueueFull { .. } | Self::Removed => AcquirePhase::Queue,
        }
    }
}

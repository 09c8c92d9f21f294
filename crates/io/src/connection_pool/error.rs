//! Why there is no connection, and how far it had come.

use crate::resolver::ResolveError;
use rustix::io::Errno;

/// What is being done for who waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AcquirePhase {
    /// Every connection that is allowed is in use.
    Queue,
    /// The name is looked up.
    Resolve,
    /// A connection is opened.
    Connect,
    /// The TLS handshake.
    Tls,
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
    #[error("the TLS handshake with the upstream failed: {0}; check certificates and names")]
    Tls(Errno),
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

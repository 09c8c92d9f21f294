//! What became of the heads that were awaited, in numbers.

#[cfg(feature = "tls")]
use super::ProxyProtocol;

/// Why a connection ended before its head was whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
#[non_exhaustive]
pub enum ProxyHeadFailure {
    /// The first bytes begin no head.
    Missing,
    /// A head that breaks its own form.
    Malformed,
    /// A version, command or family that is not to be had over a stream.
    Unsupported,
    /// Longer than a line of version 1 may be, or than this side takes of version 2.
    TooLong,
    /// It took too long.
    Timeout,
    /// The peer went away.
    Closed,
    /// As many others were awaited as may be.
    Crowded,
    /// No memory.
    Memory,
}

impl ProxyHeadFailure {
    /// All of them, in order.
    pub const ALL: [Self; 8] = [
        Self::Missing,
        Self::Malformed,
        Self::Unsupported,
        Self::TooLong,
        Self::Timeout,
        Self::Closed,
        Self::Crowded,
        Self::Memory,
    ];

    /// As a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::Unsupported => "unsupported",
            Self::TooLong => "too_long",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Crowded => "crowded",
            Self::Memory => "memory",
        }
    }
}

/// What happened since the driver was made, and how it is now.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ProxyHeadCounters {
    /// Connections whose head is not whole, now.
    pub awaited: u64,
    /// Heads of version 1.
    pub taken_v1: u64,
    /// Heads of version 2.
    pub taken_v2: u64,
    /// Those of both versions that tell no address: the connection's own holds.
    pub without_address: u64,
    /// Connections refused, in the order of [`ProxyHeadFailure::ALL`].
    pub refused: [u64; ProxyHeadFailure::ALL.len()],
}

impl ProxyHeadCounters {
    /// How many connections were refused for this reason.
    #[must_use]
    pub const fn refused_by(&self, failure: ProxyHeadFailure) -> u64 {
        self.refused[failure as usize]
    }

    #[cfg(feature = "tls")]
    pub(crate) fn took(&mut self, head: &super::ProxyHead) {
        match head.version {
            ProxyProtocol::V1 => self.taken_v1 += 1,
            ProxyProtocol::V2 => self.taken_v2 += 1,
        }
        self.without_address += u64::from(head.ends.is_none());
    }
}

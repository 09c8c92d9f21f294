//! Opening a connection in its parts, where it has parts: TCP's, and the handshake above it.
//!
//! On the path of connecting, never of a request. Absent on purpose: connections in clear text, whose
//! opening has one part, and handshakes that failed.
use millpond_measure::histogram::LatencyHistogram;

/// Of all connections that came up, whenever that was.
#[derive(Clone, Debug, Default)]
pub struct Openings {
    /// From asking for the connection to the first word of the handshake.
    pub transport: LatencyHistogram,
    /// From there to its end.
    pub handshake: LatencyHistogram,
}

impl Openings {
    /// A connection that was asked for at `since_ns` is up.
    pub(crate) fn record(&mut self, since_ns: u64, handshake_began_ns: u64, now_ns: u64) {
        let began_ns = handshake_began_ns.clamp(since_ns, now_ns);
        self.transport.record(began_ns - since_ns);
        self.handshake.record(now_ns - began_ns);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.transport.merge(&other.transport);
        self.handshake.merge(&other.handshake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_make_the_whole() {
        let mut openings = Openings::default();
        openings.record(10, 30, 90);
        // A clock that was read a moment later than the event's.
        openings.record(10, 95, 90);
        let mut sum = Openings::default();
        sum.merge(&openings);
        assert_eq!((sum.transport.min(), sum.transport.max()), (20, 80));
        assert_eq!((sum.handshake.min(), sum.handshake.max()), (0, 60));
    }
}

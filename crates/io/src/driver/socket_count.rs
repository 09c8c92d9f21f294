//! How many sockets a driver holds, counted where their descriptors are.

use super::DriverCounters;

/// Which side opened a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Opener {
    /// A peer: it came through the listener.
    Peer,
    /// This process.
    Us,
}

/// Every descriptor of a connection counts, from the accept or connect until the close: open,
/// sending, lingering, and closed by its owner but not yet by the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketCount {
    accepted: usize,
    connected: usize,
    peak: usize,
    /// Bound of `accepted`. `connected` has none here: whoever connects has a limit of its own (see
    /// `connection_pool`), which a flood of accepted sockets must not use up.
    accepted_max: usize,
}

impl Default for SocketCount {
    fn default() -> Self {
        Self {
            accepted: 0,
            connected: 0,
            peak: 0,
            accepted_max: usize::MAX,
        }
    }
}

impl SocketCount {
    pub(super) fn set_accepted_max(&mut self, count: usize) {
        self.accepted_max = count;
    }

    pub(super) fn opened(&mut self, opener: Opener) {
        match opener {
            Opener::Peer => self.accepted += 1,
            Opener::Us => self.connected += 1,
        }
        self.peak = self.peak.max(self.held());
    }

    pub(super) fn closed(&mut self, opener: Opener) {
        match opener {
            Opener::Peer => self.accepted -= 1,
            Opener::Us => self.connected -= 1,
        }
    }

    /// Whether no further connection may be accepted.
    pub(super) fn is_full(&self) -> bool {
        self.accepted >= self.accepted_max
    }

    fn held(&self) -> usize {
        self.accepted + self.connected
    }

    /// `counters` with these numbers in it.
    pub(super) fn shown_in(&self, counters: DriverCounters) -> DriverCounters {
        DriverCounters {
            sockets_held: self.held() as u64,
            sockets_peak: self.peak as u64,
            ..counters
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: both kinds are held and have one peak; only accepted ones fill the cap.
    #[test]
    fn connected_sockets_do_not_fill_the_cap_of_accepted_ones() {
        let mut count = SocketCount::default();
        count.set_accepted_max(2);
        for opener in [Opener::Us, Opener::Us, Opener::Us, Opener::Peer] {
            count.opened(opener);
            assert!(!count.is_full(), "{count:?}");
        }
        count.opened(Opener::Peer);
        assert!(count.is_full());
        count.closed(Opener::Us);
        assert!(count.is_full());
        count.closed(Opener::Peer);
        assert!(!count.is_full());
        let shown = count.shown_in(DriverCounters::default());
        assert_eq!((shown.sockets_held, shown.sockets_peak), (3, 5));
    }
}

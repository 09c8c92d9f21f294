//! How many connections each address has, so that one client cannot take them all.
//!
//! An IPv6 client has a whole network of 64 bits to itself, so that network counts as one address.
//! Absent on purpose: any work when there is no cap, and clients on a unix socket, which have no
//! address and are of this machine.

use millpond_io::Peer;
use std::collections::HashMap;
use std::net::IpAddr;

/// An address or network as one number; no client has zero.
type Key = u128;

/// See the module.
#[derive(Debug)]
pub(super) struct AddressCounts {
    count_max: usize,
    counts_loopback: bool,
    counts: HashMap<Key, u32>,
    /// Whom each slot is counted for; zero for nobody.
    keys: Vec<Key>,
}

impl AddressCounts {
    /// `count_max`: `usize::MAX` for no cap. `counts_loopback`: whether it is for loopback addresses too.
    pub(super) fn new(count_max: usize, counts_loopback: bool) -> Self {
        Self {
            count_max,
            counts_loopback,
            counts: HashMap::new(),
            keys: Vec::new(),
        }
    }

    /// Whether there is anything to count.
    pub(super) fn has_cap(&self) -> bool {
        self.count_max != usize::MAX
    }

    /// Whether this client has all it may have.
    pub(super) fn is_full(&self, peer: Peer) -> bool {
        self.key(peer)
            .and_then(|key| self.counts.get(&key))
            .is_some_and(|&count| count as usize >= self.count_max)
    }

    /// Counts a connection. Without memory for it, it goes uncounted: that errs on its side.
    pub(super) fn add(&mut self, slot: usize, peer: Peer) {
        let Some(key) = self.key(peer) else {
            return;
        };
        if self.keys.len() <= slot {
            let added_count = slot + 1 - self.keys.len();
            if self.keys.try_reserve(added_count).is_err() {
                return;
            }
            self.keys.resize(slot + 1, 0);
        }
        if self.counts.try_reserve(1).is_ok() {
            self.keys[slot] = key;
            *self.counts.entry(key).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, slot: usize) {
        let Some(key) = self.keys.get_mut(slot).map(std::mem::take) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&key);
            }
        }
    }

    fn key(&self, peer: Peer) -> Option<Key> {
        if !self.has_cap() {
            return None;
        }
        let Peer::Inet(address) = peer else {
            return None;
        };
        Some(match address.ip().to_canonical() {
            ip if ip.is_loopback() && !self.counts_loopback => return None,
            IpAddr::V4(v4) => u128::from(v4.to_ipv6_mapped()),
            IpAddr::V6(v6) => u128::from(v6) >> 64 << 64 | 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(ip: &str) -> Peer {
        Peer::Inet((ip.parse::<IpAddr>().unwrap(), 1234).into())
    }

    /// Goal: each address fills its own share, a /64 is one address, and leaving makes room.
    #[test]
    fn each_address_has_its_own_share() {
        let mut counts = AddressCounts::new(2, true);
        counts.add(0, peer("10.0.0.1"));
        counts.add(1, peer("::ffff:10.0.0.1"));
        counts.add(2, peer("10.0.0.2"));
        assert!(counts.is_full(peer("10.0.0.1")), "mapped or not");
        assert!(!counts.is_full(peer("10.0.0.2")));
        counts.add(3, peer("2001:db8::1"));
        counts.add(4, peer("2001:db8::ffff:2"));
        assert!(counts.is_full(peer("2001:db8:0:0:9::")), "one network");
        assert!(!counts.is_full(peer("2001:db8:0:1::1")), "the next one");
        assert!(!counts.is_full(Peer::Unix));
        counts.remove(1);
        assert!(!counts.is_full(peer("10.0.0.1")));
        for slot in [0, 2, 3, 4, 4, 99] {
            counts.remove(slot);
        }
        assert!(counts.counts.is_empty());
    }

    /// Goal: a cap that spares this machine spares loopback in each of its forms, and nothing else.
    #[test]
    fn loopback_can_be_exempt() {
        let mut counts = AddressCounts::new(1, false);
        for (slot, ip) in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1"]
            .into_iter()
            .enumerate()
        {
            counts.add(slot, peer(ip));
            assert_eq!(counts.is_full(peer(ip)), ip == "10.0.0.1", "{ip}");
        }
    }

    /// Goal: without a cap nothing is counted, so nothing is kept.
    #[test]
    fn no_cap_costs_no_memory() {
        let mut counts = AddressCounts::new(usize::MAX, true);
        counts.add(0, peer("10.0.0.1"));
        assert!(!counts.is_full(peer("10.0.0.1")));
        assert_eq!((counts.counts.capacity(), counts.keys.capacity()), (0, 0));
    }
}

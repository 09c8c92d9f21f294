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

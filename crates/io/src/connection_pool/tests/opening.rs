use super::*;
use millpond_mempool::{PoolMode, Slab};

fn opening(address_count: u16, preferred: usize) -> Opening {
    let mut keys = Slab::<()>::new("keys", PoolMode::Off);
    let key = keys.insert(()).unwrap().to_bits();
    let port = |port: u16| Address::Inet(([127, 0, 0, 1], port).into());
    Opening {
        key: PoolKey::from_bits(key),
        addresses: (0..address_count).map(port).collect(),
        preferred,
        tried_count: 0,
        attempts: [None; ATTEMPTS_MAX],
        error: AcquireError::Removed,
        began_ns: 0,
        resolve_ns: 0,
        deadline_ns: 0,
        is_deadline_of_tls: false,
        next_due_ns: 0,
        timer: None,
    }
}

/// Goal: every address has its turn once, the preferred one first, the others in their order.
#[test]
fn the_preferred_address_is_first() {
    for (preferred, expected) in [
        (0, vec![0, 1, 2, 3]),
        (2, vec![2, 0, 1, 3]),
        (3, vec![3, 0, 1, 2]),
    ] {
        let mut opening = opening(4, preferred);
        let mut order = Vec::new();
        while let Some(index) = opening.next_index() {
            order.push(index);
            opening.tried_count += 1;
        }
        assert_eq!(order, expected);
    }
    assert_eq!(opening(0, 0).next_index(), None);
}

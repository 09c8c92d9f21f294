use super::*;
use crate::checked_memory::page_run::PageRun;
use std::collections::HashMap;

fn record(address: usize, allocation: u64) -> Record {
    let start = NonNull::without_provenance(address.try_into().unwrap());
    Record {
        start,
        size_bytes: 16,
        allocation,
        area: Area::Pages(PageRun::placeholder(start)),
        is_live: true,
    }
}

/// Goal: the ledger is a map from address to record through growth and removals, whatever the
/// order; few addresses, so that records meet and gaps are closed.
#[test]
fn ledger_is_a_map() {
    let mut ledger = Ledger::new();
    let mut model: HashMap<usize, u64> = HashMap::new();
    let mut state = 1_u64;
    // Miri is a thousand times slower, and learns nothing new after the table has grown twice.
    let (steps, addresses) = if cfg!(miri) {
        (600, 100)
    } else {
        (60_000, 3000)
    };
    for step in 0..steps {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let address = 16 * (1 + (state >> 40) as usize % addresses);
        if let Some(allocation) = model.remove(&address) {
            assert_eq!(ledger.remove(address).unwrap().allocation, allocation);
        } else {
            assert!(ledger.get(address).is_none() && ledger.remove(address).is_none());
            ledger.reserve_one().unwrap();
            ledger.insert(record(address, step));
            model.insert(address, step);
        }
    }
    assert_eq!(ledger.len, model.len());
    assert!(model.len() > addresses / 3);
    for (address, allocation) in &model {
        assert_eq!(ledger.get(*address).unwrap().allocation, *allocation);
    }
    assert_eq!(ledger.iter().count(), model.len());
}

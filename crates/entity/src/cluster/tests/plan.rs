use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type Partitions = Vec<BTreeMap<Vec<u8>, u64>>;

fn list(partitions: &Partitions, from: &[u8], limit: usize) -> Vec<Listed> {
    let of = |partition: &BTreeMap<Vec<u8>, u64>| {
        let ids = partition.range(from.to_vec()..).take(limit);
        let ids: Vec<_> = ids.map(|(id, size)| (id.clone(), *size)).collect();
        let is_whole = ids.len() < limit;
        Listed { ids, is_whole }
    };
    partitions.iter().map(of).collect()
}

proptest! {
    /// Goal: however ids lie in partitions, turns by plan show each of them once, in order, and
    /// never more bytes at once than they may, but for a single record.
    #[test]
    fn turns_show_all_ids_in_order(
        entities in proptest::collection::btree_map(
            proptest::collection::vec(0..3_u8, 1..6), (0..5_u16, 0..50_u64), 0..60),
        limit in 1..8_usize,
        bytes_max in 1..200_u64,
    ) {
        let mut partitions = Partitions::new();
        partitions.resize(5, BTreeMap::new());
        for (id, (bucket, size)) in &entities {
            partitions[usize::from(*bucket)].insert(id.clone(), *size);
        }
        let mut shown: Vec<Vec<u8>> = Vec::new();
        let mut from = Some(vec![0]);
        while let Some(start) = from {
            let plan = plan(&list(&partitions, &start, limit), bytes_max);
            let mut turn = BTreeSet::new();
            let mut bytes = 0;
            for slice in &plan.slices {
                let partition = &partitions[usize::from(slice.bucket)];
                for (id, size) in partition.range(slice.first.clone()..=slice.last.clone()) {
                    bytes += id.len() as u64 + size;
                    turn.insert(id.clone());
                }
            }
            prop_assert!(bytes <= bytes_max || turn.len() == 1);
            prop_assert!(plan.next.is_none() || !turn.is_empty(), "no way on");
            shown.extend(turn);
            from = plan.next;
        }
        let all: Vec<Vec<u8>> = entities.into_keys().collect();
        prop_assert_eq!(shown, all);
    }
}

/// Goal: nothing lies between an id and the next one that is asked for.
#[test]
fn successors_are_next() {
    assert_eq!(successor(b"a"), b"a\0");
    let next = successor(b"a");
    assert!(b"a"[..] < *next && *next < b"a\0\0"[..]);
}

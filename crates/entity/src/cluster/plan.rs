//! Which records of all partitions come next, when every partition has said what comes next in it.
//!
//! On the path: `scan` lists the first ids of each partition, with sizes, and asks here which of them to
//! read. A partition that had more to list says nothing about what is behind its last id; so what is
//! behind the least of such last ids has to wait.
//! Absent on purpose: the network.

/// The first ids of a partition that are in the range, in order, and the bytes of their records.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Listed {
    pub(super) ids: Vec<(Vec<u8>, u64)>,
    /// There are no more.
    pub(super) is_whole: bool,
}

/// From which id to which, in one partition; both are there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Slice {
    pub(super) bucket: u16,
    pub(super) first: Vec<u8>,
    pub(super) last: Vec<u8>,
}

/// What to read now, and where to go on.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Plan {
    pub(super) slices: Vec<Slice>,
    /// The least id that may come behind all of them; none: nothing does.
    pub(super) next: Option<Vec<u8>>,
}

/// The records that come first over all partitions, `bytes_max` of them or one.
pub(super) fn plan(listed: &[Listed], bytes_max: u64) -> Plan {
    let last_ids = listed
        .iter()
        .filter(|listed| !listed.is_whole)
        .filter_map(|listed| listed.ids.last());
    let horizon = last_ids.map(|(id, _)| id).min();
    let mut known: Vec<(&Vec<u8>, u64, u16)> = (0..)
        .zip(listed)
        .flat_map(|(bucket, listed)| listed.ids.iter().map(move |(id, size)| (id, *size, bucket)))
        .filter(|(id, ..)| horizon.is_none_or(|horizon| *id <= horizon))
        .collect();
    known.sort_unstable();
    let mut bytes = 0;
    let fits = known.iter().take_while(|(id, size, _)| {
        bytes += id.len() as u64 + size;
        bytes <= bytes_max
    });
    let count = fits.count().max(1).min(known.len());
    let is_more = count < known.len() || horizon.is_some();
    let taken = &known[..count];
    let mut slices: Vec<Option<Slice>> = listed.iter().map(|_| None).collect();
    for (id, _, bucket) in taken {
        match &mut slices[usize::from(*bucket)] {
            Some(slice) => slice.last.clone_from(id),
            slice => {
                *slice = Some(Slice {
                    bucket: *bucket,
                    first: id.to_vec(),
                    last: id.to_vec(),
                });
            }
        }
    }
    Plan {
        slices: slices.into_iter().flatten().collect(),
        next: taken
            .last()
            .filter(|_| is_more)
            .map(|(id, ..)| successor(id)),
    }
}

/// The least id that is greater.
fn successor(id: &[u8]) -> Vec<u8> {
    [id, &[0]].concat()
}

#[cfg(test)]
mod tests {
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
}

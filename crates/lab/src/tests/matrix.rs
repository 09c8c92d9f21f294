use super::*;
use crate::allocator::GLIBC;

fn allocators(names: &[&str]) -> Vec<Allocator> {
    let allocator = |name: &&str| match *name {
        GLIBC => Allocator::native(GLIBC),
        name => Allocator::preloaded(name, format!("/lib/{name}.so").into()),
    };
    names.iter().map(allocator).collect()
}

/// Goal: the default comparison is complete, and its baseline is what a user gets by default.
#[test]
fn baseline_is_plain_and_runs_twice() {
    let pools = [PoolSetting::Off, PoolSetting::On];
    let list = candidates(&allocators(&["jemalloc", "glibc"]), &pools);
    let names: Vec<&str> = list
        .iter()
        .map(|candidate| candidate.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "glibc with pools",
            "glibc with pools (again)",
            "jemalloc with pools",
            "jemalloc without pools",
            "glibc without pools",
        ]
    );
    let roles: Vec<Role> = list.iter().map(|candidate| candidate.role).collect();
    assert_eq!(
        roles[..3],
        [Role::Baseline, Role::BaselineAgain, Role::Candidate]
    );
}

/// Goal: the usual set has the allocators without pools and one pair with and without.
#[test]
fn the_usual_set_is_small() {
    let list = usual_candidates(&allocators(&["glibc", "jemalloc", "mimalloc"]));
    let names: Vec<&str> = list.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "glibc without pools",
            "glibc without pools (again)",
            "jemalloc without pools",
            "mimalloc without pools",
            "glibc with pools",
        ]
    );
    assert_eq!(
        (list[0].role, list[4].role),
        (Role::Baseline, Role::Candidate)
    );
    assert!(usual_candidates(&[]).is_empty());
}

/// Goal: variants come beside the allocators, on the server as it is; crossed, with each allocator too, under
/// names that distinguish them. They are no baseline, and keep their names under a native allocator.
#[test]
fn variants_come_beside_allocators() {
    let variants = ["py=env:A=1", "musl=command:x {port}"];
    let variants = variants.map(|text| Variant::parse(text).unwrap());
    let names = |is_crossed| {
        let mut list = candidates(&allocators(&["glibc", "jemalloc"]), &[]);
        add_variants(&mut list, &variants, is_crossed);
        assert_eq!(name_given_twice(&list), None);
        name_native(&mut list, "tcmalloc");
        list.into_iter()
            .skip(2)
            .map(|one| one.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(false), ["jemalloc", "py", "musl"]);
    assert_eq!(
        names(true),
        ["jemalloc", "py", "py + jemalloc", "musl", "musl + jemalloc"]
    );
    let mut list = candidates(&allocators(&["glibc", "py"]), &[]);
    add_variants(&mut list, &variants, false);
    assert_eq!(name_given_twice(&list), Some("py"));
    let py = list.last().unwrap();
    assert!(!py.is_plain() && py.variables().is_empty());
}

/// Goal: a server that brings an allocator along is not called glibc.
#[test]
fn native_baseline_is_named() {
    let mut list = candidates(&allocators(&["glibc", "mimalloc"]), &[]);
    name_native(&mut list, "jemalloc");
    let names: Vec<&str> = list
        .iter()
        .map(|candidate| candidate.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["native (jemalloc)", "native (jemalloc) (again)", "mimalloc"]
    );
    assert_eq!(list[0].allocator.name, "native (jemalloc)");
}

/// Goal: every round is complete, orders differ, and a seed gives the same schedule again.
#[test]
fn rounds_are_complete_and_shuffled() {
    let rounds = schedule(9, 10, 42);
    assert_eq!(rounds.len(), 10);
    for order in &rounds {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..9).collect::<Vec<_>>());
    }
    assert!(rounds.windows(2).any(|pair| pair[0] != pair[1]));
    assert_eq!(rounds, schedule(9, 10, 42));
    assert_ne!(rounds, schedule(9, 10, 43));
}

/// Goal: over all rows of a design, each candidate is as often at each place, and behind each other one.
#[test]
fn orders_are_balanced() {
    for count in 1..12 {
        let rows = if count % 2 == 0 { count } else { 2 * count };
        let mut at = vec![vec![0; count]; count];
        let mut after = vec![vec![0; count]; count];
        for draw in 0..rows {
            let row = balanced_order(count, draw);
            row.iter()
                .enumerate()
                .for_each(|(place, &who)| at[who][place] += 1);
            row.windows(2).for_each(|two| after[two[1]][two[0]] += 1);
        }
        let per_place = rows / count;
        assert!(
            at.iter().flatten().all(|&times| times == per_place),
            "{at:?}"
        );
        for (who, times) in after.iter().enumerate() {
            let others = times.iter().enumerate().filter(|(other, _)| *other != who);
            assert!(
                others.into_iter().all(|(_, &times)| times == per_place),
                "{after:?}"
            );
        }
    }
    assert!(balanced_order(0, 3).is_empty());
}

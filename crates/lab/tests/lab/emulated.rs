//! Instructions per request counted under valgrind, of a third-party server.

use std::sync::atomic::AtomicBool;

use millpond_lab::compare;
use millpond_measure::record::{Measure, Operation, Quantity};

use crate::common::{free_address, has_program, nginx, preloadable, short_comparison};

/// Goal: where it is asked for every candidate has as many counts as were wanted, of nginx's master and workers
/// together; the baseline and its double have the same to a few percent, which no clock on a busy machine would show;
/// and the record names the counter.
#[test]
fn nginx_is_counted_by_valgrind() {
    if !has_program("valgrind") || !has_program("nginx") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let words = nginx(directory.path(), address, "daemon off;");
    // hardened reserves more address space than valgrind has for a program.
    let mut others = preloadable().into_iter();
    let second = others.rfind(|allocator| allocator.name != "hardened");
    let second = second.map(|allocator| allocator.name);
    let allocators: Vec<String> = std::iter::once("glibc".to_owned()).chain(second).collect();
    let mut config = short_comparison(directory.path(), &words, address, allocators);
    config.rounds = Some(2);
    config.emulated_counts = Some(1);
    let outcome = compare(&config, &mut |_| {}, &AtomicBool::new(false)).unwrap();
    let record = &outcome.record;
    let measure = Measure::of(Operation::Request, Quantity::EmulatedInstructions);
    let mut medians = Vec::new();
    for candidate in &record.candidates {
        let counts: Vec<Option<f64>> = candidate
            .rounds
            .iter()
            .map(|round| round.get(measure))
            .collect();
        assert!(
            matches!(counts[..], [Some(_), None]),
            "{}: {counts:?}; {:?}",
            candidate.name,
            record.analysis.warnings
        );
        let counts: Vec<f64> = counts.into_iter().flatten().collect();
        // nginx takes some 7,000 for such a request.
        assert!(
            counts
                .iter()
                .all(|count| (1_000.0..100_000.0).contains(count)),
            "{}: {counts:?}",
            candidate.name
        );
        medians.push((candidate.name.clone(), counts[0]));
    }
    let of = |name: &str| medians.iter().find(|(one, _)| one == name).unwrap().1;
    let ratio = of("glibc (again)") / of("glibc");
    assert!((0.97..=1.03).contains(&ratio), "{medians:?}");
    assert!(record.counters.contains("valgrind"), "{}", record.counters);
}

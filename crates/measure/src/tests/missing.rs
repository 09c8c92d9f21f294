use super::*;

fn all(missing: Missing) -> Vec<(CounterKind, Missing)> {
    CounterKind::ALL.map(|kind| (kind, missing)).to_vec()
}

fn some(kinds: &[CounterKind], missing: Missing) -> Vec<(CounterKind, Missing)> {
    kinds.iter().map(|&kind| (kind, missing)).collect()
}

/// Goal: with everything there is one line, and it claims no more than that.
#[test]
fn nothing_missing_is_one_line() {
    let lines = lines(&[]);
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("in user mode and in the kernel"));
}

/// Goal: every cause of missing counters is distinguished, one line each, and the line says what
/// stands in or what to do.
#[test]
fn every_cause_has_its_line() {
    let hardware: Vec<CounterKind> = CounterKind::ALL
        .into_iter()
        .filter(|kind| kind.is_hardware())
        .collect();
    let no_pmu = lines(&some(&hardware, Missing::NoPmu));
    assert_eq!(no_pmu.len(), 1, "{no_pmu:?}");
    assert!(no_pmu[0].contains("virtual machines") && no_pmu[0].contains("stands in"));
    let forbidden = lines(&all(Missing::NoPermission));
    assert_eq!(forbidden.len(), 2, "{forbidden:?}");
    assert!(forbidden[0].contains("kernel.perf_event_paranoid to 1"));
    assert!(forbidden[1].contains("/proc"));
    let failed = lines(&all(Missing::Other(24)));
    assert!(
        failed
            .iter()
            .all(|line| line.contains("Too many open files"))
    );
    let kernel = [CounterKind::KernelInstructions, CounterKind::KernelCycles];
    let user_only = lines(&some(&kernel, Missing::NoPermission));
    assert_eq!(user_only.len(), 1);
    assert!(user_only[0].contains("user mode only"));
    let odd = lines(&some(&[CounterKind::DtlbMisses], Missing::NoPmu));
    assert_eq!(odd.len(), 2);
    assert!(odd[1].contains("does not count dTLB misses:"), "{odd:?}");
}

/// Goal: misses of either cache are enough.
#[test]
fn one_cache_stands_for_the_other() {
    assert_eq!(
        lines(&some(&[CounterKind::L1dMisses], Missing::NoPmu)).len(),
        1
    );
    assert_eq!(
        lines(&some(&[CounterKind::CacheMisses], Missing::NoPmu)).len(),
        1
    );
    let both = [CounterKind::L1dMisses, CounterKind::CacheMisses];
    assert!(lines(&some(&both, Missing::NoPmu))[1].contains("cache misses"));
}

#[test]
fn errors_are_sorted_by_what_helps() {
    for (errno, missing) in [
        (2, Missing::NoPmu),
        (95, Missing::NoPmu),
        (13, Missing::NoPermission),
        (1, Missing::NoPermission),
        (38, Missing::NoPermission),
        (24, Missing::Other(24)),
    ] {
        assert_eq!(Missing::of(&io::Error::from_raw_os_error(errno)), missing);
    }
    // Errors without a number of the system's.
    for (kind, missing) in [
        (io::ErrorKind::PermissionDenied, Missing::NoPermission),
        (io::ErrorKind::NotFound, Missing::NoPmu),
        (io::ErrorKind::Other, Missing::Other(5)),
    ] {
        assert_eq!(Missing::of(&io::Error::new(kind, "of a file")), missing);
    }
    assert_eq!(
        Missing::of(&io::Error::from_raw_os_error(0)),
        Missing::Other(5)
    );
}

use super::*;
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn scaling() {
    let plain = |count| Scaled {
        count: Some(count),
        multiplexed: false,
    };
    assert_eq!(Scaled::of(0, 0, 0), plain(0));
    assert_eq!(Scaled::of(7, 1_000_000, 1_000_000), plain(7));
    assert_eq!(Scaled::of(7, 1_000_000, 999_500), plain(7));
    assert_eq!(
        Scaled::of(100, 1_000, 500),
        Scaled {
            count: Some(200),
            multiplexed: true
        }
    );
    assert_eq!(
        Scaled::of(0, 1_000, 0),
        Scaled {
            count: None,
            multiplexed: true
        }
    );
    assert_eq!(Scaled::of(u64::MAX, 1_000, 1).count, Some(u64::MAX));
}

/// Goal: a phase is scaled by its own share of the counter. A start that was counted in full and had
/// ten times the misses of a second of the phase once made four times as many of the phase's.
#[test]
fn a_phase_is_scaled_by_itself() {
    let at = |count, enabled, running| Reading {
        count,
        enabled,
        running,
    };
    let mut sum = Sum::default();
    assert_eq!(sum.add(at(0, 0, 0)).count, Some(0));
    let start = sum.add(at(1_000, 10_000, 10_000));
    assert_eq!((start.count, start.multiplexed), (Some(1_000), false));
    // Half of the time, 50 of 100.
    let phase = sum.add(at(1_050, 20_000, 15_000));
    assert_eq!((phase.count, phase.multiplexed), (Some(1_100), true));
    // Nothing happened at all: that is known.
    assert_eq!(sum.add(at(1_050, 20_000, 15_000)).count, Some(1_100));
    // Something did, and the counter had no turn: that is not zero, and comes with the next stretch.
    assert_eq!(sum.add(at(1_050, 30_000, 15_000)).count, None);
    assert_eq!(sum.add(at(1_075, 40_000, 20_000)).count, Some(1_200));
}

#[test]
fn differences() {
    let start = CounterValues {
        user_cycles: Some(5),
        page_faults: Some(9),
        ..Default::default()
    };
    let end = CounterValues {
        user_cycles: Some(25),
        page_faults: None,
        scaled: 1 << CounterKind::DtlbMisses as u32,
        ..Default::default()
    };
    let delta = end.since(&start);
    assert_eq!((delta.user_cycles, delta.page_faults), (Some(20), None));
    let is_scaled = CounterKind::ALL.map(|kind| delta.is_scaled(kind));
    let expected = CounterKind::ALL.map(|kind| kind == CounterKind::DtlbMisses);
    assert_eq!(is_scaled, expected);
}

/// Goal: counting begins at exec, includes what the program starts, and where the kernel gives
/// nothing one line says so instead of a failure.
#[test]
fn counts_a_child_and_its_children_from_exec_on() {
    let mut child = Command::new("sh")
        .args(["-c", "read go; exec sh -c '(:; :) & wait; true | true'"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut counters = CounterSet::attach(child.id(), CountFrom::Exec);
    let before = counters.read();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    let counted = counters.read().since(&before);
    for (kind, missing) in &counters.missing {
        eprintln!("{kind:?} missing: {missing:?}");
    }
    for (kind, ..) in &counters.counters {
        // So short a program may well stay on its CPU, and keep its memory.
        let may_be_zero = [CounterKind::Migrations, CounterKind::Madvise].contains(kind);
        assert!(
            may_be_zero || counted.get(*kind).is_none_or(|count| count > 0),
            "{kind:?}: {counted:?}"
        );
    }
    assert!(
        before.task_clock_ns.is_none_or(|time| time == 0),
        "{before:?}"
    );
    assert!(!counters.describe().is_empty());
}

/// Goal: calls of `madvise` are counted one by one, where the kernel shows its tracepoints.
#[test]
fn madvise_is_counted() {
    let program = "import mmap\ninput()\nm = mmap.mmap(-1, 4096)\n\
        for _ in range(1000): m.madvise(mmap.MADV_DONTNEED)\ninput()\n";
    let mut child = Command::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut counters = CounterSet::attach(child.id(), CountFrom::Now);
    let mut orders = child.stdin.take().unwrap();
    orders.write_all(b"go\nend\n").unwrap();
    drop(orders);
    assert!(child.wait().unwrap().success());
    match counters.read().madvise_calls {
        Some(calls) => assert!((1_000..1_100).contains(&calls), "{calls}"),
        None => assert!(!counters.counts(CounterKind::Madvise)),
    }
}

/// Goal: where the kernel refuses, whatever it refuses, attaching works, nothing has a value that
/// was not counted, and the lines name each loss.
#[test]
fn refusals_leave_no_values() {
    let refusal = |number: i32| {
        let refused = move |_| Err(io::Error::from_raw_os_error(number));
        let mut set = CounterSet::attach_by(&refused);
        assert_eq!(set.read(), CounterValues::default());
        assert!(!set.has_instructions());
        set.lines()
    };
    let (no_event, no_permission, no_call) = (2, 13, 38);
    assert!(refusal(no_event)[0].contains("virtual machines"));
    assert!(refusal(no_permission)[0].contains("perf_event_paranoid"));
    assert_eq!(refusal(no_call).len(), 2);
}

/// Goal: a virtual machine without a PMU keeps the kernel's own counts; a PMU that lacks one event
/// loses that one only.
#[test]
fn what_is_refused_costs_the_others_nothing() {
    let pid = std::process::id();
    let with = |lost: &'static [CounterKind]| {
        CounterSet::attach_by(&move |kind| {
            if lost.contains(&kind) {
                return Err(io::Error::from_raw_os_error(2));
            }
            // A software event instead of a hardware one: there need not be a PMU here.
            let stand_in = if kind.is_hardware() {
                CounterKind::TaskClock
            } else {
                kind
            };
            open(pid, stand_in, CountFrom::Now)
        })
    };
    let complete = with(&[]);
    if !complete.counts(CounterKind::TaskClock) {
        eprintln!("skipped: {}", complete.describe());
        return;
    }
    assert!(!complete.counts(CounterKind::CacheMisses), "L1d is enough");
    assert_eq!(complete.lines().len(), 1, "{:?}", complete.lines());
    let without_l1d = with(&[CounterKind::L1dMisses]);
    assert!(without_l1d.counts(CounterKind::CacheMisses));
    let mut without_tlb = with(&[CounterKind::DtlbMisses]);
    assert!(without_tlb.lines()[1].contains("dTLB"));
    let values = without_tlb.read();
    assert!(values.dtlb_misses.is_none() && values.branch_misses.is_some());
    let hardware = [
        CounterKind::UserInstructions,
        CounterKind::UserCycles,
        CounterKind::KernelInstructions,
        CounterKind::KernelCycles,
        CounterKind::BranchMisses,
        CounterKind::L1dMisses,
        CounterKind::CacheMisses,
        CounterKind::DtlbMisses,
    ];
    let leaked: &'static [CounterKind] = Box::leak(Box::new(hardware));
    let mut no_pmu = with(leaked);
    assert!(no_pmu.read().task_clock_ns.is_some());
    assert!(no_pmu.describe().contains("virtual machines"));
}

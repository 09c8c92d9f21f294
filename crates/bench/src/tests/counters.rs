use super::*;
use perf_event::events::Software;

/// Goal: a group counts what happens between start and stop and nothing else; with events that
/// every kernel has, so that it is tested where there is no PMU.
#[test]
fn a_group_counts_between_start_and_stop() {
    let Ok(mut group) = EventGroup::open([Software::PAGE_FAULTS, Software::TASK_CLOCK]) else {
        eprintln!("perf_event_open is forbidden here: nothing to test");
        return;
    };
    group.group.reset().unwrap();
    group.group.enable().unwrap();
    let touched = vec![1_u8; 16 << 20];
    let [faults, clock_ns] = group.stop().unwrap();
    assert!(faults >= 1 && clock_ns > 0, "{faults} {clock_ns}");
    let more = vec![2_u8; 16 << 20];
    assert_eq!(group.stop().unwrap()[0], faults);
    drop((touched, more));
}

/// Goal: without counters there is a sentence, and with them counts that are not zero.
#[test]
fn absence_is_a_sentence() {
    let mut counters = Counters::of_this_thread();
    counters.start();
    let sum: u64 = std::hint::black_box((0..10_000_u64).sum());
    match (available(), counters.stop()) {
        (Ok(()), Some(counts)) => assert!(counts.instructions > 1_000, "{counts:?} {sum}"),
        (Ok(()), None) => eprintln!("the counters were shared with somebody else"),
        (Err(sentence), counts) => {
            assert!(sentence.contains("bench-suite"), "{sentence}");
            assert_eq!(counts, None);
        }
    }
}

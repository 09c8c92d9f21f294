use super::*;
use crate::outcome::InFlight;

fn answer(
    batches: &mut Batches,
    index: u32,
    [intended_ns, written_ns, now_ns]: [u64; 3],
    next_written_ns: Option<u64>,
    is_right: bool,
) {
    let request = InFlight {
        intended_ns,
        written_ns,
        counted: true,
        ..InFlight::default()
    };
    let answered = Answered {
        request: &request,
        status: 200,
        is_right,
        connect_ns: 0,
        head_ns: now_ns,
        now_ns,
        next_written_ns,
    };
    batches.answered(index, &answered);
}

/// Goal: one sample a batch, from its first request's start to its last response, whatever other
/// connections do, and none of a batch with a wrong response or a lost end.
#[test]
fn batches_are_timed_as_a_whole() {
    let mut batches = Batches::new(2);
    answer(&mut batches, 0, [10, 20, 100], Some(20), true);
    answer(&mut batches, 1, [10, 21, 150], None, true);
    answer(&mut batches, 0, [12, 20, 120], Some(20), true);
    answer(&mut batches, 0, [14, 20, 170], Some(0), true);
    let times = |clock: &LatencyHistogram| (clock.count(), clock.min(), clock.max());
    assert_eq!(times(&batches.clocks.response), (2, 140, 160));
    assert_eq!(times(&batches.clocks.service), (2, 129, 150));
    // A wrong response in the middle, then a batch whose connection was lost, then a whole one.
    answer(&mut batches, 0, [30, 30, 35], Some(30), true);
    answer(&mut batches, 0, [30, 30, 36], Some(30), false);
    answer(&mut batches, 0, [30, 30, 37], None, true);
    answer(&mut batches, 0, [40, 40, 45], Some(40), true);
    answer(&mut batches, 0, [50, 50, 57], None, true);
    assert_eq!(times(&batches.clocks.service), (3, 7, 150));
}

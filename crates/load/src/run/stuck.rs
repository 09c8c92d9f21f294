//! Threads whose script does not come back: the run goes on to its results without them.
//!
//! On the path: only at the end of a run with a script. A loop that LuaJIT has compiled looks at
//! nothing from outside, so nobody can end it; but what its thread handed over at the end of each second is
//! here, and all that the other threads have measured. Absent on purpose: ending the thread. Who is
//! shown the record may end the process.
use super::{WorkerEnd, WorkerHandle, join};
use crate::outcome::{Outcome, add_errors};
use crate::record::LoadRecord;
use crate::timeline::{Lost, Timeline};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// How long a thread may take to notice that the run is over.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Waits until all have ended, but not for ever. True: they have.
pub(super) fn all_ended(workers: &[WorkerHandle<'_>]) -> bool {
    let give_up = Instant::now() + PATIENCE;
    while !workers.iter().all(ScopedJoinHandle::is_finished) {
        if Instant::now() >= give_up {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// The ends of those that have ended, and what the others had handed over until then.
pub(super) fn part(
    workers: Vec<WorkerHandle<'_>>,
    timeline: &mut Timeline<'_>,
) -> (Vec<WorkerEnd>, Vec<Lost>) {
    let (mut ends, mut lost) = (Vec::new(), Vec::new());
    for (place, worker) in workers.into_iter().enumerate() {
        if worker.is_finished() {
            // Of a thread that failed nothing is known.
            ends.extend(join(worker));
        } else {
            lost.push(timeline.give_up_on(place));
        }
    }
    (ends, lost)
}

/// Adds what is known of those that are lost, but for their clocks, which the seconds hold.
pub(super) fn add(total: &mut Outcome, lost: &[Lost]) {
    for Lost { counts, answers } in lost {
        add_errors(&mut total.errors, &counts.errors);
        total.sent += counts.sent;
        total.shed += counts.shed;
        total.received_bytes += counts.received_bytes;
        total.rate_bytes += counts.received_bytes;
        total.answered_in_window += answers;
    }
}

/// What they had sent and never told of is under way as far as anybody knows.
pub(super) fn close(record: &mut LoadRecord, lost: usize) {
    if lost == 0 {
        return;
    }
    record.threads += lost;
    record.stuck_threads = lost;
    let failed = record.errors.total() - record.errors.connect - record.unsent;
    record.abandoned = record.sent.saturating_sub(record.requests + failed);
}

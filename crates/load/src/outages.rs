//! Times without a target, in a run that continues through them: since when, how long, and what failed meanwhile.
//!
//! A server that closes each connection after its response leaves moments without a connection, too. So an outage is a
//! time in which none was open and an attempt to open one failed. All here is for connections that are lost or opened;
//! runs that end with their target do not come here.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::record::LoadOutage;
use rustix::time::{ClockId, clock_gettime};

use crate::connection_plan::TargetWatch;
use crate::timeline::Clocks;

/// Outages kept one by one; further ones are added to the last.
const OUTAGES_MAX: usize = 1_000;

/// The shared view of outages of all threads.
#[derive(Debug, Default)]
pub(crate) struct Outages(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    /// Connections that are open.
    open: usize,
    /// Connections were lost, or attempts failed, and none was opened since.
    losing: Option<Losing>,
    ended: Vec<Ended>,
    /// Attempts that failed while others had their connections.
    other_attempts: u64,
}

#[derive(Clone, Copy, Debug)]
struct Losing {
    since_ns: u64,
    /// Requests that failed with connections.
    failed: u64,
    attempts: u64,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    start_ns: u64,
    end_ns: u64,
    failed: u64,
    attempts: u64,
}

impl Outages {
    fn change<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A connection came up.
    pub(crate) fn connected(&self, now_ns: u64) {
        self.change(|log| {
            if let Some(losing) = log.losing.take() {
                log.end(losing, now_ns);
            }
            log.open += 1;
        });
    }

    /// A connection has ended, and with it `failed` requests.
    pub(crate) fn lost(&self, now_ns: u64, failed: u64) {
        self.change(|log| {
            log.open = log.open.saturating_sub(1);
            log.losing_since(now_ns).failed += failed;
        });
    }

    /// An attempt to open a connection failed. Whether that is a part of an outage is known when it ends.
    pub(crate) fn attempt_failed(&self, now_ns: u64) {
        self.change(|log| log.losing_since(now_ns).attempts += 1);
    }

    /// Attempts that failed outside of outages: those are failures.
    pub(crate) fn other_attempts(&self) -> u64 {
        self.change(|log| {
            let last = log.losing.filter(|_| log.open > 0);
            log.other_attempts + last.map_or(0, |losing| losing.attempts)
        })
    }

    /// A request that was due at `intended_ns` waited for a connection until it was of no use any more.
    pub(crate) fn expired(&self, intended_ns: u64) {
        self.change(|log| {
            let mut newest_first = log.ended.iter_mut().rev();
            if let Some(outage) = newest_first.find(|one| one.start_ns <= intended_ns) {
                outage.failed += 1;
            }
        });
    }

    /// All of them, from `start_ns` on. One that lasts until `end_ns` has the requests too that never left.
    pub(crate) fn list(&self, start_ns: u64, end_ns: u64, unsent: u64) -> Vec<LoadOutage> {
        self.change(|log| {
            let shown = |one: &Ended, is_over| LoadOutage {
                start_ns: one.start_ns.saturating_sub(start_ns),
                duration_ns: one.end_ns.saturating_sub(one.start_ns.max(start_ns)),
                failed: one.failed,
                attempts: one.attempts,
                is_over,
            };
            let mut outages: Vec<LoadOutage> =
                log.ended.iter().map(|one| shown(one, true)).collect();
            if let Some(losing) = log.losing
                && log.open == 0
                && losing.attempts > 0
                && losing.since_ns < end_ns
            {
                let last = Ended {
                    start_ns: losing.since_ns,
                    end_ns,
                    failed: losing.failed + unsent,
                    attempts: losing.attempts,
                };
                outages.push(shown(&last, false));
            }
            outages
        })
    }
}

impl Log {
    fn losing_since(&mut self, now_ns: u64) -> &mut Losing {
        self.losing.get_or_insert(Losing {
            since_ns: now_ns,
            failed: 0,
            attempts: 0,
        })
    }

    /// A connection stands again.
    fn end(&mut self, losing: Losing, now_ns: u64) {
        if self.open > 0 {
            self.other_attempts += losing.attempts;
        } else if losing.attempts > 0 {
            self.push(Ended {
                start_ns: losing.since_ns,
                end_ns: now_ns,
                failed: losing.failed,
                attempts: losing.attempts,
            });
        }
    }

    fn push(&mut self, outage: Ended) {
        let is_full = self.ended.len() >= OUTAGES_MAX;
        match self.ended.last_mut() {
            Some(last) if is_full => {
                last.end_ns = outage.end_ns;
                last.failed += outage.failed;
                last.attempts += outage.attempts;
            }
            _ => self.ended.push(outage),
        }
    }
}

// Times at which others kept a thread of the generator or the target from its CPU, and the responses outside of them.
//
// Another program that wakes, or a hypervisor, takes a CPU for 0.1 to 10 ms a few times a second. What was due in that
// time leaves late, what arrived is seen late, and the target gets all of it at once afterwards. If that is more than
// one request in a hundred, the p99 is that of the machine and says nothing of the target. So a generator thread
// compares the clock with its previous reading: awake it reads the clock every few microseconds, and asleep it knows
// its intended wake-up time. A target that pauses makes no such stall: the thread sleeps until a response comes. For
// the target, the kernel reports how long its threads waited for others ([`crate::TargetThreads`]).
//
// Only right where the target has other CPUs: on a common one, a stall is the target at work.

/// A thread at work reads the clock more often than this.
const STALL_NS_MIN: u64 = 50_000;
/// Requests that became due meanwhile are sent at once and have to be worked off: at half load, that takes as long
/// again. So many times the stall's length is left out after it.
const RECOVERY: u64 = 2;

/// The clocks of the responses that no stall touched.
#[derive(Clone, Debug, Default)]
pub struct Undisturbed {
    /// From the intended start to the last byte.
    pub response: LatencyHistogram,
    /// From the actual write to the last byte.
    pub service: LatencyHistogram,
    /// From the intended start, or the moment from which a connection was free, to the actual write, of the requests that
    /// were due outside of stalls.
    pub lateness: LatencyHistogram,
    /// Right responses to requests that were on their way during a stall, or in the time after it.
    pub left_out: u64,
    /// Length of all stalls, of all threads together.
    pub stalled_ns: u64,
}

impl Undisturbed {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.lateness.merge(&other.lateness);
        self.left_out += other.left_out;
        self.stalled_ns += other.stalled_ns;
    }
}

/// One thread's watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct StallWatch {
    looked_ns: u64,
    /// The last one, with the time after it; before the first, none: both are 0.
    from_ns: u64,
    until_ns: u64,
    target: Option<TargetWatch>,
    pub(crate) undisturbed: Undisturbed,
}

impl StallWatch {
    pub(crate) fn of_target(target: Option<TargetWatch>) -> Self {
        Self {
            target,
            ..Self::default()
        }
    }

    /// The thread is awake at `now_ns`, having wanted to sleep until `due_ns` at most; `has_events`: something came.
    pub(crate) fn woke(&mut self, due_ns: Option<u64>, has_events: bool, now_ns: u64) {
        let by_design_ns = due_ns.unwrap_or(now_ns).min(now_ns);
        self.looked_ns = self.looked_ns.max(by_design_ns);
        self.look(now_ns);
        let kept = self
            .target
            .as_mut()
            .and_then(|target| target.look(has_events, now_ns));
        if let Some(kept) = kept {
            self.note(kept.from_ns, now_ns, kept.length_ns);
        }
    }

    /// The thread is at work at `now_ns`.
    #[inline]
    pub(crate) fn look(&mut self, now_ns: u64) {
        let gap_ns = now_ns.saturating_sub(self.looked_ns);
        if gap_ns >= STALL_NS_MIN && self.looked_ns > 0 {
            self.note(self.looked_ns, now_ns, gap_ns);
        }
        self.looked_ns = now_ns;
    }

    #[cold]
    fn note(&mut self, from_ns: u64, to_ns: u64, length_ns: u64) {
        self.from_ns = match from_ns > self.until_ns {
            true => from_ns,
            false => self.from_ns.min(from_ns),
        };
        self.until_ns = self.until_ns.max(to_ns + RECOVERY * length_ns);
        self.undisturbed.stalled_ns += length_ns;
    }

    /// Requests that were due at `intended_ns` leave `late_ns` after that, or after a connection was free.
    #[inline]
    pub(crate) fn sent(&mut self, intended_ns: u64, late_ns: u64, count: u64) {
        if intended_ns >= self.until_ns {
            self.undisturbed.lateness.record_many(late_ns, count);
        }
    }

    /// Responses are complete. A request that was due before the end of the last stall, and has its response after its
    /// begin, met it; an earlier stall is over for requests that did not.
    #[inline]
    pub(crate) fn answered(
        &mut self,
        (intended_ns, written_ns): (u64, u64),
        last_byte_ns: u64,
        count: u64,
    ) {
        if intended_ns < self.until_ns && last_byte_ns > self.from_ns {
            self.undisturbed.left_out += count;
            return;
        }
        let clocks = &mut self.undisturbed;
        clocks
            .response
            .record_many(last_byte_ns - intended_ns, count);
        clocks.service.record_many(last_byte_ns - written_ns, count);
    }
}

// Whether a warm-up may end: throughput and median response time no longer change.
//
// 1. MSER (White 1997; MSER-5 with a slice instead of five observations): of all beginnings
//    that could be cut off, the one that leaves the smallest standard error of the mean. It has to
//    lie in the first half, or the end of the transient has not been seen.
// 2. Mann-Kendall (1945), without a trend at 5 %, over what that leaves: MSER by itself is blind to
//    a slow drift below the noise.
//
// Both have to hold for both series, of at least sixteen slices, four times in a row: a test that
// is repeated until it passes would pass by chance. A slice is a quarter of a second, or as many
// quarters as it takes for ten responses. A server that stays slow is steady.

/// The length of a slice.
pub(crate) const SLICE_NS: u64 = 250_000_000;
/// Responses without which a mean says little.
const ANSWERS_MIN: u64 = 10;
/// Slices without which nothing is decided: 4 s.
const SLICES_MIN: usize = 16;
/// Slices in a row that have to leave the series steady.
const HOLDS_MIN: usize = 4;
/// Slices that are kept: a minute.
const SLICES_MAX: usize = 240;
/// Slices that MSER leaves at least: a few at the end may be alike by chance.
const KEPT_MIN: usize = 5;
/// Two-sided, 5 %.
const TREND_Z: f64 = 1.96;

/// Means of slices so far.
#[derive(Debug, Default)]
pub(crate) struct Steadiness {
    rates: VecDeque<f64>,
    medians: VecDeque<f64>,
    lengths_ns: VecDeque<u64>,
    /// The slice that has too few responses yet.
    open: LatencyHistogram,
    open_ns: u64,
    /// Time that is no longer considered.
    forgotten_ns: u64,
    /// How often in a row the rule has held, and the transient that it found last.
    holds: usize,
    found_ns: u64,
}

impl Steadiness {
    /// A quarter of a second has ended.
    pub(crate) fn quarter(&mut self, duration_ns: u64, clocks: &Clocks) {
        self.open.merge(&clocks.response);
        self.open_ns += duration_ns;
        if self.open.count() < ANSWERS_MIN || self.open_ns == 0 {
            return;
        }
        let per_s = self.open.count() as f64 * 1e9 / self.open_ns as f64;
        self.add(per_s, self.open.percentile(50.0) as f64);
    }

    fn add(&mut self, per_s: f64, median_ns: f64) {
        if self.rates.len() == SLICES_MAX {
            self.rates.pop_front();
            self.medians.pop_front();
            self.forgotten_ns += self.lengths_ns.pop_front().unwrap_or_default();
        }
        self.rates.push_back(per_s);
        self.medians.push_back(median_ns);
        self.lengths_ns.push_back(self.open_ns);
        self.open.clear();
        self.open_ns = 0;
        self.holds = match self.find_transient_ns() {
            Some(found_ns) => {
                self.found_ns = found_ns;
                self.holds + 1
            }
            None => 0,
        };
    }

    /// How many slices there are to judge by.
    pub(crate) fn slices(&self) -> usize {
        self.rates.len()
    }

    /// How long throughput or response time changed at the beginning; `None`: they still may.
    pub(crate) fn transient_ns(&self) -> Option<u64> {
        (self.holds >= HOLDS_MIN).then_some(self.found_ns)
    }

    /// The rule, over the slices that are there.
    fn find_transient_ns(&mut self) -> Option<u64> {
        if self.rates.len() < SLICES_MIN {
            return None;
        }
        let mut cut = 0;
        for series in [&mut self.rates, &mut self.medians] {
            let series = &*series.make_contiguous();
            let transient = mser(series);
            if transient > series.len() / 2 || trend_z(&series[transient..]).abs() > TREND_Z {
                return None;
            }
            cut = cut.max(transient);
        }
        let cut_ns: u64 = self.lengths_ns.iter().take(cut).sum();
        Some(if cut == 0 {
            0
        } else {
            self.forgotten_ns + cut_ns
        })
    }
}

/// How many values to cut off the front so that the squared standard error of the mean of the rest
/// is smallest; the first such number.
fn mser(series: &[f64]) -> usize {
    let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    // Around the last value, so that small spreads of large values are not lost in rounding.
    let origin = series.last().copied().unwrap_or_default();
    for (cut, value) in series.iter().enumerate().rev() {
        let value = value - origin;
        sum += value;
        squares += value * value;
        count += 1.0;
        let spread = f64::max(squares - sum * sum / count, 0.0);
        let error = spread / (count * count);
        if series.len() - cut >= KEPT_MIN && error <= best.0 {
            best = (error, cut);
        }
    }
    best.1
}

/// Mann-Kendall's Z, corrected for ties: far from 0 if later values tend to be larger, or smaller.
fn trend_z(series: &[f64]) -> f64 {
    let sign = |one: &f64, other: &f64| f64::from(i8::from(other > one) - i8::from(other < one));
    let later = |place: usize| series[place + 1..].iter();
    let places = series.iter().enumerate();
    let s: f64 = places
        .map(|(place, one)| later(place).map(|other| sign(one, other)).sum::<f64>())
        .sum();
    let pairs = |count: f64| count * (count - 1.0) * (2.0 * count + 5.0);
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    let ties = sorted.chunk_by(|one, other| one == other);
    let tied: f64 = ties.map(|group| pairs(group.len() as f64)).sum();
    let variance = (pairs(series.len() as f64) - tied) / 18.0;
    if variance <= 0.0 {
        return 0.0;
    }
    (s.abs() - 1.0).max(0.0) * s.signum() / variance.sqrt()
}

// How busy a generator thread is. Time spent polling for responses (`--busy-poll`) is free time: the thread would have
// slept.

/// CPU time of the calling thread over wall time, between the first and the last sample.
#[derive(Debug, Default)]
pub(crate) struct CpuShare {
    first: Option<(u64, u64)>,
    last: (u64, u64),
}

impl CpuShare {
    /// Reads the calling thread's CPU clock, which is a system call: not per request. `spun_ns` is
    /// how long it has polled for responses so far.
    pub(crate) fn sample(&mut self, now_ns: u64, spun_ns: u64) {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        // Neither part of a thread's CPU time is ever negative.
        let cpu_ns = cpu.tv_sec.cast_unsigned() * 1_000_000_000 + cpu.tv_nsec.cast_unsigned();
        // A thread that lost its CPU while it polled has used less CPU time than the elapsed time.
        self.last = (now_ns, cpu_ns.saturating_sub(spun_ns));
        self.first.get_or_insert(self.last);
    }

    /// 0 to 1; 0 before two samples.
    pub(crate) fn share(&self) -> f64 {
        let Some((first_ns, first_cpu_ns)) = self.first else {
            return 0.0;
        };
        let (wall_ns, cpu_ns) = (
            self.last.0 - first_ns,
            self.last.1.saturating_sub(first_cpu_ns),
        );
        if wall_ns == 0 {
            0.0
        } else {
            cpu_ns as f64 / wall_ns as f64
        }
    }
}

#[cfg(test)]
#[path = "tests/outages.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/stalls.rs"]
mod stalls_tests;

#[cfg(test)]
#[path = "tests/steadiness.rs"]
mod steadiness_tests;

//! Who sends which arrival: closed loop, or one arrival process fixed before the run.
//!
//! On the path: `run` makes one schedule when every connection is up; each `worker` claims the next
//! arrival from it while it has a free connection. All threads draw from the same process through
//! one atomic index, so a stalled connection or thread never keeps arrivals that others could send.
//! Absent on purpose: the moments themselves (`arrivals`), a catch-up limit and any look at
//! completions. An arrival that could not be
//! sent in time stays due at its intended start, which is what makes a stall visible.
use crate::arrivals::{Arrivals, Cursor, Rate};
use crate::steadiness::SLICE_NS;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SECOND_NS: u64 = 1_000_000_000;

/// What makes a request due.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// The next request leaves as soon as a connection is free.
    Closed,
    /// Requests are due when an arrival process says so, whatever the answers do.
    Open(Arc<Arrivals>),
}

/// One request that is due: now, or at its intended start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Arrival {
    /// Counts from 0 in each phase, or from the schedule's origin; a key or a body is derived from it.
    pub number: u64,
    /// When the schedule says it leaves. 0 in a closed loop: the write itself is the start.
    pub intended_ns: u64,
    /// False during warm-up.
    pub counted: bool,
}

/// How much of the run earlier sets of connections have had; the schedule goes on behind it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Origin {
    /// Counted requests.
    pub requests: u64,
    /// Time of the arrival process. What lies between two sets is not in it.
    pub time_ns: u64,
}

/// Requests of a closed loop that are due at once, numbered in a row.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Run {
    pub(crate) first: Arrival,
    pub(crate) count: u64,
}

/// Warm-up and window in absolute time, and the one index all threads share.
///
/// Invariant: an index is handed out at most once, and in an open loop the intended start is a pure
/// function of it.
#[derive(Debug)]
pub struct Schedule {
    pace: Pace,
    origin: Origin,
    start_ns: u64,
    /// `u64::MAX` until it is known when the warm-up ends.
    window_start_ns: AtomicU64,
    /// `u64::MAX` when only a count ends the run.
    duration_ns: u64,
    /// What the warm-up is cut into.
    warm_up_cut_ns: u64,
    /// `u64::MAX` when only time ends the run.
    requests_max: u64,
    /// Open loop: evenly spaced arrivals before the window.
    warm_up_rate: Option<Rate>,
    /// The next counted arrival.
    next: AtomicU64,
    warm_up_next: AtomicU64,
    /// When the rate's window ends because nothing is left to ask, once that is known.
    rate_end_ns: AtomicU64,
    /// Open loop: the first indices that are never handed out, as far as known.
    open_end: AtomicU64,
    warm_up_end: AtomicU64,
}

impl Schedule {
    /// A schedule that begins at `start_ns` with `warm_up_ns` uncounted, then counts requests until
    /// `duration_ns` of window or `requests_max` requests, whichever is first.
    pub fn new(
        pace: Pace,
        start_ns: u64,
        warm_up_ns: u64,
        duration_ns: Option<u64>,
        requests_max: Option<u64>,
    ) -> Self {
        let window_start_ns = start_ns.saturating_add(warm_up_ns);
        let requests_max = requests_max.unwrap_or(u64::MAX);
        let (mut warm_up_rate, mut warm_up_end, mut counted_max) = (None, 0, requests_max);
        if let Pace::Open(arrivals) = &pace {
            warm_up_rate = arrivals.first_rate();
            warm_up_end = warm_up_rate.map_or(0, |rate| rate.arrivals_before(warm_up_ns));
            // Of other processes the end is known when someone gets there.
            if let (Some(rate), Some(span_ns)) = (arrivals.steady_rate(), duration_ns) {
                counted_max = counted_max.min(rate.arrivals_before(span_ns));
            }
        }
        Self {
            pace,
            origin: Origin::default(),
            start_ns,
            window_start_ns: AtomicU64::new(window_start_ns),
            duration_ns: duration_ns.unwrap_or(u64::MAX),
            warm_up_cut_ns: SECOND_NS,
            requests_max,
            warm_up_rate,
            next: AtomicU64::new(0),
            warm_up_next: AtomicU64::new(0),
            rate_end_ns: AtomicU64::new(u64::MAX),
            open_end: AtomicU64::new(counted_max),
            warm_up_end: AtomicU64::new(warm_up_end),
        }
    }

    /// The same behind `origin`: numbers and the arrival process go on there. For a schedule that nobody has
    /// claimed from.
    pub(crate) fn behind(self, origin: Origin) -> Self {
        let mut counted_max = self.requests_max;
        if let Pace::Open(arrivals) = &self.pace
            && let (Some(rate), true) = (arrivals.steady_rate(), self.duration_ns != u64::MAX)
        {
            let end_ns = origin.time_ns.saturating_add(self.duration_ns);
            let before = rate.arrivals_before(end_ns);
            counted_max = counted_max.min(before.saturating_sub(origin.requests));
        }
        Self {
            origin,
            open_end: AtomicU64::new(counted_max),
            ..self
        }
    }

    /// The same with a warm-up that lasts until [`Self::begin_window`].
    pub(crate) fn warming_up(self) -> Self {
        let warm_up_end = if self.warm_up_rate.is_some() {
            u64::MAX
        } else {
            0
        };
        Self {
            window_start_ns: AtomicU64::new(u64::MAX),
            warm_up_cut_ns: SLICE_NS,
            warm_up_end: AtomicU64::new(warm_up_end),
            ..self
        }
    }

    /// Ends the warm-up of [`Self::warming_up`]: counting begins at the end of a slice, so far ahead
    /// that every thread sees it before. Says when.
    pub(crate) fn begin_window(&self, not_before_ns: u64) -> u64 {
        let slices = (not_before_ns - self.start_ns).div_ceil(self.warm_up_cut_ns);
        let window_start_ns = self.start_ns + slices * self.warm_up_cut_ns;
        // A thread that sees it needs to see nothing else.
        self.window_start_ns
            .store(window_start_ns, Ordering::Relaxed);
        window_start_ns
    }

    /// What the warm-up is cut into.
    pub(crate) fn warm_up_cut_ns(&self) -> u64 {
        self.warm_up_cut_ns
    }

    /// When warm-up begins.
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// When counting begins; `u64::MAX`: that is not known yet.
    #[inline]
    pub fn window_start_ns(&self) -> u64 {
        self.window_start_ns.load(Ordering::Relaxed)
    }

    #[inline]
    fn raw_window_end_ns(&self) -> u64 {
        self.window_start_ns().saturating_add(self.duration_ns)
    }

    /// When the last arrival must have been due; `None` if only a count ends the run.
    pub fn window_end_ns(&self) -> Option<u64> {
        let window_end_ns = self.raw_window_end_ns();
        (window_end_ns != u64::MAX).then_some(window_end_ns)
    }

    /// The number of counted requests that end the run; `None` if only time ends it.
    pub fn requests_max(&self) -> Option<u64> {
        (self.requests_max != u64::MAX).then_some(self.requests_max)
    }

    /// What makes requests due.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Takes the next arrival, which the caller must send or account for. `None`: no more will
    /// come. An arrival of an open loop may lie in the future; the caller waits for it with a
    /// connection in hand, so idle threads do not all wake for the same arrival. In an open loop
    /// `cursor` walks the process of this schedule's pace, and belongs to the calling thread.
    pub(crate) fn claim(&self, now_ns: u64, cursor: Option<&mut Cursor<'_>>) -> Option<Arrival> {
        match cursor {
            None => self.claim_closed(now_ns),
            Some(cursor) => self.claim_open(cursor),
        }
    }

    fn claim_closed(&self, now_ns: u64) -> Option<Arrival> {
        let run = self.claim_run(now_ns, 1)?;
        Some(run.first)
    }

    /// Takes up to `count_max` requests of a closed loop, at least one. `None`: no more will come.
    pub(crate) fn claim_run(&self, now_ns: u64, count_max: u64) -> Option<Run> {
        let counted = now_ns >= self.window_start_ns();
        let (number, count) = if !counted {
            let number = self.warm_up_next.fetch_add(count_max, Ordering::Relaxed);
            (number, count_max)
        } else if now_ns < self.raw_window_end_ns() {
            take_many(&self.next, self.requests_max, count_max)?
        } else {
            return None;
        };
        let before = if counted { self.origin.requests } else { 0 };
        let first = Arrival {
            number: before + number,
            intended_ns: 0,
            counted,
        };
        Some(Run { first, count })
    }

    /// A connection is free and no request came of a claim. If that is because all that were asked for are taken,
    /// the rate's window of a closed loop ends. The clock is read here, right before all threads can see it, so
    /// that what they have counted until then is what came before.
    #[cold]
    pub(crate) fn found_none(&self, clock_ns: impl FnOnce() -> u64) {
        let is_over = self.pace == Pace::Closed
            && self.next.load(Ordering::Relaxed) >= self.requests_max
            && self.rate_end_ns() == u64::MAX;
        if is_over {
            self.rate_end_ns.fetch_min(clock_ns(), Ordering::Relaxed);
        }
    }

    /// When nothing was left to ask; `u64::MAX`: not yet, or time ends the run.
    #[inline]
    pub(crate) fn rate_end_ns(&self) -> u64 {
        self.rate_end_ns.load(Ordering::Relaxed)
    }

    /// Open loop: how much time of the arrival process the window is, as far as it has an end.
    pub(crate) fn process_time_ns(&self) -> Option<u64> {
        let end_ns = self.process_end_ns()?;
        Some(end_ns.saturating_sub(self.window_start_ns()))
    }

    /// Open loop: when the window of the arrival process ends, as far as it does.
    pub(crate) fn process_end_ns(&self) -> Option<u64> {
        let end_ns = self.rate_end_ns().min(self.raw_window_end_ns());
        (matches!(self.pace, Pace::Open(_)) && end_ns != u64::MAX).then_some(end_ns)
    }

    /// Whether an answer at `now_ns`, which lies in the window, counts for the rate.
    #[inline]
    pub(crate) fn is_before_rate_end(&self, now_ns: u64) -> bool {
        now_ns < self.rate_end_ns()
    }

    /// Whether `count` requests of a closed loop can be claimed, as far as their number goes.
    pub(crate) fn has_plenty(&self, count: u64) -> bool {
        let claimed = self.next.load(Ordering::Relaxed);
        self.requests_max.saturating_sub(claimed) >= count
    }

    fn claim_open(&self, cursor: &mut Cursor<'_>) -> Option<Arrival> {
        if let Some(arrival) = self.claim_warm_up() {
            return Some(arrival);
        }
        let index = take(&self.next, self.open_end.load(Ordering::Relaxed))?;
        let arrival = self.counted_arrival(index, cursor);
        if arrival.is_none() {
            self.open_end.fetch_min(index, Ordering::Relaxed);
        } else if index + 1 == self.requests_max
            && let Some(offset_ns) = self.offset_ns(self.requests_max, cursor)
        {
            let rate_end_ns = self.window_start_ns().saturating_add(offset_ns);
            self.rate_end_ns.store(rate_end_ns, Ordering::Relaxed);
        }
        arrival
    }

    /// The next arrival before the window, if there is one left.
    fn claim_warm_up(&self) -> Option<Arrival> {
        let number = take(&self.warm_up_next, self.warm_up_end.load(Ordering::Relaxed))?;
        let offset_ns = self.warm_up_rate.map_or(0, |rate| rate.offset_ns(number));
        let intended_ns = self.start_ns.saturating_add(offset_ns);
        if intended_ns >= self.window_start_ns() {
            self.warm_up_end.fetch_min(number, Ordering::Relaxed);
            return None;
        }
        Some(Arrival {
            number,
            intended_ns,
            counted: false,
        })
    }

    /// Whether an arrival that was claimed during warm-up would now leave in the window.
    pub(crate) fn is_outdated(&self, arrival: &Arrival) -> bool {
        !arrival.counted && arrival.intended_ns >= self.window_start_ns()
    }

    /// When arrival `index` of the window is meant to leave, after the window's start.
    fn offset_ns(&self, index: u64, cursor: &mut Cursor<'_>) -> Option<u64> {
        let Origin { requests, time_ns } = self.origin;
        let offset_ns = cursor.offset_ns(requests.saturating_add(index))?;
        Some(offset_ns.saturating_sub(time_ns))
    }

    /// Arrival `index` of the window, if it lies in it.
    fn counted_arrival(&self, index: u64, cursor: &mut Cursor<'_>) -> Option<Arrival> {
        let offset_ns = self.offset_ns(index, cursor)?;
        let intended_ns = self.window_start_ns().saturating_add(offset_ns);
        (intended_ns < self.raw_window_end_ns()).then_some(Arrival {
            number: self.origin.requests + index,
            intended_ns,
            counted: true,
        })
    }

    /// Whether `now_ns` is inside the window.
    pub fn is_in_window(&self, now_ns: u64) -> bool {
        self.window_start_ns() <= now_ns && now_ns < self.raw_window_end_ns()
    }

    /// Whether a claim has nothing more to give, now or later.
    pub fn is_exhausted(&self, now_ns: u64) -> bool {
        let claimed = self.next.load(Ordering::Relaxed);
        match self.pace {
            Pace::Closed => now_ns >= self.raw_window_end_ns() || claimed >= self.requests_max,
            Pace::Open(_) => {
                claimed >= self.open_end.load(Ordering::Relaxed)
                    && self.quiet_until_ns().is_none_or(|end_ns| now_ns >= end_ns)
            }
        }
    }

    /// Open loop: the end of the window, where it is time that ends it. That nothing is due any more in what is left
    /// of it is a part of the figures: a run of three seconds lasts so long at any rate.
    pub(crate) fn quiet_until_ns(&self) -> Option<u64> {
        let Pace::Open(arrivals) = &self.pace else {
            return None;
        };
        let left_ns = |span_ns: u64| span_ns.saturating_sub(self.origin.time_ns);
        let ends_by_itself = arrivals
            .span_ns()
            .is_some_and(|span_ns| left_ns(span_ns) < self.duration_ns);
        let ends_by_count = self.rate_end_ns() <= self.raw_window_end_ns();
        self.window_end_ns()
            .filter(|_| !ends_by_itself && !ends_by_count)
    }

    /// Counted arrivals that were due before `now_ns`: the offered load. `None` in a closed loop,
    /// where nothing is due by itself. O(arrivals) for all but evenly spaced ones of one rate.
    pub fn offered_until(&self, now_ns: u64) -> Option<u64> {
        let Pace::Open(arrivals) = &self.pace else {
            return None;
        };
        let until_ns = now_ns.min(self.raw_window_end_ns());
        let span_ns = until_ns.saturating_sub(self.window_start_ns());
        let Origin { requests, time_ns } = self.origin;
        let count_max = requests.saturating_add(self.requests_max);
        let count = arrivals.count_before(time_ns.saturating_add(span_ns), count_max);
        Some(count.saturating_sub(requests))
    }

    /// Of `offered` counted arrivals, how many no thread has taken. Call it after the threads have
    /// ended: they may still be claiming otherwise.
    pub fn unclaimed_of(&self, offered: u64) -> u64 {
        offered.saturating_sub(self.first_unclaimed())
    }

    /// Calls `visit` with the intended starts of those, and their places among them.
    pub fn visit_unclaimed_of(&self, offered: u64, mut visit: impl FnMut(u64, u64)) {
        let Pace::Open(arrivals) = &self.pace else {
            return;
        };
        let mut cursor = arrivals.cursor();
        for (place, number) in (self.first_unclaimed()..offered).enumerate() {
            if let Some(arrival) = self.counted_arrival(number, &mut cursor) {
                visit(place as u64, arrival.intended_ns);
            }
        }
    }

    fn first_unclaimed(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}

/// The next index below `end`. The plain load keeps a finished run from counting on for ever.
#[inline]
fn take(next: &AtomicU64, end: u64) -> Option<u64> {
    take_many(next, end, 1).map(|(index, _)| index)
}

/// The same of several in a row: the first, and how many lie below `end`.
fn take_many(next: &AtomicU64, end: u64, count_max: u64) -> Option<(u64, u64)> {
    if next.load(Ordering::Relaxed) >= end {
        return None;
    }
    let index = next.fetch_add(count_max, Ordering::Relaxed);
    (index < end).then(|| (index, count_max.min(end - index)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::{Profile, Spacing};

    fn open(arrivals: Arrivals) -> Pace {
        Pace::Open(Arc::new(arrivals))
    }

    /// All that one thread can claim of an open loop.
    fn claim_all(schedule: &Schedule) -> Vec<Arrival> {
        let Pace::Open(arrivals) = schedule.pace() else {
            unreachable!("the schedule is of an open loop")
        };
        let mut cursor = arrivals.cursor();
        std::iter::from_fn(|| schedule.claim(0, Some(&mut cursor))).collect()
    }

    fn constant(
        per_s: f64,
        warm_up_ns: u64,
        duration_ns: Option<u64>,
        max: Option<u64>,
    ) -> Schedule {
        let rate = Rate::from_per_s(per_s).unwrap();
        Schedule::new(
            open(Arrivals::constant(rate)),
            1_000,
            warm_up_ns,
            duration_ns,
            max,
        )
    }

    /// Goal: threads share one process: every index once, none lost, none twice, the grid intact.
    #[test]
    fn threads_claim_each_arrival_exactly_once() {
        let schedule = constant(1e6, 0, None, Some(40_000));
        let mut claimed: Vec<Arrival> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| claim_all(&schedule)))
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        claimed.sort_by_key(|arrival| arrival.number);
        assert_eq!(claimed.len(), 40_000);
        for (number, arrival) in claimed.iter().enumerate() {
            assert_eq!(arrival.number, number as u64);
            assert_eq!(arrival.intended_ns, 1_000 + 1_000 * number as u64);
        }
        assert!(claim_all(&schedule).is_empty());
    }

    /// Goal: warm-up arrivals come before the window, and the window's own grid begins at its start.
    #[test]
    fn warm_up_precedes_the_window() {
        let schedule = constant(10.0, SECOND_NS, Some(SECOND_NS), None);
        let all: Vec<Arrival> = claim_all(&schedule);
        let (warm, counted): (Vec<Arrival>, Vec<Arrival>) =
            all.into_iter().partition(|arrival| !arrival.counted);
        assert_eq!((warm.len(), counted.len()), (10, 10));
        assert!(
            warm.iter()
                .all(|arrival| arrival.intended_ns < schedule.window_start_ns())
        );
        assert_eq!(counted[0].number, 0);
        assert_eq!(counted[0].intended_ns, schedule.window_start_ns());
        assert_eq!(schedule.offered_until(u64::MAX), Some(10));
    }

    /// Goal: whichever of duration and count comes first ends the run.
    #[test]
    fn the_first_limit_ends_the_run() {
        let by_count = constant(10.0, 0, Some(100 * SECOND_NS), Some(3));
        assert_eq!(claim_all(&by_count).len(), 3);
        let by_time = constant(10.0, 0, Some(SECOND_NS / 2), Some(1_000));
        assert_eq!(claim_all(&by_time).len(), 5);
    }

    /// Goal: arrivals that were due but never taken are known with their intended starts.
    #[test]
    fn unclaimed_arrivals_are_the_rest_of_the_grid() {
        let schedule = constant(10.0, SECOND_NS, Some(SECOND_NS), None);
        let rate = Rate::from_per_s(10.0).unwrap();
        let arrivals = Arrivals::constant(rate);
        let mut cursor = arrivals.cursor();
        for _ in 0..14 {
            schedule.claim(0, Some(&mut cursor)).unwrap();
        }
        let mut rest = Vec::new();
        schedule.visit_unclaimed_of(10, |place, intended_ns| rest.push((place, intended_ns)));
        assert_eq!(rest.len() as u64, schedule.unclaimed_of(10));
        assert_eq!(rest.len(), 6);
        let first_ns = schedule.window_start_ns() + 4 * SECOND_NS / 10;
        assert_eq!(rest[0], (0, first_ns));
        let soon = schedule.window_start_ns() + SECOND_NS / 2;
        assert_eq!(
            schedule.unclaimed_of(schedule.offered_until(soon).unwrap()),
            1
        );
    }

    /// Goal: a process whose end only walking finds ends for every thread alike, and none of what it
    /// offered is lost or sent twice.
    #[test]
    fn random_arrivals_end_with_the_window() {
        let arrivals = Arrivals {
            profile: Profile::Constant(Rate::from_per_s(10_000.0).unwrap()),
            spacing: Spacing::Poisson,
            seed: 5,
        };
        let schedule = Schedule::new(open(arrivals), 0, SECOND_NS / 10, Some(SECOND_NS), None);
        let mut claimed: Vec<Arrival> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| claim_all(&schedule)))
                .collect();
            let ends = threads.into_iter().map(|thread| thread.join().unwrap());
            ends.flatten().collect()
        });
        let end_ns = schedule.window_end_ns().unwrap();
        assert!(
            !schedule.is_exhausted(end_ns - 1),
            "the run lasts as long as its window"
        );
        assert!(schedule.is_exhausted(end_ns));
        claimed.retain(|arrival| arrival.counted);
        claimed.sort_by_key(|arrival| arrival.number);
        let numbers = claimed.iter().map(|arrival| arrival.number);
        assert!(numbers.eq(0..claimed.len() as u64));
        assert!(claimed.is_sorted_by_key(|arrival| arrival.intended_ns));
        assert_eq!(schedule.offered_until(u64::MAX), Some(claimed.len() as u64));
        assert_eq!(schedule.unclaimed_of(claimed.len() as u64), 0);
        // Six standard deviations around the mean.
        assert!(
            (9_400..10_600).contains(&claimed.len()),
            "{}",
            claimed.len()
        );
    }

    /// Goal: schedules one behind the other give every arrival of the process once, at its moment, whether time or
    /// a count ends each.
    #[test]
    fn schedules_behind_one_another_are_one_process() {
        let rate = Rate::from_per_s(1_000.0).unwrap();
        for spacing in [Spacing::Even, Spacing::Poisson] {
            let arrivals = Arrivals {
                profile: Profile::Constant(rate),
                spacing,
                seed: 3,
            };
            let whole = Schedule::new(open(arrivals.clone()), 0, 0, Some(SECOND_NS), None);
            let expected = claim_all(&whole);
            for limits in [(Some(SECOND_NS / 4), None), (Some(SECOND_NS), Some(70))] {
                let mut origin = Origin::default();
                let mut found = Vec::new();
                while origin.time_ns < SECOND_NS {
                    let left_ns = SECOND_NS - origin.time_ns;
                    let duration_ns = limits.0.map(|ns| ns.min(left_ns));
                    let set = Schedule::new(open(arrivals.clone()), 0, 0, duration_ns, limits.1);
                    let set = set.behind(origin);
                    let claimed = claim_all(&set);
                    assert_eq!(set.offered_until(u64::MAX), Some(claimed.len() as u64));
                    found.extend(claimed.into_iter().map(|arrival| Arrival {
                        intended_ns: arrival.intended_ns + origin.time_ns,
                        ..arrival
                    }));
                    origin.requests = found.len() as u64;
                    origin.time_ns += set.process_time_ns().unwrap();
                }
                assert_eq!(found, expected, "{spacing:?} {limits:?}");
            }
        }
    }

    /// Goal: the rate's window ends when a connection finds nothing to send, at the time of the first that did; in an
    /// open loop when the first arrival behind the last would be due; and with time alone never.
    #[test]
    fn the_rate_ends_when_nothing_is_left() {
        let closed = Schedule::new(Pace::Closed, 0, 0, None, Some(2));
        closed.found_none(|| 5);
        assert_eq!(closed.rate_end_ns(), u64::MAX, "two are left");
        assert!(closed.claim(1, None).is_some() && closed.claim(2, None).is_some());
        closed.found_none(|| 70);
        closed.found_none(|| 60);
        assert_eq!(closed.rate_end_ns(), 70);
        assert!(closed.is_before_rate_end(69) && !closed.is_before_rate_end(70));
        let by_time = Schedule::new(Pace::Closed, 0, 0, Some(10), None);
        by_time.found_none(|| 11);
        assert_eq!(by_time.rate_end_ns(), u64::MAX);
        let by_rate = constant(10.0, 0, None, Some(3));
        claim_all(&by_rate);
        by_rate.found_none(|| 7);
        assert_eq!(by_rate.rate_end_ns(), 1_000 + 3 * SECOND_NS / 10);
        let cut = constant(10.0, 0, Some(SECOND_NS / 5), Some(3));
        claim_all(&cut);
        assert_eq!(cut.rate_end_ns(), u64::MAX, "time ends it before");
    }

    /// Goal: a closed loop counts warm-up and window apart and stops by time or by exact count.
    #[test]
    fn closed_loop_counts_exactly() {
        let schedule = Schedule::new(Pace::Closed, 100, 50, Some(1_000), Some(5));
        assert!(!schedule.claim(100, None).unwrap().counted);
        assert!(!schedule.claim(149, None).unwrap().counted);
        let numbers: Vec<u64> = std::iter::from_fn(|| schedule.claim(150, None))
            .map(|arrival| arrival.number)
            .collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        let by_time = Schedule::new(Pace::Closed, 100, 0, Some(1_000), None);
        assert!(by_time.claim(1_099, None).is_some());
        assert_eq!(by_time.claim(1_100, None), None);
        assert_eq!(by_time.offered_until(2_000), None);
    }
}

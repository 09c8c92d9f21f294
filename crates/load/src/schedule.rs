//! Which thread sends which arrival: closed loop, or one arrival process fixed before the run.
//!
//! `run` makes one schedule when every connection is up; each `worker` claims the next arrival from
//! it while it has a free connection. All threads draw from the same process through one atomic
//! index, so a stalled connection or thread never keeps arrivals that others could send. An arrival
//! that could not be sent in time stays due at its intended start, which is what makes a stall
//! visible.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::arrivals::{Arrivals, Cursor, Rate};
use crate::connection::Session;
use crate::outages::SLICE_NS;

const SECOND_NS: u64 = 1_000_000_000;

/// The rule that makes a request due.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// The next request leaves as soon as a connection is free.
    Closed,
    /// Requests are due when an arrival process says so, whatever the responses do.
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

/// How much of the run earlier sets of connections have had; the schedule continues after it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Origin {
    /// Counted requests.
    pub requests: u64,
    /// Time of the arrival process. The time between two sets is not in it.
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
    /// The slices of the warm-up.
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
            // Of other processes the end is known when the first thread gets there.
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

    /// The same behind `origin`: numbers and the arrival process continue there. For a schedule from which nothing was
    /// claimed.
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

    /// Ends the warm-up of [`Self::warming_up`]: counting begins at the end of a slice, so far ahead that every thread
    /// reads it before. Returns when.
    pub(crate) fn begin_window(&self, not_before_ns: u64) -> u64 {
        let slices = (not_before_ns - self.start_ns).div_ceil(self.warm_up_cut_ns);
        let window_start_ns = self.start_ns + slices * self.warm_up_cut_ns;
        // A thread that reads it needs to read nothing else.
        self.window_start_ns
            .store(window_start_ns, Ordering::Relaxed);
        window_start_ns
    }

    /// The slices of the warm-up.
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

    /// The rule that makes requests due.
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

    /// Whether a response at `now_ns`, which lies in the window, counts for the rate.
    #[inline]
    pub(crate) fn is_before_rate_end(&self, now_ns: u64) -> bool {
        now_ns < self.rate_end_ns()
    }

    /// Whether `count` requests of a closed loop can be claimed, as far as their number goes.
    pub(crate) fn can_claim(&self, count: u64) -> bool {
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

    /// The intended start of arrival `index` of the window, after the window's start.
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

// How early to wake for an arrival, derived from how late wake-ups have been.

/// Widest window: what is later than this is not a timer's lateness but a busy CPU.
const SPIN_NS_MAX: u64 = 100_000;
/// Share of the gap between two arrivals that may be spent polling.
const GAP_SHARE: u64 = 4;
/// Weight of a new observation is one over this.
const SMOOTHING: u64 = 16;
/// Before anything was observed: the median lateness of a sleeping thread on an idle machine.
const SPIN_NS_FIRST: u64 = 30_000;

/// Exponentially weighted mean and deviation of wake lateness.
#[derive(Debug)]
pub(crate) struct SpinWindow {
    mean_ns: u64,
    deviation_ns: u64,
    width_ns_max: u64,
}

impl SpinWindow {
    /// `gap_ns` lies between two arrivals of one thread. Where arrivals are dense they wake the
    /// thread by themselves, and the window closes.
    pub(crate) fn new(gap_ns: u64) -> Self {
        let width_ns_max = SPIN_NS_MAX.min(gap_ns / GAP_SHARE);
        Self {
            mean_ns: SPIN_NS_FIRST,
            deviation_ns: 0,
            width_ns_max,
        }
    }

    /// A sleep ended this much after it should have.
    pub(crate) fn observe(&mut self, late_ns: u64) {
        // One descheduled moment must not hold the window open for the next hundred arrivals.
        let late_ns = late_ns.min(2 * SPIN_NS_MAX);
        let error_ns = late_ns.abs_diff(self.mean_ns);
        self.mean_ns = (self.mean_ns * (SMOOTHING - 1) + late_ns) / SMOOTHING;
        self.deviation_ns = (self.deviation_ns * (SMOOTHING - 1) + error_ns) / SMOOTHING;
    }

    /// How long before an arrival to stop sleeping: covers all but the latest wake-ups.
    pub(crate) fn width_ns(&self) -> u64 {
        (self.mean_ns + 2 * self.deviation_ns).min(self.width_ns_max)
    }
}

// Which connection takes the next request: an idle one if there is any, the longest waiting first.

/// How a session waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Rank {
    Idle,
    Busy,
}

impl Rank {
    #[inline]
    fn of(session: &Session) -> Option<Self> {
        let is_idle = session.in_flight_len() == 0;
        session
            .can_take()
            .then_some(if is_idle { Self::Idle } else { Self::Busy })
    }
}

/// A session with room, at the front of its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Free {
    pub(crate) index: u32,
    rank: Rank,
}

/// Numbers in the order in which they came. Its room is that of all sessions, each of which is in it
/// at most once.
#[derive(Debug)]
struct Queue {
    /// As many as a power of two, so that places wrap by a mask.
    slots: Box<[u32]>,
    /// Both count on for ever; the places are what the mask leaves of them.
    front: u32,
    back: u32,
}

impl Queue {
    fn new(room: usize) -> Self {
        Self {
            slots: vec![0; room.next_power_of_two()].into(),
            front: 0,
            back: 0,
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.front == self.back
    }

    #[inline]
    fn first(&self) -> Option<u32> {
        let place = self.front as usize & (self.slots.len() - 1);
        (!self.is_empty()).then(|| self.slots[place])
    }

    #[inline]
    fn push(&mut self, index: u32) {
        let place = self.back as usize & (self.slots.len() - 1);
        self.slots[place] = index;
        self.back = self.back.wrapping_add(1);
        debug_assert!(self.back.wrapping_sub(self.front) as usize <= self.slots.len());
    }

    #[inline]
    fn remove_first(&mut self) {
        self.front = self.front.wrapping_add(1);
    }
}

/// Sessions that may have room, by number. Each is in each queue at most once.
#[derive(Debug)]
pub(crate) struct FreeSessions {
    queues: [Queue; 2],
}

impl FreeSessions {
    pub(crate) fn new(sessions: usize) -> Self {
        Self {
            queues: std::array::from_fn(|_| Queue::new(sessions)),
        }
    }

    /// Queues a session if it has room.
    #[inline]
    pub(crate) fn offer(&mut self, sessions: &mut [Session], index: u32) {
        let session = &mut sessions[index as usize];
        if let Some(rank) = Rank::of(session)
            && !std::mem::replace(&mut session.is_queued[rank as usize], true)
        {
            self.queues[rank as usize].push(index);
        }
    }

    /// The session for the next request, which stays queued until [`Self::take_first`].
    #[inline]
    pub(crate) fn first(&mut self, sessions: &mut [Session]) -> Option<Free> {
        for rank in [Rank::Idle, Rank::Busy] {
            while let Some(index) = self.queues[rank as usize].first() {
                if Rank::of(&sessions[index as usize]) == Some(rank) {
                    return Some(Free { index, rank });
                }
                self.skip_first(sessions, Free { index, rank });
            }
        }
        None
    }

    /// The front of a queue has no room any more, or room in the other rank, where it is queued
    /// unless it lost it there.
    #[cold]
    fn skip_first(&mut self, sessions: &mut [Session], stale: Free) {
        self.take_first(sessions, stale);
        self.offer(sessions, stale.index);
    }

    /// Removes what [`Self::first`] has just found.
    #[inline]
    pub(crate) fn take_first(&mut self, sessions: &mut [Session], found: Free) {
        let queue = &mut self.queues[found.rank as usize];
        debug_assert_eq!(
            queue.first(),
            Some(found.index),
            "nothing was offered in between"
        );
        queue.remove_first();
        sessions[found.index as usize].is_queued[found.rank as usize] = false;
    }

    /// Whether a request due now could not leave. May err towards false: entries can be stale.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.iter().all(Queue::is_empty)
    }
}

#[cfg(test)]
#[path = "tests/schedule.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/pacing.rs"]
mod pacing_tests;

#[cfg(test)]
#[path = "tests/free.rs"]
mod free_tests;

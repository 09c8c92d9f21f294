//! How long requests took, as histograms: one for each route of the service and class of status.
//!
//! The time of a request runs from the tick that handed it to the service (a body that is received in parts comes after
//! that) to the end of the tick in which its response was complete, when the response has been handed to the
//! kernel. So all responses of a tick share one reading of the clock, and a request costs an addition: a response that
//! the service gave at once is counted by its cell, and the cells are put into buckets when the tick ends.
//!
//! Invariant: between two ticks `in_tick` and `late` are empty, and the samples of all histograms are the
//! responses that the service has completed.

use crate::counters::Counter;
use crate::status::StatusCode;

/// Routes that a service may have; those beyond are counted under the last of these.
pub const ROUTES_MAX: usize = 12;

/// Classes of status, 1xx to 5xx.
const CLASSES: usize = 5;

/// Upper bounds of the buckets, in nanoseconds: a machine's own network to a slow upload. The last bucket has none.
pub const BOUNDS_NS: [u64; 17] = [
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    10_000_000_000,
];

/// Responses completed in one tick after the tick of their request. More are put into their buckets at once.
const LATE_MAX: usize = 256;

/// Durations of one kind, by bucket.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DurationHistogram {
    /// Samples of each bucket alone; the last is what is longer than all bounds.
    counts: [u64; BOUNDS_NS.len() + 1],
    sum_ns: u64,
}

impl DurationHistogram {
    /// Adds so many samples of this length.
    pub fn add(&mut self, duration_ns: u64, count: u64) {
        self.counts[bucket_of(duration_ns)] += count;
        self.sum_ns = self
            .sum_ns
            .saturating_add(duration_ns.saturating_mul(count));
    }

    /// Adds all samples of another.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// How many samples there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All samples added up.
    #[must_use]
    pub const fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// How many samples are at most this long, for each of [`BOUNDS_NS`].
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        BOUNDS_NS.into_iter().zip(counts)
    }
}

/// A histogram that one shard writes and any may read: counting is a load and a store, no locked instruction.
#[derive(Debug, Default)]
pub(crate) struct SharedHistogram {
    counts: [Counter; BOUNDS_NS.len() + 1],
    sum_ns: Counter,
}

impl SharedHistogram {
    /// One sample. By the shard that owns it alone.
    pub(crate) fn add(&self, duration_ns: u64) {
        self.counts[bucket_of(duration_ns)].add(1);
        self.sum_ns.add(duration_ns);
    }

    /// A copy. While the shard counts, its parts may be a sample apart.
    pub(crate) fn read(&self) -> DurationHistogram {
        DurationHistogram {
            counts: std::array::from_fn(|index| self.counts[index].value()),
            sum_ns: self.sum_ns.value(),
        }
    }
}

/// Prometheus' buckets include their upper bound.
fn bucket_of(duration_ns: u64) -> usize {
    BOUNDS_NS.partition_point(|&bound_ns| bound_ns < duration_ns)
}

/// A cell: a route and a class of status.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Cell(u8);

impl Cell {
    /// One row of classes for each route. The class of 0xx, which no status has, is left unused.
    const STRIDE: usize = CLASSES + 1;

    #[inline(always)]
    fn of(route: u8, status: StatusCode) -> Self {
        Self(route * Self::STRIDE as u8 + (status.code() / 100) as u8)
    }
}

/// A response that was complete after the tick of its request.
#[derive(Clone, Copy, Debug)]
struct Late {
    cell: Cell,
    started_ns: u64,
}

/// The durations of one shard's requests.
#[derive(Debug)]
pub(crate) struct RequestDurations {
    histograms: Box<[DurationHistogram]>,
    /// Requests of this tick with an immediate response, by cell.
    in_tick: Box<[u32]>,
    late: Vec<Late>,
    route_last: u8,
}

impl RequestDurations {
    pub(crate) fn new(route_count: usize) -> Self {
        let route_count = route_count.clamp(1, ROUTES_MAX);
        let cells = route_count * Cell::STRIDE;
        Self {
            histograms: vec![DurationHistogram::default(); cells].into(),
            in_tick: vec![0; cells].into(),
            late: Vec::with_capacity(LATE_MAX),
            route_last: (route_count - 1) as u8,
        }
    }

    /// A route as the service named it, as one that there is.
    #[inline(always)]
    fn cell(&self, route: u8, status: StatusCode) -> Cell {
        Cell::of(route.min(self.route_last), status)
    }

    /// A response was complete in the tick of its request.
    #[inline(always)]
    pub(crate) fn count_at_once(&mut self, route: u8, status: StatusCode) {
        let cell = self.cell(route, status);
        self.in_tick[usize::from(cell.0)] += 1;
    }

    /// A response was complete in a later tick, this one.
    pub(crate) fn count_late(
        &mut self,
        route: u8,
        status: StatusCode,
        started_ns: u64,
        now_ns: u64,
    ) {
        let cell = self.cell(route, status);
        if self.late.len() < LATE_MAX {
            return self.late.push(Late { cell, started_ns });
        }
        self.histograms[usize::from(cell.0)].add(now_ns.saturating_sub(started_ns), 1);
    }

    /// The tick that began at `started_ns` ends now, and all its responses have left.
    #[inline]
    pub(crate) fn tick_ended(&mut self, started_ns: u64, clock_ns: impl FnOnce() -> u64) {
        let is_idle = self.late.is_empty() && self.in_tick.iter().all(|&count| count == 0);
        if !is_idle {
            self.settle(started_ns, clock_ns());
        }
    }

    fn settle(&mut self, started_ns: u64, now_ns: u64) {
        let duration_ns = now_ns.saturating_sub(started_ns);
        for (count, histogram) in self.in_tick.iter_mut().zip(&mut self.histograms) {
            if *count > 0 {
                histogram.add(duration_ns, u64::from(std::mem::take(count)));
            }
        }
        for late in self.late.drain(..) {
            let duration_ns = now_ns.saturating_sub(late.started_ns);
            self.histograms[usize::from(late.cell.0)].add(duration_ns, 1);
        }
    }

    /// Copies all histograms, those without samples too, for [`by_route`].
    pub(crate) fn copy_to(&self, copy: &mut Vec<DurationHistogram>) {
        copy.clear();
        copy.extend_from_slice(&self.histograms);
    }
}

/// The histograms of all shards added up, with route and class of status; those with samples.
pub(crate) fn by_route<'a>(
    shards: impl Iterator<Item = &'a [DurationHistogram]>,
) -> impl Iterator<Item = (usize, u16, DurationHistogram)> {
    let mut sums: Vec<DurationHistogram> = Vec::new();
    for shard in shards {
        sums.resize(sums.len().max(shard.len()), DurationHistogram::default());
        for (sum, histogram) in sums.iter_mut().zip(shard) {
            sum.merge(histogram);
        }
    }
    let cells = sums.into_iter().enumerate();
    cells
        .filter(|(_, histogram)| histogram.count() > 0)
        .map(|(cell, histogram)| {
            let (route, class) = (cell / Cell::STRIDE, cell % Cell::STRIDE);
            (route, class as u16, histogram)
        })
}

#[cfg(test)]
#[path = "tests/durations.rs"]
mod tests;

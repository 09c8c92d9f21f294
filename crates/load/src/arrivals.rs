//! The intended start times of an open loop's requests: a process fixed before the run.
//!
//! On the path: `schedule` gives each arrival a number, and the thread that claims it asks its own
//! cursor for the moment. A process is a *profile* (how many arrivals a second, over time) and a
//! *spacing* (how they lie within that). Arrival number i is where the profile's area reaches the
//! i-th point of a process of rate one, so any spacing goes with any profile:
//!
//! ```text
//! number ─ spacing ─ point of the unit process ─ profile, inverted ─ ns after the start
//! ```
//! The same seed gives the same moments, whatever the target does and however many threads ask.
//!
//! Each thread walks the whole process, at some ten nanoseconds per arrival, and takes of it what
//! it claimed.

#[cfg(test)]
#[path = "tests/arrivals.rs"]
mod tests;

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::request_plan::mix;

/// An arrival process.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrivals {
    /// How many arrivals a second, over time.
    pub profile: Profile,
    /// How they lie within that.
    pub spacing: Spacing,
    /// Where the random numbers of the spacing start.
    pub seed: u64,
}

impl Arrivals {
    /// Evenly spaced arrivals at one rate for ever.
    pub fn constant(rate: Rate) -> Self {
        Self {
            profile: Profile::Constant(rate),
            spacing: Spacing::Even,
            seed: 0,
        }
    }

    /// Says what is wrong with it, if anything, and what would be right.
    pub fn check(&self) -> Result<(), String> {
        self.profile.check()?;
        self.spacing.check()?;
        if matches!(self.profile, Profile::Trace(_)) && self.spacing != Spacing::Even {
            return Err("a trace has moments of its own and takes no spacing".into());
        }
        Ok(())
    }

    /// How long the process lasts by itself; `None`: for ever.
    pub fn span_ns(&self) -> Option<u64> {
        self.profile.span_ns()
    }

    /// The rate when it is one and the same all the time.
    pub(crate) fn steady_rate(&self) -> Option<Rate> {
        match (&self.profile, self.spacing) {
            (Profile::Constant(rate), Spacing::Even) => Some(*rate),
            _ => None,
        }
    }

    /// The rate it begins with; `None` for a trace, which has none.
    pub(crate) fn first_rate(&self) -> Option<Rate> {
        Rate::from_per_s(self.profile.first_per_s())
    }

    /// Highest rate of the profile; of a trace, the mean over its span.
    pub(crate) fn peak_per_s(&self) -> f64 {
        self.profile.peak_per_s()
    }

    /// Starts walking the process.
    pub(crate) fn cursor(&self) -> Cursor<'_> {
        Cursor {
            process: self,
            unit: UnitProcess::new(self.spacing, self.seed),
            inverse: Inverse::new(&self.profile),
            next_number: 0,
            last_point: 0.0,
        }
    }

    /// How many arrivals have their intended start before `span_ns`, but at most `count_max`. O(1)
    /// for a steady rate, else O(arrivals).
    pub(crate) fn count_before(&self, span_ns: u64, count_max: u64) -> u64 {
        if let Some(rate) = self.steady_rate() {
            return rate.arrivals_before(span_ns).min(count_max);
        }
        let mut cursor = self.cursor();
        let is_before = |number: &u64| {
            cursor
                .offset_ns(*number)
                .is_some_and(|offset_ns| offset_ns < span_ns)
        };
        (0..count_max).take_while(is_before).count() as u64
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.profile)?;
        if self.spacing != Spacing::Even {
            write!(formatter, ", {}, seed {}", self.spacing, self.seed)?;
        }
        Ok(())
    }
}

/// A walk along a process, forwards only.
pub(crate) struct Cursor<'a> {
    process: &'a Arrivals,
    unit: UnitProcess,
    inverse: Inverse<'a>,
    next_number: u64,
    last_point: f64,
}

impl Cursor<'_> {
    /// The intended start of arrival `number`, after the start; `None` when the process has fewer.
    /// O(numbers since the last call), which must not have asked for a later one.
    pub(crate) fn offset_ns(&mut self, number: u64) -> Option<u64> {
        if let Some(rate) = self.process.steady_rate() {
            return Some(rate.offset_ns(number));
        }
        if let Profile::Trace(offsets) = &self.process.profile {
            let index = usize::try_from(number).ok()?;
            return offsets.get(index).copied();
        }
        debug_assert!(number + 1 >= self.next_number, "a cursor goes forwards");
        while self.next_number <= number {
            self.last_point = self.unit.point(self.next_number);
            self.next_number += 1;
        }
        self.inverse.offset_ns(self.last_point)
    }
}

// A rate that is kept exactly.

/// One request in a million seconds: the step in which rates are kept, so that arithmetic is exact.
const RATE_STEPS_PER_REQUEST: f64 = 1e6;
/// `1e9 ns/s * 1e6 steps/request`: an interval in ns is this over the rate in steps.
const STEP_NS: u128 = 1_000_000_000_000_000;
/// The highest rate that can be asked for; beyond it intervals fall under the clock's resolution.
pub const RATE_PER_S_MAX: f64 = 1e9;

/// An arrival rate held as an integer (millionths of a request per second).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rate {
    micro_per_s: NonZeroU64,
}

impl Rate {
    /// The nearest representable rate; `None` if it rounds to zero, is above
    /// [`RATE_PER_S_MAX`] or is not a number.
    pub fn from_per_s(per_s: f64) -> Option<Self> {
        if !(per_s > 0.0 && per_s <= RATE_PER_S_MAX) {
            return None;
        }
        // In range by the check above, so the cast cannot saturate.
        let micro_per_s = (per_s * RATE_STEPS_PER_REQUEST).round() as u64;
        NonZeroU64::new(micro_per_s).map(|micro_per_s| Self { micro_per_s })
    }

    /// Requests per second.
    pub fn per_s(self) -> f64 {
        self.micro_per_s.get() as f64 / RATE_STEPS_PER_REQUEST
    }

    /// Start of arrival `number` after the start of the process: `floor(number * 1e9 / rate)`.
    /// Computed from the number alone, so no error accumulates.
    pub fn offset_ns(self, number: u64) -> u64 {
        let offset_ns = u128::from(number) * STEP_NS / u128::from(self.micro_per_s.get());
        u64::try_from(offset_ns).unwrap_or(u64::MAX)
    }

    /// How many arrivals start before `span_ns`; the inverse of [`Rate::offset_ns`].
    pub fn arrivals_before(self, span_ns: u64) -> u64 {
        let arrivals = (u128::from(span_ns) * u128::from(self.micro_per_s.get())).div_ceil(STEP_NS);
        u64::try_from(arrivals).unwrap_or(u64::MAX)
    }
}

// How arrivals lie: the points of a process with one arrival per unit, before it is stretched to a
// rate.

/// Random numbers have this many bits: as many as a fraction can hold.
const FRACTION_BITS: u32 = 53;

/// How arrivals lie within their rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spacing {
    /// On a grid.
    Even,
    /// As independent users come: gaps are exponentially distributed.
    Poisson,
    /// Each somewhere in the first `share` of its place on the grid, uniformly.
    Jitter {
        /// Above 0 and up to 1.
        share: f64,
    },
}

impl Spacing {
    fn check(self) -> Result<(), String> {
        match self {
            Self::Jitter { share } if !(share > 0.0 && share <= 1.0) => Err(format!(
                "a jitter of {share} is not above 0 and up to 1 gap between two requests"
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Spacing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Even => formatter.write_str("evenly spaced"),
            Self::Poisson => formatter.write_str("Poisson"),
            Self::Jitter { share } => write!(formatter, "jitter {share}"),
        }
    }
}

/// The points of a process with one arrival per unit, in order.
struct UnitProcess {
    spacing: Spacing,
    seed: u64,
    /// The last point of a Poisson process. A sum of a billion gaps keeps nine digits of its last,
    /// and no error grows faster than the gaps' own scatter.
    sum: f64,
}

impl UnitProcess {
    fn new(spacing: Spacing, seed: u64) -> Self {
        Self {
            spacing,
            seed: mix(seed),
            sum: 0.0,
        }
    }

    /// The point of arrival `number`, which is one more than in the last call.
    #[inline]
    fn point(&mut self, number: u64) -> f64 {
        match self.spacing {
            Spacing::Even => number as f64,
            Spacing::Poisson => {
                // Above 0 and up to 1, so the logarithm is finite.
                self.sum -= (1.0 - self.fraction(number)).ln();
                self.sum
            }
            Spacing::Jitter { share } => number as f64 + share * self.fraction(number),
        }
    }

    /// From 0 up to, and never, 1.
    #[inline]
    fn fraction(&self, number: u64) -> f64 {
        let bits = mix(self.seed ^ mix(number)) >> (u64::BITS - FRACTION_BITS);
        bits as f64 / (1_u64 << FRACTION_BITS) as f64
    }
}

// How many arrivals a second, over time; and the time at which so many have come.

const NS_PER_S: f64 = 1e9;

/// How many arrivals a second, over time.
#[derive(Clone, Debug, PartialEq)]
pub enum Profile {
    /// The same all the time.
    Constant(Rate),
    /// One segment after the other.
    Segments {
        /// At least one; only the last may be without an end.
        segments: Vec<Segment>,
        /// From the first again after the last, for ever.
        is_cyclic: bool,
    },
    /// Moments themselves, in ns after the start, ascending.
    Trace(Arc<[u64]>),
}

/// A stretch of time in which the rate changes evenly or not at all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// Arrivals per second when it begins.
    pub from_per_s: f64,
    /// And when it ends.
    pub to_per_s: f64,
    /// `None`: it does not end; then the rate may not change.
    pub duration_ns: Option<u64>,
}

impl Segment {
    /// Arrivals expected within it.
    fn area(&self) -> f64 {
        self.duration_ns.map_or(f64::INFINITY, |duration_ns| {
            (self.from_per_s + self.to_per_s) / 2.0 * (duration_ns as f64 / NS_PER_S)
        })
    }

    /// The time in ns from its beginning until `area` arrivals were expected, which it has.
    fn time_ns(&self, area: f64) -> f64 {
        let rise_per_s2 = self.duration_ns.map_or(0.0, |duration_ns| {
            (self.to_per_s - self.from_per_s) / (duration_ns as f64 / NS_PER_S)
        });
        // The root of a t + b t^2 / 2 = area that loses no digits where b is small.
        let root = (self.from_per_s * self.from_per_s + 2.0 * rise_per_s2 * area).max(0.0);
        let sum = self.from_per_s + root.sqrt();
        if sum == 0.0 {
            return 0.0;
        }
        2.0 * area / sum * NS_PER_S
    }
}

impl Profile {
    /// Bursts: `rate_per_s` for `on_ns`, nothing for `off_ns`, and again.
    pub fn bursts(rate_per_s: f64, on_ns: u64, off_ns: u64) -> Self {
        let flat = |per_s, duration_ns| Segment {
            from_per_s: per_s,
            to_per_s: per_s,
            duration_ns: Some(duration_ns),
        };
        Self::Segments {
            segments: vec![flat(rate_per_s, on_ns), flat(0.0, off_ns)],
            is_cyclic: true,
        }
    }

    fn check(&self) -> Result<(), String> {
        match self {
            Self::Constant(_) => Ok(()),
            Self::Trace(offsets) if offsets.is_empty() => Err("the trace has no arrivals".into()),
            Self::Trace(offsets) => offsets.iter().zip(&offsets[1..]).enumerate().try_for_each(
                |(index, (one, next))| match one <= next {
                    true => Ok(()),
                    false => Err(format!(
                        "arrival {} of the trace is before the one before it: sort it by time",
                        index + 2
                    )),
                },
            ),
            Self::Segments {
                segments,
                is_cyclic,
            } => check_segments(segments, *is_cyclic),
        }
    }

    fn span_ns(&self) -> Option<u64> {
        match self {
            Self::Constant(_)
            | Self::Segments {
                is_cyclic: true, ..
            } => None,
            Self::Segments { segments, .. } => segments
                .iter()
                .map(|segment| segment.duration_ns)
                .try_fold(0_u64, |sum, part| Some(sum.saturating_add(part?))),
            Self::Trace(offsets) => offsets.last().map(|last_ns| last_ns.saturating_add(1)),
        }
    }

    /// The first rate above 0; 0 for a trace.
    fn first_per_s(&self) -> f64 {
        match self {
            Self::Constant(rate) => rate.per_s(),
            Self::Segments { segments, .. } => segments
                .iter()
                .flat_map(|segment| [segment.from_per_s, segment.to_per_s])
                .find(|&per_s| per_s > 0.0)
                .unwrap_or(0.0),
            Self::Trace(_) => 0.0,
        }
    }

    fn peak_per_s(&self) -> f64 {
        match self {
            Self::Constant(rate) => rate.per_s(),
            Self::Segments { segments, .. } => segments
                .iter()
                .map(|segment| segment.from_per_s.max(segment.to_per_s))
                .fold(0.0, f64::max),
            Self::Trace(offsets) => {
                let span_ns = self.span_ns().unwrap_or(1).max(1);
                offsets.len() as f64 * NS_PER_S / span_ns as f64
            }
        }
    }
}

fn check_segments(segments: &[Segment], is_cyclic: bool) -> Result<(), String> {
    let Some((last, earlier)) = segments.split_last() else {
        return Err("a profile needs at least one step".into());
    };
    for segment in segments {
        for per_s in [segment.from_per_s, segment.to_per_s] {
            if !(0.0..=RATE_PER_S_MAX).contains(&per_s) {
                return Err(format!(
                    "{per_s} is not a rate from 0 to {RATE_PER_S_MAX}/s"
                ));
            }
        }
        if segment.duration_ns == Some(0) {
            return Err("a step of no length has no rate: give it a time".into());
        }
        if segment.duration_ns.is_none() && segment.from_per_s != segment.to_per_s {
            return Err("a ramp needs to know how long it takes".into());
        }
    }
    if earlier.iter().any(|segment| segment.duration_ns.is_none()) {
        return Err("only the last step may be without a time".into());
    }
    if is_cyclic && last.duration_ns.is_none() {
        return Err("what comes again has to end: give every step a time".into());
    }
    let is_silent = |segment: &Segment| {
        segment.area() <= 0.0 || segment.to_per_s.max(segment.from_per_s) <= 0.0
    };
    if segments.iter().all(is_silent) {
        return Err("all rates are 0: no request would ever leave".into());
    }
    Ok(())
}

impl fmt::Display for Profile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(rate) => write!(formatter, "{}/s", rate.per_s()),
            Self::Trace(offsets) => write!(formatter, "a trace of {} arrivals", offsets.len()),
            Self::Segments {
                segments,
                is_cyclic,
            } => {
                for (index, segment) in segments.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(formatter, "{comma}{segment}")?;
                }
                formatter.write_str(if *is_cyclic { ", and again" } else { "" })
            }
        }
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.from_per_s)?;
        if self.to_per_s != self.from_per_s {
            write!(formatter, "..{}", self.to_per_s)?;
        }
        formatter.write_str("/s")?;
        match self.duration_ns {
            Some(duration_ns) => write!(formatter, " for {} s", duration_ns as f64 / NS_PER_S),
            None => Ok(()),
        }
    }
}

/// A walk along a profile: areas in, moments out, both ascending.
struct Inverse<'a> {
    profile: &'a Profile,
    index: usize,
    /// Area and time up to the segment at `index`.
    area_before: f64,
    ns_before: f64,
}

impl<'a> Inverse<'a> {
    fn new(profile: &'a Profile) -> Self {
        Self {
            profile,
            index: 0,
            area_before: 0.0,
            ns_before: 0.0,
        }
    }

    /// When `area` arrivals were expected; `None` if they never are. Not for traces.
    fn offset_ns(&mut self, area: f64) -> Option<u64> {
        let (segments, is_cyclic) = match self.profile {
            Profile::Constant(rate) => return Some((area / rate.per_s() * NS_PER_S) as u64),
            Profile::Segments {
                segments,
                is_cyclic,
            } => (segments, *is_cyclic),
            Profile::Trace(_) => return None,
        };
        loop {
            if self.index == segments.len() {
                if !is_cyclic {
                    return None;
                }
                self.index = 0;
            }
            let segment = &segments[self.index];
            let within = area - self.area_before;
            // An arrival at the very end of a segment belongs to the next: 0/s lets none leave.
            if within < segment.area() && segment.from_per_s.max(segment.to_per_s) > 0.0 {
                return Some((self.ns_before + segment.time_ns(within)) as u64);
            }
            self.area_before += segment.area();
            self.ns_before += segment.duration_ns? as f64;
            self.index += 1;
        }
    }
}

#[cfg(test)]
#[path = "tests/rate.rs"]
mod rate_tests;

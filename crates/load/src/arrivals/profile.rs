//! How many arrivals a second, over time; and the time at which so many have come.
//!
//! On the path: `Cursor` turns a point of the unit process into a moment. A profile's area up to a
//! moment is the number of arrivals expected until then; its inverse is what is asked for here.
//! Absent on purpose: profiles by formula. Segments that rise or fall evenly come as close to any
//! curve as anyone needs.
use super::rate::{RATE_PER_S_MAX, Rate};
use std::fmt;
use std::sync::Arc;

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

    pub(super) fn check(&self) -> Result<(), String> {
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

    pub(super) fn span_ns(&self) -> Option<u64> {
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
    pub(super) fn first_per_s(&self) -> f64 {
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

    pub(super) fn peak_per_s(&self) -> f64 {
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
pub(super) struct Inverse<'a> {
    profile: &'a Profile,
    index: usize,
    /// Area and time up to the segment at `index`.
    area_before: f64,
    ns_before: f64,
}

impl<'a> Inverse<'a> {
    pub(super) fn new(profile: &'a Profile) -> Self {
        Self {
            profile,
            index: 0,
            area_before: 0.0,
            ns_before: 0.0,
        }
    }

    /// When `area` arrivals were expected; `None` if they never are. Not for traces.
    pub(super) fn offset_ns(&mut self, area: f64) -> Option<u64> {
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

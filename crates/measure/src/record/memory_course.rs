//! Memory of one run over time: every sample while it is measured, and in the record what a drawing can show.

use serde::{Deserialize, Serialize};

use super::Operation;
use crate::series::{Series, SeriesPoint};

/// More points are not told apart in a drawing, and a record holds hundreds of runs.
const POINTS_MAX: usize = 48;

/// What a run was at, for a time.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoursePhase {
    /// `put throughput`, `idle`, `get latency`, ...
    pub name: String,
    /// When it began, since the server began to serve.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
}

impl CoursePhase {
    /// Whether it is a part of the equal work, not what comes before or after it.
    #[must_use]
    pub fn is_work(&self) -> bool {
        !matches!(self.name.as_str(), "warm-up" | "idle")
    }
}

/// The memory of a tree of processes, sampled on one clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemorySeries {
    /// Resident memory.
    pub rss: Series,
    /// What the program keeps by itself at the same moments; empty if one of them did not tell it.
    memory: Series,
    is_incomplete: bool,
}

impl MemorySeries {
    /// Adds what was seen at a moment.
    pub fn push(&mut self, at_ns: u64, rss_bytes: u64, memory_bytes: Option<u64>) {
        self.rss.push(at_ns, rss_bytes as f64);
        match memory_bytes {
            Some(bytes) => self.memory.push(at_ns, bytes as f64),
            None => self.is_incomplete = true,
        }
    }

    /// Adds what was read apart, where it belongs.
    pub fn insert(&mut self, at_ns: u64, rss_bytes: u64, memory_bytes: Option<u64>) {
        let insert = |series: &mut Series, bytes: u64| {
            let place = series.points.partition_point(|point| point.at_ns <= at_ns);
            let value = bytes as f64;
            series.points.insert(place, SeriesPoint { at_ns, value });
        };
        insert(&mut self.rss, rss_bytes);
        match memory_bytes {
            Some(bytes) => insert(&mut self.memory, bytes),
            None => self.is_incomplete = true,
        }
    }

    /// Adds `other`, whose clock begins at `from_ns` of this one.
    pub fn append(&mut self, other: &Self, from_ns: u64) {
        for (all, more) in [
            (&mut self.rss, &other.rss),
            (&mut self.memory, &other.memory),
        ] {
            for point in &more.points {
                all.push(from_ns + point.at_ns, point.value);
            }
        }
        self.is_incomplete |= other.is_incomplete;
    }

    /// What the program keeps by itself; `None` unless every sample has it: half a curve would be taken for a whole one.
    #[must_use]
    pub fn memory(&self) -> Option<&Series> {
        (!self.is_incomplete && !self.memory.points.is_empty()).then_some(&self.memory)
    }

    /// The series that answers for memory: what the program keeps by itself, else resident memory.
    #[must_use]
    pub fn best(&self) -> &Series {
        self.memory().unwrap_or(&self.rss)
    }

    /// The end of the clock so far.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.rss.points.last().map_or(0, |point| point.at_ns)
    }
}

/// Memory since the server began to serve, of all its processes. No verdict is made from it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryCourse {
    /// When, since the server began to serve.
    pub at_ns: Vec<u64>,
    /// How much was resident at these moments.
    pub rss_bytes: Vec<u64>,
    /// What the processes kept by themselves, in each stretch of time the most, at the end the last; empty in old records
    /// and where it could not be read: then all of this is of `rss_bytes`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory_bytes: Vec<u64>,
    /// What the run was at, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<CoursePhase>,
}

/// How the memory of a candidate changes with work, over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryGrowth {
    /// Its name.
    pub candidate: String,
    /// Of which requests.
    pub operation: Operation,
    /// Hodges-Lehmann estimate of the rounds' slopes, in bytes of memory per request; negative if memory shrinks.
    pub bytes_per_request: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
    /// Exact confidence of the interval: at least 0.95 from 6 rounds on.
    pub confidence: f64,
    /// Rounds that have a slope.
    pub rounds: u32,
    /// The same in words.
    pub sentence: String,
}

impl MemoryCourse {
    /// The peaks of `series`, and its end; `None` if it has fewer than two points.
    #[must_use]
    pub fn thinned(series: &MemorySeries) -> Option<Self> {
        Self::thinned_to(series, POINTS_MAX)
    }

    /// The same with so many points, two or more.
    #[must_use]
    pub fn thinned_to(series: &MemorySeries, points_max: usize) -> Option<Self> {
        let values: Vec<f64> = series
            .best()
            .points
            .iter()
            .map(|point| point.value)
            .collect();
        let last = values.len().checked_sub(1).filter(|&last| last > 0)?;
        let stride = last.div_ceil(points_max.max(2) - 1);
        let mut shown = Vec::new();
        for from in (0..last).step_by(stride) {
            let stretch = from..(from + stride).min(last);
            // The first of equal ones.
            shown.extend(
                stretch
                    .rev()
                    .max_by(|&a, &b| values[a].total_cmp(&values[b])),
            );
        }
        shown.push(last);
        let of = |series: &Series| -> Vec<u64> {
            let points = shown.iter().filter_map(|&index| series.points.get(index));
            points.map(|point| point.value.max(0.0) as u64).collect()
        };
        let clock = shown
            .iter()
            .filter_map(|&index| series.rss.points.get(index));
        Some(Self {
            at_ns: clock.map(|point| point.at_ns).collect(),
            rss_bytes: of(&series.rss),
            memory_bytes: series.memory().map(of).unwrap_or_default(),
            phases: Vec::new(),
        })
    }

    /// Whether it shows what the processes kept by themselves; else resident memory.
    #[must_use]
    pub fn is_private(&self) -> bool {
        !self.memory_bytes.is_empty() && self.memory_bytes.len() == self.at_ns.len()
    }

    /// Bytes at a moment, on the line through the points.
    #[must_use]
    pub fn bytes_at(&self, at_s: f64) -> f64 {
        let mut before: Option<(f64, f64)> = None;
        for (point_s, bytes) in self.points() {
            if point_s >= at_s {
                return match before {
                    Some((from_s, from)) if point_s > from_s => {
                        from + (bytes - from) * (at_s - from_s) / (point_s - from_s)
                    }
                    _ => bytes,
                };
            }
            before = Some((point_s, bytes));
        }
        before.map_or(0.0, |(_, bytes)| bytes)
    }

    /// Seconds and bytes.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let bytes = match self.is_private() {
            true => &self.memory_bytes,
            false => &self.rss_bytes,
        };
        let pairs = self.at_ns.iter().zip(bytes);
        pairs.map(|(&at_ns, &bytes)| (at_ns as f64 / 1e9, bytes as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(count: u64, is_private: bool) -> MemorySeries {
        let mut series = MemorySeries::default();
        for index in 0..count {
            let bytes = if index == 77 {
                9_000_000
            } else {
                1_000_000 + index
            };
            let memory = is_private.then_some(bytes / 2);
            series.push(index * 50_000_000, bytes, memory);
        }
        series
    }

    /// Goal: few points, in order, with the peak and the end among them, of memory where it is known and of RSS at the
    /// same moments.
    #[test]
    fn peaks_and_the_end_stay() {
        let course = MemoryCourse::thinned(&series(1_000, true)).unwrap();
        assert!(course.at_ns.len() <= POINTS_MAX && course.at_ns.len() > POINTS_MAX / 2);
        assert!(course.at_ns.is_sorted() && course.is_private());
        assert_eq!(course.rss_bytes.iter().max(), Some(&9_000_000));
        assert_eq!(course.memory_bytes.iter().max(), Some(&4_500_000));
        assert_eq!(course.at_ns.last(), Some(&(999 * 50_000_000)));
        assert_eq!(course.rss_bytes.last(), Some(&1_000_999));
        assert_eq!(course.points().last(), Some((49.95, 500_499.0)));
        let short = MemoryCourse::thinned(&series(3, false)).unwrap();
        assert_eq!(short.points().count(), 3);
        assert_eq!(short.points().last(), Some((0.1, 1_000_002.0)));
        assert_eq!(MemoryCourse::thinned(&series(1, true)), None);
    }

    /// Goal: a clock goes on where another series is added, what was read apart stands at its time; one sample without
    /// memory leaves RSS alone.
    #[test]
    fn a_series_goes_on() {
        let mut all = series(3, true);
        all.insert(70_000_000, 12, Some(5));
        let memory = |all: &MemorySeries| all.memory().unwrap().points.clone();
        assert_eq!(
            (memory(&all)[2].at_ns, memory(&all)[2].value),
            (70_000_000, 5.0)
        );
        assert_eq!(all.rss.points.len(), 4);
        let mut all = series(3, true);
        all.append(&series(2, true), all.end_ns());
        let at_ns: Vec<u64> = all.rss.points.iter().map(|point| point.at_ns).collect();
        assert_eq!(
            at_ns,
            [0, 50_000_000, 100_000_000, 100_000_000, 150_000_000]
        );
        assert_eq!(all.memory().map(|memory| memory.points.len()), Some(5));
        all.append(&series(1, false), all.end_ns());
        assert_eq!(all.memory(), None);
        assert_eq!(all.best(), &all.rss);
        assert_eq!(MemorySeries::default().memory(), None);
    }

    /// Goal: a mark lies on the drawn line, before its first point and after its last one too.
    #[test]
    fn marks_lie_on_the_line() {
        let course = MemoryCourse {
            at_ns: vec![1_000_000_000, 3_000_000_000],
            rss_bytes: vec![100, 300],
            ..MemoryCourse::default()
        };
        let found = [0.5, 1.0, 2.0, 3.0, 9.0].map(|at_s| course.bytes_at(at_s));
        assert_eq!(found, [100.0, 100.0, 200.0, 300.0, 300.0]);
        assert_eq!(MemoryCourse::default().bytes_at(1.0), 0.0);
    }
}

//! Resident memory of one run over time, thinned to what a drawing can show.

use serde::{Deserialize, Serialize};

use super::Operation;
use crate::series::Series;

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

/// Memory since the server began to serve, of all its processes. No verdict is made from it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryCourse {
    /// When, since the server began to serve.
    pub at_ns: Vec<u64>,
    /// How much was resident then: in each stretch of time the most, at the end the last.
    pub rss_bytes: Vec<u64>,
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
    /// Hodges-Lehmann estimate of the rounds' slopes, in bytes of resident memory per request; negative if memory
    /// shrinks.
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
    pub fn thinned(series: &Series) -> Option<Self> {
        let points = &series.points;
        let (last, before) = points
            .split_last()
            .filter(|(_, before)| !before.is_empty())?;
        let stride = before.len().div_ceil(POINTS_MAX - 1);
        let peaks = before.chunks(stride).filter_map(|stretch| {
            let mut points = stretch.iter();
            let first = points.next()?;
            Some(points.fold(
                first,
                |most, one| if one.value > most.value { one } else { most },
            ))
        });
        let shown = peaks.chain([last]);
        let mut course = Self::default();
        for point in shown {
            course.at_ns.push(point.at_ns);
            course.rss_bytes.push(point.value.max(0.0) as u64);
        }
        Some(course)
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
        let pairs = self.at_ns.iter().zip(&self.rss_bytes);
        pairs.map(|(&at_ns, &bytes)| (at_ns as f64 / 1e9, bytes as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(count: u64) -> Series {
        let mut series = Series::default();
        for index in 0..count {
            series.push(
                index * 50_000_000,
                if index == 77 { 9e6 } else { 1e6 + index as f64 },
            );
        }
        series
    }

    /// Goal: few points, in order, with the peak and the end among them.
    #[test]
    fn peaks_and_the_end_stay() {
        let course = MemoryCourse::thinned(&series(1_000)).unwrap();
        assert!(course.at_ns.len() <= POINTS_MAX && course.at_ns.len() > POINTS_MAX / 2);
        assert!(course.at_ns.is_sorted());
        assert_eq!(course.rss_bytes.iter().max(), Some(&9_000_000));
        assert_eq!(course.at_ns.last(), Some(&(999 * 50_000_000)));
        assert_eq!(course.rss_bytes.last(), Some(&1_000_999));
        let short = MemoryCourse::thinned(&series(3)).unwrap();
        assert_eq!(short.points().count(), 3);
        assert_eq!(MemoryCourse::thinned(&series(1)), None);
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

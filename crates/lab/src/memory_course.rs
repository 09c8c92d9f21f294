//! The memory of one run on one clock: what the sampler saw, and what was read at the edges of phases.
//!
//! A reading at an edge is the same quantity as a sample, so both stand in one series, and what the table shows is a
//! point of the curve. The peak is the largest of them all: no sample of the run is above it. A peak between two of them
//! is missed; of resident memory the kernel keeps high-water marks, whose sum over processes is an upper bound, as these
//! need not have been at the same moment. The mean is over the time of the equal work alone: how long a target idles is
//! the user's choice.

use std::time::Instant;

use millpond_measure::process::MemorySample;
use millpond_measure::record::{CoursePhase, Measure, MemorySeries, Quantity, RoundMeasures};
use millpond_measure::series::Series;

use crate::edge::Edge;
use crate::sampler::Sampler;

/// What was read at the edges of a run, and the kernel's own peaks.
#[derive(Debug, Default)]
pub(crate) struct EdgeMemory {
    /// Those that are in no series yet.
    readings: Vec<(Instant, MemorySample)>,
    peak_rss_bytes: u64,
    cgroup_bytes: Option<u64>,
}

impl EdgeMemory {
    /// Takes in what was read at an edge.
    pub(crate) fn add(&mut self, edge: &Edge) {
        let process = &edge.usage.process;
        self.readings.push((edge.usage.at, process.memory));
        self.peak_rss_bytes = self.peak_rss_bytes.max(process.peak_rss_bytes);
        // Not comparable with the others: page cache and kernel memory are in it.
        self.cgroup_bytes = self.cgroup_bytes.max(edge.usage.cgroup.memory_peak_bytes);
    }

    /// Ends `sampler`; what it saw, and the readings since it began.
    pub(crate) fn finish(&mut self, sampler: Sampler) -> MemorySeries {
        let began = sampler.began();
        let mut series = sampler.finish();
        for (at, memory) in self.readings.drain(..) {
            let at_ns = at.saturating_duration_since(began).as_nanos();
            let at_ns = u64::try_from(at_ns).unwrap_or(u64::MAX);
            series.insert(at_ns, memory.rss_bytes, memory.private_bytes());
        }
        series
    }

    /// Notes the peaks over all of `series`, and the mean over those of `phases` that are work.
    pub(crate) fn note(
        &self,
        series: &MemorySeries,
        phases: &[CoursePhase],
        measures: &mut RoundMeasures,
    ) {
        let memory = series.memory();
        let (mut area, mut length_ns) = (0.0, 0.0);
        for phase in phases.iter().filter(|phase| phase.is_work()) {
            let mean = memory.and_then(|memory| memory.mean_between(phase.from_ns, phase.to_ns));
            if let Some(mean) = mean {
                let phase_ns = phase.to_ns.saturating_sub(phase.from_ns) as f64;
                area += mean * phase_ns;
                length_ns += phase_ns;
            }
        }
        let peak_rss = series.rss.largest().unwrap_or(0.0);
        let peak_rss = peak_rss.max(self.peak_rss_bytes as f64);
        for (quantity, value) in [
            (Quantity::PeakMemory, memory.and_then(Series::largest)),
            (
                Quantity::MeanMemory,
                (length_ns > 0.0).then(|| area / length_ns),
            ),
            (Quantity::PeakRss, (peak_rss > 0.0).then_some(peak_rss)),
            (
                Quantity::CgroupPeak,
                self.cgroup_bytes.map(|bytes| bytes as f64),
            ),
        ] {
            if let Some(bytes) = value {
                measures.set(Measure::whole(quantity), bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[(u64, Option<u64>)]) -> MemorySeries {
        let mut series = MemorySeries::default();
        for (index, &(rss, memory)) in values.iter().enumerate() {
            series.push(index as u64 * 10, rss, memory);
        }
        series
    }

    fn phases() -> Vec<CoursePhase> {
        let phase = |name: &str, from_ns, to_ns| CoursePhase {
            name: name.to_owned(),
            from_ns,
            to_ns,
        };
        vec![
            phase("warm-up", 0, 10),
            phase("put throughput", 10, 20),
            phase("get throughput", 20, 40),
            phase("idle", 40, 50),
        ]
    }

    fn found(edges: &EdgeMemory, series: &MemorySeries) -> [Option<f64>; 3] {
        let mut measures = RoundMeasures::default();
        edges.note(series, &phases(), &mut measures);
        [
            Quantity::PeakMemory,
            Quantity::MeanMemory,
            Quantity::PeakRss,
        ]
        .map(|quantity| measures.get(Measure::whole(quantity)))
    }

    /// The peak of RSS was once below a sample of the same run.
    ///
    /// Goal: no sample is above the peak, the mean is of the work alone, and what was not read everywhere is told of
    /// nothing.
    #[test]
    fn peaks_are_above_all_samples() {
        let edges = EdgeMemory {
            peak_rss_bytes: 70,
            ..EdgeMemory::default()
        };
        let sampled = series(&[
            (20, Some(90)),
            (20, Some(2)),
            (30, Some(4)),
            (90, Some(4)),
            (30, Some(4)),
            (20, Some(1)),
        ]);
        // 3 for 10 ns, and 4 for 20.
        let mean = 110.0 / 30.0;
        assert_eq!(
            found(&edges, &sampled),
            [Some(90.0), Some(mean), Some(90.0)]
        );
        let lower = series(&[(20, Some(2)), (30, Some(2))]);
        assert_eq!(found(&edges, &lower), [Some(2.0), Some(2.0), Some(70.0)]);
        let rss_alone = series(&[(20, Some(2)), (30, None), (90, Some(1))]);
        assert_eq!(found(&edges, &rss_alone), [None, None, Some(90.0)]);
        let nothing = EdgeMemory::default();
        assert_eq!(found(&nothing, &MemorySeries::default()), [None; 3]);
    }
}

//! What the machine did while something was measured, beyond what `edge` reads: processor frequency and
//! waiting.
//!
//! Read right after, while the processors are still at the frequency of the load. Whether a run was unlike
//! its fellows is decided when there are fellows (`millpond_measure::noise::flag_unlike_runs`).

use std::time::{Duration, Instant};

use millpond_measure::noise::{cpu_frequency_hz, cpu_pressure_ns};
use millpond_measure::record::RoundMeasures;

/// The moment before something is measured.
#[derive(Debug)]
pub(crate) struct Weather {
    pressure_ns: Option<u64>,
    began: Instant,
}

impl Weather {
    /// `has_pressure`: whether somebody waiting for a processor is a sign of disturbance. Not where the target's own
    /// waiting is read, and not where it has the highest priority: then the others wait for it.
    pub(crate) fn before(has_pressure: bool) -> Self {
        Self {
            pressure_ns: cpu_pressure_ns().filter(|_| has_pressure),
            began: Instant::now(),
        }
    }

    /// Adds what happened until now.
    pub(crate) fn add_to(&self, sum: &mut WeatherSum) {
        sum.elapsed += self.began.elapsed();
        sum.frequency_hz = cpu_frequency_hz();
        if let (Some(before), Some(after)) = (self.pressure_ns, cpu_pressure_ns()) {
            *sum.pressure_ns.get_or_insert(0) += after.saturating_sub(before);
        }
    }
}

/// The same over several stretches of time.
#[derive(Debug, Default)]
pub(crate) struct WeatherSum {
    elapsed: Duration,
    pressure_ns: Option<u64>,
    /// At the end of the last one.
    frequency_hz: Option<f64>,
}

impl WeatherSum {
    /// Notes it under the name of a phase.
    pub(crate) fn note(&self, phase: &str, measures: &mut RoundMeasures) {
        if let Some(hz) = self.frequency_hz {
            measures.cpu_frequency_hz.insert(phase.to_owned(), hz);
        }
        if let Some(pressure_ns) = self.pressure_ns {
            let elapsed_ns = self.elapsed.as_nanos() as f64;
            let share = pressure_ns as f64 / elapsed_ns.max(1.0);
            measures
                .cpu_pressure
                .insert(phase.to_owned(), share.min(1.0));
        }
    }
}

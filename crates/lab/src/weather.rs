//! What the machine did during a phase, beyond what `edge` reads: processor frequency and waiting.
//!
//! On the path: `scored` makes one before each phase and notes it right after, while the processors are
//! still at the frequency of the load. Whether a run was unlike its fellows is decided when there are
//! fellows (`millpond_measure::noise::flag_unlike_runs`).

use std::time::Instant;

use millpond_measure::noise::{cpu_frequency_hz, cpu_pressure_ns};
use millpond_measure::record::RoundMeasures;

/// The moment before a phase.
#[derive(Debug)]
pub(crate) struct Weather {
    pressure_ns: Option<u64>,
    began: Instant,
}

impl Weather {
    pub(crate) fn before() -> Self {
        Self {
            pressure_ns: cpu_pressure_ns(),
            began: Instant::now(),
        }
    }

    /// Notes what there is to note of the phase that ends now.
    pub(crate) fn note(&self, phase: &str, measures: &mut RoundMeasures) {
        let elapsed_ns = self.began.elapsed().as_nanos() as f64;
        if let Some(hz) = cpu_frequency_hz() {
            measures.cpu_frequency_hz.insert(phase.to_owned(), hz);
        }
        if let (Some(before), Some(after)) = (self.pressure_ns, cpu_pressure_ns()) {
            let share = after.saturating_sub(before) as f64 / elapsed_ns.max(1.0);
            measures
                .cpu_pressure
                .insert(phase.to_owned(), share.min(1.0));
        }
    }
}

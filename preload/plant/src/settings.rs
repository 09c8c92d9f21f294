//! What is planted, from the environment. A variable that is absent or no number plants nothing.

use crate::environment::number;

/// All settings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) instructions: u64,
    pub(crate) stall_every: u64,
    pub(crate) stall_us: u64,
    pub(crate) retain_bytes: usize,
}

impl Settings {
    pub(crate) fn read() -> Self {
        Self {
            instructions: number(c"PLANT_INSTRUCTIONS"),
            stall_every: number(c"PLANT_STALL_EVERY"),
            stall_us: number(c"PLANT_STALL_US"),
            retain_bytes: usize::try_from(number(c"PLANT_RETAIN_BYTES")).unwrap_or(0),
        }
    }
}

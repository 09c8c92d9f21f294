//! How arrivals lie: the points of a process with one arrival per unit, before it is stretched to a
//! rate.
//!
//! On the path: `Cursor` asks for point after point. A point's random number follows from seed and
//! number, so every thread draws the same. Absent on purpose: distributions of gaps that have no
//! meaning for independent users (normal, uniform gaps).
use crate::values::mix;
use std::fmt;

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
    pub(super) fn check(self) -> Result<(), String> {
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
pub(super) struct UnitProcess {
    spacing: Spacing,
    seed: u64,
    /// The last point of a Poisson process. A sum of a billion gaps keeps nine digits of its last,
    /// and no error grows faster than the gaps' own scatter.
    sum: f64,
}

impl UnitProcess {
    pub(super) fn new(spacing: Spacing, seed: u64) -> Self {
        Self {
            spacing,
            seed: mix(seed),
            sum: 0.0,
        }
    }

    /// The point of arrival `number`, which is one more than in the last call.
    #[inline]
    pub(super) fn point(&mut self, number: u64) -> f64 {
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

//! The margins of a comparison: up to which relative difference two candidates count as the same.
//!
//! A 99th percentile varies more than a rate and matters less for each percent, and instructions vary
//! hardly at all, so there are three. A comparison has its own (`compare --margin`), and they stand in the
//! record's settings: whoever judges its rounds again uses those.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Quantity;
use crate::units::format_percent;

/// Which of the margins holds for a quantity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MarginClass {
    /// For whatever has none of its own.
    Usual,
    /// 99th percentiles.
    P99,
    /// Instructions and heap calls.
    Counts,
}

/// The smallest relative differences worth acting on (0.05 = 5 %).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Margins {
    /// Throughput, medians, memory, CPU time and all else.
    pub usual: f64,
    /// 99th percentiles.
    pub p99: f64,
    /// Instructions and heap calls per request.
    pub counts: f64,
}

impl Default for Margins {
    fn default() -> Self {
        Self {
            usual: 0.05,
            p99: 0.15,
            counts: 0.01,
        }
    }
}

impl Margins {
    /// Which counts for `quantity`.
    #[must_use]
    pub const fn of(&self, quantity: Quantity) -> f64 {
        match quantity.margin_class() {
            MarginClass::Usual => self.usual,
            MarginClass::P99 => self.p99,
            MarginClass::Counts => self.counts,
        }
    }
}

impl fmt::Display for Margins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; p99 {}; instructions and heap calls {}",
            format_percent(self.usual),
            format_percent(self.p99),
            format_percent(self.counts)
        )
    }
}

/// A text that says no margins.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
#[error(
    "\"{part}\" is no margin: write a percentage above 0 and up to 100, as in 5%, p99=15% or counts=1%, \
     several with commas"
)]
pub struct MarginError {
    part: String,
}

impl FromStr for Margins {
    type Err = MarginError;

    /// `5%`, `p99=15%`, `counts=1%`, or several of them with commas; what is not named keeps its default.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut margins = Self::default();
        for part in text.split(',').map(str::trim) {
            let wrong = || MarginError {
                part: part.to_owned(),
            };
            let (margin, value) = match part.split_once('=') {
                None => (&mut margins.usual, part),
                Some(("p99", value)) => (&mut margins.p99, value),
                Some(("counts", value)) => (&mut margins.counts, value),
                Some(_) => return Err(wrong()),
            };
            let number = value.strip_suffix('%').unwrap_or(value).trim();
            let percent: f64 = number.parse().map_err(|_| wrong())?;
            if !(percent > 0.0 && percent <= 100.0) {
                return Err(wrong());
            }
            *margin = percent / 100.0;
        }
        Ok(margins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_margin_can_be_set() {
        let parse = |text: &str| text.parse::<Margins>();
        let usual = Margins::default();
        assert_eq!(
            parse("3%"),
            Ok(Margins {
                usual: 0.03,
                ..usual
            })
        );
        assert_eq!(parse("p99=20"), Ok(Margins { p99: 0.2, ..usual }));
        let all = Margins {
            usual: 0.025,
            p99: 0.1,
            counts: 0.005,
        };
        assert_eq!(parse("2.5 %, p99=10%,counts=0.5%"), Ok(all));
        assert_eq!(all.of(Quantity::PeakRss), 0.025);
        assert_eq!(all.of(Quantity::ResponseP99), 0.1);
        assert_eq!(all.of(Quantity::HeapCalls), 0.005);
        for wrong in ["", "0", "-1%", "101%", "nan", "p98=1%", "5%,", "p99="] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}

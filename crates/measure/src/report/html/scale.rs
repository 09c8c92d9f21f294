//! From a value to a pixel, and where the ticks go.

/// A linear or logarithmic axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// `low..high` onto the pixels `from..to`.
    pub(super) fn linear(low: f64, high: f64, from: f64, to: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self {
            low,
            high,
            from,
            to,
            logarithmic: false,
        }
    }

    /// The same with equal ratios at equal distances; both ends must be positive.
    pub(super) fn logarithmic(low: f64, high: f64, from: f64, to: f64) -> Self {
        let low = low.max(f64::MIN_POSITIVE);
        let high = if high > low { high } else { low * 2.0 };
        Self {
            low: low.ln(),
            high: high.ln(),
            from,
            to,
            logarithmic: true,
        }
    }

    /// The pixel of a value; outside the axis it sticks to the end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = if self.logarithmic {
            value.max(f64::MIN_POSITIVE).ln()
        } else {
            value
        };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }

    /// Whether the value lies on the axis.
    pub(super) fn shows(&self, value: f64) -> bool {
        let value = if self.logarithmic { value.ln() } else { value };
        let slack = 1e-9 * (self.high - self.low).abs();
        value >= self.low - slack && value <= self.high + slack
    }

    /// Round values (1, 2 or 5 times a power of ten), about `count` of them.
    pub(super) fn linear_ticks(&self, count: usize) -> Vec<f64> {
        let raw = (self.high - self.low) / count.max(1) as f64;
        let magnitude = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * magnitude)
            .find(|step| *step >= raw * 0.999)
            .unwrap_or(raw);
        let first = (self.low / step).ceil() as i64;
        (first..)
            .map(|index| index as f64 * step)
            .take_while(|value| *value <= self.high + step * 1e-9)
            .take(50)
            .collect()
    }

    /// Ticks of a time axis: 1, 2, 5 per decade, or the decades alone where those would crowd.
    pub(super) fn decade_ticks(&self) -> Vec<f64> {
        let (low, high) = (self.low.exp(), self.high.exp());
        let factors: &[f64] = if (high / low).log10() > 3.0 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let first = low.log10().floor() as i32;
        let last = high.log10().ceil() as i32;
        (first..=last)
            .flat_map(|power| {
                factors
                    .iter()
                    .map(move |factor| factor * 10_f64.powi(power))
            })
            .filter(|value| self.shows(*value))
            .collect()
    }

    /// Ticks of a ratio axis around 1, at least `gap` pixels apart; 1 always among them.
    pub(super) fn ratio_ticks(&self, gap: f64) -> Vec<f64> {
        // The more telling ones first: what comes later only fills what is still free.
        const WANTED: [f64; 31] = [
            1.0, 0.5, 2.0, 0.1, 10.0, 0.25, 4.0, 0.8, 1.25, 0.9, 1.1, 1.5, 0.67, 0.7, 1.4, 0.6,
            1.2, 0.95, 1.05, 3.0, 0.33, 0.2, 5.0, 1.02, 0.98, 1.03, 0.97, 1.01, 0.99, 1.005, 0.995,
        ];
        let mut ticks: Vec<f64> = Vec::new();
        for value in WANTED.into_iter().filter(|value| self.shows(*value)) {
            let free = |other: &f64| (self.at(*other) - self.at(value)).abs() >= gap;
            if ticks.iter().all(free) {
                ticks.push(value);
            }
        }
        ticks.sort_by(f64::total_cmp);
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round() {
        let scale = Scale::linear(0.0, 47_300.0, 0.0, 500.0);
        assert_eq!(
            scale.linear_ticks(5),
            [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0]
        );
        assert_eq!(Scale::linear(3.0, 3.0, 0.0, 1.0).linear_ticks(2).len(), 3);
    }

    #[test]
    fn ratio_ticks_keep_their_distance_and_show_one() {
        for (low, high) in [(0.97, 1.04), (0.8, 1.6), (0.3, 2.4), (0.05, 20.0)] {
            let scale = Scale::logarithmic(low, high, 0.0, 300.0);
            let ticks = scale.ratio_ticks(38.0);
            assert!(ticks.contains(&1.0) && ticks.len() >= 3, "{ticks:?}");
            assert!(
                ticks
                    .windows(2)
                    .all(|two| scale.at(two[1]) - scale.at(two[0]) >= 38.0)
            );
        }
    }

    #[test]
    fn values_outside_stick_to_the_ends() {
        let scale = Scale::logarithmic(1.0, 100.0, 0.0, 200.0);
        assert_eq!(scale.at(10.0), 100.0);
        assert_eq!(scale.at(0.0), 0.0);
        assert_eq!(scale.at(1e9), 200.0);
        assert_eq!(
            scale.decade_ticks(),
            [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
        );
    }
}

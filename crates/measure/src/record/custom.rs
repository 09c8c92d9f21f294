//! A quantity of the user's: what the program that makes the load printed, under a name, with a unit
//! and the way that is good.
//!
//! On the path: `lab` makes one of each `--load-metric` that is not among ours; verdicts and reports
//! treat it like every other. Its key in JSON says all there is to know, so a record reads back alone.

use std::sync::{Mutex, PoisonError};

use crate::statistics::Direction;

/// Begins the key of every quantity of the user's.
const PREFIX: &str = "custom:";

/// One of them. Small and `Copy`, as the others: what it says lives as long as the program, once for
/// each name.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CustomQuantity(&'static Said);

#[derive(Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Said {
    name: String,
    unit: String,
    is_higher_better: bool,
    key: String,
}

impl CustomQuantity {
    /// The quantity of that name, unit and direction; `None` if a name or unit is empty or holds
    /// what separates them in a key.
    #[must_use]
    pub fn new(name: &str, unit: &str, direction: Direction) -> Option<Self> {
        static KNOWN: Mutex<Vec<CustomQuantity>> = Mutex::new(Vec::new());
        let is_word = |word: &str| {
            !word.is_empty() && !word.contains([':', '.']) && !word.contains(char::is_control)
        };
        if !is_word(name) || !is_word(unit) {
            return None;
        }
        let is_higher_better = direction == Direction::HigherIsBetter;
        let way = if is_higher_better { "higher" } else { "lower" };
        let key = format!("{PREFIX}{name}:{unit}:{way}");
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&there) = known.iter().find(|there| there.0.key == key) {
            return Some(there);
        }
        let said = Said {
            name: name.to_owned(),
            unit: unit.to_owned(),
            is_higher_better,
            key,
        };
        let new = Self(Box::leak(Box::new(said)));
        known.push(new);
        Some(new)
    }

    /// Reads a key of [`Self::key`].
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        let mut words = key.strip_prefix(PREFIX)?.split(':');
        let (name, unit, way) = (words.next()?, words.next()?, words.next()?);
        let direction = match way {
            "higher" => Direction::HigherIsBetter,
            "lower" => Direction::LowerIsBetter,
            _ => return None,
        };
        match words.next() {
            Some(_) => None,
            None => Self::new(name, unit, direction),
        }
    }

    /// The name in JSON keys: `custom:NAME:UNIT:lower`.
    #[must_use]
    pub const fn key(self) -> &'static str {
        self.0.key.as_str()
    }

    /// The name in tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        self.0.name.as_str()
    }

    /// The unit of its values.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        self.0.unit.as_str()
    }

    /// Whether more is better.
    #[must_use]
    pub const fn direction(self) -> Direction {
        if self.0.is_higher_better {
            Direction::HigherIsBetter
        } else {
            Direction::LowerIsBetter
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a key says all there is, and the same words are the same quantity.
    #[test]
    fn a_key_reads_back() {
        let hits = CustomQuantity::new("hit ratio", "%", Direction::HigherIsBetter).unwrap();
        assert_eq!(hits.key(), "custom:hit ratio:%:higher");
        assert_eq!(CustomQuantity::from_key(hits.key()), Some(hits));
        assert_eq!((hits.label(), hits.unit()), ("hit ratio", "%"));
        assert_eq!(hits.direction(), Direction::HigherIsBetter);
        let lower = CustomQuantity::new("hit ratio", "%", Direction::LowerIsBetter).unwrap();
        assert_ne!(lower, hits);
        for wrong in [
            "custom:a:b",
            "custom:a:b:c",
            "custom:a:b:lower:x",
            "custom::b:lower",
            "a",
        ] {
            assert_eq!(CustomQuantity::from_key(wrong), None, "{wrong}");
        }
        assert_eq!(
            CustomQuantity::new("a:b", "s", Direction::LowerIsBetter),
            None
        );
    }
}

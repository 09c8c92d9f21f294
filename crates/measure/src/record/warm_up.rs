//! How the warm-up of a load run went.

use serde::{Deserialize, Serialize};

/// What was sent before the window, and counts for nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadWarmUp {
    /// How long it took.
    pub duration_ns: u64,
    /// With `--warm-up auto`: what its end was decided by; `None` if its length was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_steady: Option<LoadSteadiness>,
}

/// Whether throughput and median response time stopped changing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadSteadiness {
    /// When it ends in any case.
    pub limit_ns: u64,
    /// Whether it ended because they had.
    pub became_steady: bool,
    /// How long they changed at the beginning, by MSER; `None`: there was too little to tell.
    pub transient_ns: Option<u64>,
    /// Means that this was judged by.
    pub slices: u64,
}

impl LoadWarmUp {
    /// Of several generators: the longest, and steady only if each was.
    #[must_use]
    pub fn of_both(self, other: Self) -> Self {
        let until_steady = match (self.until_steady, other.until_steady) {
            (Some(one), Some(two)) => Some(LoadSteadiness {
                limit_ns: one.limit_ns.max(two.limit_ns),
                became_steady: one.became_steady && two.became_steady,
                transient_ns: one
                    .transient_ns
                    .zip(two.transient_ns)
                    .map(|(a, b)| a.max(b)),
                slices: one.slices.max(two.slices),
            }),
            (one, two) => one.or(two),
        };
        Self {
            duration_ns: self.duration_ns.max(other.duration_ns),
            until_steady,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_are_steady_if_each_is() {
        let one = |became_steady, transient_ns| LoadWarmUp {
            duration_ns: 5,
            until_steady: Some(LoadSteadiness {
                limit_ns: 9,
                became_steady,
                transient_ns,
                slices: 12,
            }),
        };
        let both = one(true, Some(3))
            .of_both(one(true, Some(4)))
            .until_steady
            .unwrap();
        assert_eq!((both.became_steady, both.transient_ns), (true, Some(4)));
        let both = one(true, Some(3))
            .of_both(one(false, None))
            .until_steady
            .unwrap();
        assert_eq!((both.became_steady, both.transient_ns), (false, None));
        let given = LoadWarmUp {
            duration_ns: 7,
            until_steady: None,
        };
        assert_eq!(given.of_both(one(true, None)).duration_ns, 7);
    }
}

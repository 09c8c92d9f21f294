//! How the requests of a run spread over its connections.
//!
//! On the path: a `worker` notes a connection when it is over, and those that are left when the run is;
//! `run` adds up the threads. Nothing is counted per request: a session knows how many it has taken.
//! Absent on purpose: which connection it was. Sums tell all that is asked, of ten thousand of them
//! too.

/// Requests answered on each connection that stood, warm-up included.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ConnectionUse {
    /// How many connections that was.
    pub connections: u64,
    /// Requests answered on all of them.
    pub requests: u64,
    /// Fewest on one; 0 without connections.
    pub requests_min: u64,
    /// Most on one.
    pub requests_max: u64,
    /// Sum of the squares.
    squares: u128,
}

impl ConnectionUse {
    /// A connection is over, or the run is.
    pub(crate) fn note(&mut self, requests: u64) {
        self.merge(&Self {
            connections: 1,
            requests,
            requests_min: requests,
            requests_max: requests,
            squares: u128::from(requests).pow(2),
        });
    }

    /// Adds other connections.
    pub(crate) fn merge(&mut self, other: &Self) {
        if other.connections == 0 {
            return;
        }
        self.requests_min = match self.connections {
            0 => other.requests_min,
            _ => self.requests_min.min(other.requests_min),
        };
        self.requests_max = self.requests_max.max(other.requests_max);
        self.connections += other.connections;
        self.requests += other.requests;
        self.squares += other.squares;
    }

    /// Requests on a connection, on average; 0 without connections.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self.connections {
            0 => 0.0,
            connections => self.requests as f64 / connections as f64,
        }
    }

    /// Variance of the requests on a connection, of all there were.
    #[must_use]
    pub fn variance(&self) -> f64 {
        if self.connections == 0 {
            return 0.0;
        }
        // Whole numbers to the end: the difference of two large ones loses nothing.
        let connections = u128::from(self.connections);
        let spread = connections * self.squares - u128::from(self.requests).pow(2);
        spread as f64 / (connections as f64).powi(2)
    }

    /// Jain's index of fairness: 1 if all carried the same, 1 / n if one carried all.
    #[must_use]
    pub fn fairness(&self) -> f64 {
        if self.squares == 0 {
            return 1.0;
        }
        let sum = self.requests as f64;
        sum * sum / (self.connections as f64 * self.squares as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(counts: &[u64]) -> ConnectionUse {
        let mut all = ConnectionUse::default();
        counts.iter().for_each(|&count| all.note(count));
        all
    }

    /// Goal: the figures are those of the textbook, however the connections are split among threads.
    #[test]
    fn sums_are_enough() {
        let counts = [4_990, 5_000, 5_010, 0];
        let all = of(&counts);
        assert_eq!((all.connections, all.requests), (4, 15_000));
        assert_eq!((all.requests_min, all.requests_max), (0, 5_010));
        assert!((all.mean() - 3_750.0).abs() < 1e-9);
        let variance: f64 = counts
            .iter()
            .map(|&count| (count as f64 - 3_750.0).powi(2) / 4.0)
            .sum();
        assert!((all.variance() - variance).abs() < 1e-6, "{all:?}");
        for split in 0..=counts.len() {
            let (left, right) = counts.split_at(split);
            let mut merged = of(left);
            merged.merge(&of(right));
            assert_eq!(merged, all);
        }
    }

    #[test]
    fn fairness_is_between_one_of_n_and_one() {
        assert!((of(&[7, 7, 7]).fairness() - 1.0).abs() < 1e-12);
        assert!((of(&[9, 0, 0]).fairness() - 1.0 / 3.0).abs() < 1e-12);
        let none = ConnectionUse::default();
        assert_eq!(
            (none.fairness(), none.mean(), none.variance()),
            (1.0, 0.0, 0.0)
        );
        assert!(
            (of(&[0, 0]).fairness() - 1.0).abs() < 1e-12,
            "nobody got more"
        );
    }
}

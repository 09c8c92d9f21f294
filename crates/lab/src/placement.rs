//! Which CPUs the server gets and which the generator, and their priority.
//!
//! Apart if there are two or more: a generator on the server's CPU would be measured as server. Before other programs,
//! if that is permitted: one that wakes once a second for 5 ms is half a percent of the time, and decides a p99.

use millpond_io::{allowed_cpus, may_raise_priority};

/// CPUs and priority for both sides.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Placement {
    /// Empty: anywhere.
    pub server: Vec<usize>,
    /// Empty: anywhere.
    pub generator: Vec<usize>,
    /// CPUs that both may use as the kernel likes, if neither is pinned; 0 if they are, or if there is only one.
    pub unpinned: usize,
    /// Whether both have the highest priority of ordinary tasks.
    pub is_raised: bool,
}

impl Placement {
    /// Divides the CPUs this process may use.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let allowed = allowed_cpus().unwrap_or_default();
        Self {
            is_raised: may_raise_priority(),
            ..Self::divide(&allowed)
        }
    }

    /// The last quarter, at least one CPU, for the generator; the rest for the server. A single CPU
    /// is shared by both.
    fn divide(allowed: &[usize]) -> Self {
        if allowed.len() < 2 {
            return Self {
                server: Vec::new(),
                generator: Vec::new(),
                unpinned: 0,
                is_raised: false,
            };
        }
        let (server, generator) = allowed.split_at(allowed.len() - (allowed.len() / 4).max(1));
        Self {
            server: server.to_vec(),
            generator: generator.to_vec(),
            unpinned: 0,
            is_raised: false,
        }
    }

    /// The same with both on all of their CPUs.
    #[must_use]
    pub fn without_pins(self) -> Self {
        Self {
            unpinned: self.server.len() + self.generator.len(),
            server: Vec::new(),
            generator: Vec::new(),
            is_raised: self.is_raised,
        }
    }

    /// Whether no CPU is both the server's and the generator's.
    #[must_use]
    pub fn is_apart(&self) -> bool {
        let is_common = |cpu| self.server.contains(cpu);
        !self.server.is_empty()
            && !self.generator.is_empty()
            && !self.generator.iter().any(is_common)
    }

    /// Threads that make sense for the server.
    #[must_use]
    pub fn server_threads(&self) -> usize {
        self.server.len().max(self.unpinned).max(1)
    }

    /// Threads that make sense for the generator.
    #[must_use]
    pub fn generator_threads(&self) -> usize {
        self.generator.len().max(self.unpinned / 4).max(1)
    }

    /// For the record: `server 0; generator 1; both before other programs`.
    #[must_use]
    pub fn describe(&self) -> String {
        let priority = match self.is_raised {
            true => "; both before other programs (nice -20)",
            false => "",
        };
        if self.unpinned > 0 {
            return format!(
                "not pinned: {} CPUs for server and generator{priority}",
                self.unpinned
            );
        }
        if self.server.is_empty() {
            return format!("server and generator share one CPU{priority}");
        }
        let list = |cpus: &[usize]| {
            cpus.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(",")
        };
        format!(
            "server {}; generator {}{priority}",
            list(&self.server),
            list(&self.generator)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_divided() {
        let divide = |count: usize| {
            let placement = Placement::divide(&(0..count).collect::<Vec<_>>());
            (placement.server.len(), placement.generator.len())
        };
        assert_eq!([divide(0), divide(1), divide(2)], [(0, 0), (0, 0), (1, 1)]);
        assert_eq!(
            [divide(3), divide(4), divide(16)],
            [(2, 1), (3, 1), (12, 4)]
        );
        let mut placement = Placement::divide(&[2, 5, 7]);
        assert_eq!(placement.describe(), "server 2,5; generator 7");
        assert!(placement.is_apart() && !Placement::divide(&[3]).is_apart());
        placement.is_raised = true;
        let text = placement.describe();
        assert!(text.starts_with("server 2,5; generator 7; both before"));
        placement.generator.push(2);
        assert!(!placement.is_apart());
        let free = Placement::divide(&[0, 1, 2, 3, 4, 5, 6, 7]).without_pins();
        assert_eq!((free.server_threads(), free.generator_threads()), (8, 2));
        assert!(!free.is_apart() && free.server.is_empty());
        assert_eq!(
            free.describe(),
            "not pinned: 8 CPUs for server and generator"
        );
        assert_eq!(
            Placement::divide(&[3]).describe(),
            "server and generator share one CPU"
        );
    }
}

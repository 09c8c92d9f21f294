//! Which CPU each thread of a program with two runs on.
//!
//! On the path: `producer_consumer` and `two_threads`, before anything is timed. Where the scheduler
//! is free to put both on one CPU, a hand-over costs no transfer between caches in one run and two
//! of them in the next, and the runs of an allocator differ by more than the allocators do.
//! Absent on purpose: errors. Where the system does not let a thread choose, it runs where it is put.

use millpond_io::{allowed_cpus, pin_to};

/// The CPUs this process may use, as they were before any thread chose one.
pub(crate) struct Cpus {
    allowed: Vec<usize>,
}

impl Cpus {
    /// Those the calling thread may use.
    pub(crate) fn allowed() -> Self {
        Self {
            allowed: allowed_cpus().unwrap_or_default(),
        }
    }

    /// Keeps the calling thread on the CPU of this number, counted from 0 around those allowed.
    pub(crate) fn pin(&self, number: usize) {
        if let Some(&cpu) = self.allowed.get(number % self.allowed.len().max(1)) {
            // Not being allowed to choose leaves the thread where it is.
            let _ = pin_to(cpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a thread that chose a CPU is on it alone, and numbers go around.
    #[test]
    fn threads_stay_where_they_are_put() {
        let cpus = Cpus::allowed();
        for number in 0..2 * cpus.allowed.len() {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    cpus.pin(number);
                    let expected = [cpus.allowed[number % cpus.allowed.len()]];
                    assert_eq!(Cpus::allowed().allowed, expected);
                });
            });
        }
    }
}

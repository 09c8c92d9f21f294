//! What the scheduler counts for each thread (`/proc/PID/task/TID/schedstat`).

/// CPU time and time of waiting of one thread since its start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ThreadTimes {
    /// User and kernel time.
    pub cpu_ns: u64,
    /// How long it was ready and did not run.
    pub waited_ns: u64,
}

impl ThreadTimes {
    /// Reads `cpu_ns waited_ns turns`. `None` if that is not what the text is. Allocates nothing.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace();
        Some(Self {
            cpu_ns: fields.next()?.parse().ok()?,
            waited_ns: fields.next()?.parse().ok()?,
        })
    }

    /// What was added since `earlier`; nothing where a counter went back.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the first two numbers are taken, whatever follows, and other texts are none.
    #[test]
    fn the_kernels_line_is_read() {
        let times = ThreadTimes {
            cpu_ns: 12,
            waited_ns: 3,
        };
        assert_eq!(ThreadTimes::parse("12 3 4\n"), Some(times));
        assert_eq!(ThreadTimes::parse("12"), None);
        assert_eq!(ThreadTimes::parse("12 x 4"), None);
        let later = ThreadTimes {
            cpu_ns: 20,
            waited_ns: 2,
        };
        let since = later.since(times);
        assert_eq!((since.cpu_ns, since.waited_ns), (8, 0));
    }
}

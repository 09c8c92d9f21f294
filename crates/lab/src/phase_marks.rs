//! What a run was at, and when: the marks on the drawing of its memory over time.

use std::time::Instant;

use millpond_measure::record::CoursePhase;

use crate::rounds::nanoseconds;

/// The phases of one run, in order. Memory is sampled on the same clock.
#[derive(Debug)]
pub(crate) struct PhaseMarks {
    began: Instant,
    phases: Vec<CoursePhase>,
}

impl PhaseMarks {
    /// Nothing yet; `began` is the zero of all times.
    pub(crate) fn new(began: Instant) -> Self {
        Self {
            began,
            phases: Vec::new(),
        }
    }

    /// A phase begins, and the one before ends.
    pub(crate) fn enter(&mut self, name: &str) {
        let now_ns = nanoseconds(self.began.elapsed());
        self.close(now_ns);
        self.phases.push(CoursePhase {
            name: name.to_owned(),
            from_ns: now_ns,
            // Open until the next one.
            to_ns: u64::MAX,
        });
    }

    /// All of them; the last ends now.
    pub(crate) fn finish(mut self) -> Vec<CoursePhase> {
        self.close(nanoseconds(self.began.elapsed()));
        self.phases
    }

    fn close(&mut self, now_ns: u64) {
        if let Some(last) = self.phases.last_mut().filter(|it| it.to_ns == u64::MAX) {
            last.to_ns = now_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: phases follow each other without a gap, and the last one ends.
    #[test]
    fn phases_follow_each_other() {
        let mut marks = PhaseMarks::new(Instant::now());
        for name in ["put throughput", "idle", "get latency"] {
            marks.enter(name);
        }
        let phases = marks.finish();
        let names: Vec<&str> = phases.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["put throughput", "idle", "get latency"]);
        assert!(phases.windows(2).all(|two| two[0].to_ns == two[1].from_ns));
        assert!(
            phases
                .iter()
                .all(|one| one.from_ns <= one.to_ns && one.to_ns < u64::MAX)
        );
        assert!(PhaseMarks::new(Instant::now()).finish().is_empty());
    }
}

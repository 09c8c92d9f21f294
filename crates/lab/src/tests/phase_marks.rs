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

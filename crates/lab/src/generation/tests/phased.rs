use super::*;

/// Candidates that took their turns one after the other were drawn at the times of their turns.
///
/// Goal: waits between cycles and the warm-up are in no drawing; what was sampled in phases is, one behind the other.
#[test]
fn waits_are_not_drawn() {
    let mut memory = MemorySeries::default();
    for at_ns in 0..100 {
        memory.push(at_ns, 1_000 + at_ns, Some(at_ns));
    }
    let phase = |name: &str, from_ns, to_ns| CoursePhase {
        name: name.to_owned(),
        from_ns,
        to_ns,
    };
    let phases = [
        phase(WARM_UP, 0, 10),
        phase("burst", 20, 30),
        phase("idle", 30, 40),
        phase("burst", 80, 90),
    ];
    let (own, marks) = without_waits(&memory, &phases);
    assert_eq!(marks[0], phase("burst", 0, 10));
    assert_eq!(marks[2], phase("burst", 20, 30));
    let points = &own.memory().unwrap().points;
    assert_eq!(points.len(), 30);
    let value = |at: usize| (points[at].at_ns, points[at].value);
    assert_eq!(
        (value(0), value(19), value(20)),
        ((0, 20.0), (19, 39.0), (20, 80.0))
    );
    assert_eq!(own.rss.points[20].value, 1_080.0);
}

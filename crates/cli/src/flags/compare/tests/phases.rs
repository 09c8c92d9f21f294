use super::*;

fn flags(text: &str) -> PhaseFlags {
    PhaseFlags {
        phases: Some(text.to_owned()),
        cycles: None,
    }
}

/// Goal: each part of a phase is read, a path with its colons; a burst that names nothing has more connections.
#[test]
fn phases_are_read() {
    let text = "steady:20s:rate=500, burst:5s, burst:1s:connections=9:path=/a?t=1:2 ,idle:15s";
    let plan = flags(text).plan(64).unwrap().unwrap();
    let kinds: Vec<PhaseKind> = plan.phases.iter().map(|spec| spec.kind).collect();
    use PhaseKind::{Burst, Idle, Steady};
    assert_eq!(kinds, [Steady, Burst, Burst, Idle]);
    assert_eq!(plan.phases[0].rate_per_s, Some(500.0));
    assert_eq!(plan.phases[0].duration_ns, 20_000_000_000);
    assert_eq!(plan.phases[1].connections, Some(256));
    assert_eq!(plan.phases[2].connections, Some(9));
    assert_eq!(plan.phases[2].path.as_deref(), Some("/a?t=1:2"));
    assert_eq!(plan.cycles, 3);
    assert_eq!(plan.label(1), "burst 1");
    assert_eq!(plan.label(3), "idle");
}

/// Goal: unreadable text is refused with the part that is wrong and an example.
#[test]
fn wrong_phases_are_refused() {
    for (text, part) in [
        ("calm:5s", "\"calm\" is no phase"),
        ("steady", "has no length"),
        ("steady:soon", "duration"),
        ("idle:5s:rate=5", "takes no rate"),
        ("burst:5s:speed=5", "\"speed\" is not known here"),
        ("burst:5s:path=x", "begins with /"),
        ("burst:5s:connections=0", ""),
    ] {
        let error = parse_phase(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

/// Goal: a file has one a line, with comments.
#[test]
fn a_file_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("phases");
    std::fs::write(&file, "# a day\nsteady:20s\nburst:5s # noon\n\nidle:15s\n").unwrap();
    let plan = flags(file.to_str().unwrap()).plan(600).unwrap().unwrap();
    assert_eq!(plan.phases.len(), 3);
    assert_eq!(plan.phases[1].connections, Some(1024));
}

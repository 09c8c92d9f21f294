use super::*;

/// Goal: the settings that a test writes are the planted ones, and nothing else is taken for a plan.
#[test]
fn plans_are_read_whole() {
    let plan = |text: &str| text.parse::<Plan>();
    let expected = Plan {
        kind: Kind::Sync,
        number: 7,
        is_lasting: false,
        errno: libc::EIO,
    };
    assert_eq!(plan("sync:7"), Ok(expected));
    assert_eq!(plan("sync:7:EIO"), Ok(expected));
    let expected = Plan {
        kind: Kind::Write,
        number: 12,
        is_lasting: true,
        errno: libc::ENOSPC,
    };
    assert_eq!(plan("write:12+:ENOSPC"), Ok(expected));
    for bad in [
        "",
        "sync",
        "sync:",
        "sync:x",
        "read:1",
        "sync:1:EPERM",
        "sync:++",
    ] {
        assert_eq!(plan(bad), Err(BadPlan), "{bad}");
    }
}

/// Goal: only calls of the kind on the chosen files are counted, and the right one fails.
#[test]
fn the_right_call_fails() {
    let settings = |plan: &str| Settings {
        plan: Some(plan.parse().unwrap()),
        only: ".log".to_owned(),
        ..Settings::default()
    };
    let calls = [
        (Kind::Sync, "/d/1.log"),
        (Kind::Write, "/d/1.log"),
        (Kind::Sync, "/d/1.sst"),
        (Kind::Sync, "/d/1.log"),
        (Kind::Sync, "/d/1.log"),
    ];
    let failed = |plan: &str| {
        let settings = settings(plan);
        calls.map(|(kind, path)| settings.failure(kind, Path::new(path)).is_some())
    };
    assert_eq!(failed("sync:2"), [false, false, false, true, false]);
    assert_eq!(failed("sync:2+"), [false, false, false, true, true]);
    assert_eq!(failed("sync:4"), [false; 5]);
}

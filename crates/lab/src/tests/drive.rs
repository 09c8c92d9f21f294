use super::*;

fn config(mode: Mode) -> LoadConfig {
    let target = millpond_load::Target {
        addresses: ["127.0.0.1:1".parse().unwrap()].into(),
        host: "x".to_owned(),
        path: "/".to_owned(),
    };
    let workload = Workload::EntityGet {
        keys: 1,
        value_bytes: 1,
        seed: 1,
    };
    LoadConfig {
        mode,
        connections: 2,
        timeout_ns: 0,
        ..LoadConfig::new(target, workload)
    }
}

fn progress(completed: u64, status: u64) -> Progress {
    let mut now = Progress {
        completed,
        ..Progress::default()
    };
    now.errors.status = status;
    now
}

/// Goal: a phase ends early when failures are more than chance explains, and not because of one.
#[test]
fn a_phase_that_fails_ends_early() {
    let watch = Watch::new(&Unobserved, &config(Mode::ClosedLoop), 0.001);
    watch.progress(&progress(500, 1));
    assert!(!watch.has_seen_enough());
    watch.progress(&progress(900, 100));
    assert!(watch.has_seen_enough());
}

/// Goal: a target hangs if every connection waits without a response; where one of two does, it serves too few
/// connections.
#[test]
fn who_waits_in_vain_tells_a_hang() {
    let watch = Watch::new(&Unobserved, &config(Mode::ClosedLoop), 0.001);
    let mut record = LoadRecord {
        requests: 7,
        ..LoadRecord::default()
    };
    watch.progress(&progress(7, 0));
    assert_eq!(watch.silence(&record), None);
    record.errors.timeout = 1;
    assert_eq!(watch.silence(&record), None);
    record.errors.timeout = 2;
    assert!(watch.silence(&record).is_some());
    record.requests = 8;
    assert_eq!(watch.silence(&record), None, "a response came since");
    let slow = Mode::ConstantRate { per_s: 0.5 };
    let patience = Watch::new(&Unobserved, &config(slow), 0.0).patience;
    assert_eq!(patience, Duration::from_secs(2));
}

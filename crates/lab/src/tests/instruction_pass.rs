use super::*;

fn occasion() -> Occasion {
    Occasion {
        wanted: None,
        rounds: None,
        has_counters: false,
        has_load_command: false,
        allowance: Duration::from_secs(150),
        overhead: Duration::from_millis(50),
        operations: 1,
        candidates: 3,
    }
}

fn counts(occasion: &Occasion) -> u32 {
    match decide(occasion, Some(PathBuf::from("/usr/bin/valgrind"))) {
        Decision::Count { counts, .. } => counts,
        Decision::No => 0,
        Decision::NoTime(_) => u32::MAX,
    }
}

/// Goal: counted by default where nothing else counts, it is here, and there is time; never beyond the rounds; always
/// if the user says so, and never for 0.
#[test]
fn counting_is_for_machines_without_counters() {
    let usual = occasion();
    assert_eq!(counts(&usual), 7);
    assert_eq!(decide(&usual, None), Decision::No);
    let counted = Occasion {
        has_counters: true,
        ..occasion()
    };
    assert_eq!(counts(&counted), 0);
    let wanted = Occasion {
        wanted: Some(12),
        ..counted
    };
    assert_eq!(counts(&wanted), 12);
    let few = Occasion {
        rounds: Some(3),
        ..occasion()
    };
    assert_eq!(counts(&few), 3);
    let none = Occasion {
        wanted: Some(0),
        ..occasion()
    };
    assert_eq!(counts(&none), 0);
    let own = Occasion {
        has_load_command: true,
        ..occasion()
    };
    assert_eq!(counts(&own), 0);
    let hasty = Occasion {
        allowance: Duration::from_secs(20),
        ..occasion()
    };
    assert!(matches!(
        decide(&hasty, Some(PathBuf::from("/usr/bin/valgrind"))),
        Decision::NoTime(why) if why.contains("about 21") && why.contains("--emulated-counts")
    ));
}

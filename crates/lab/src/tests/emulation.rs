use super::*;

#[test]
fn the_last_totals_count() {
    let text = "events: Ir\nfn=(1) main\n0 7\n\ntotals: 4215\n";
    assert_eq!(total_of(text), Some(4215));
    assert_eq!(total_of(&format!("{text}\ntotals: 12\n")), Some(12));
    assert_eq!(total_of("events: Ir\n"), None);
}

/// Goal: a slow server is asked for what it can do, a fast one for enough, and one of which nothing is
/// known for the least.
#[test]
fn work_follows_the_slowest() {
    let both = [Operation::Put, Operation::Get];
    let found = works(&both, &[1_000.0, 1e9]);
    let sizes: Vec<_> = found
        .iter()
        .map(|work| (work.first, work.counted))
        .collect();
    assert_eq!(sizes, [(62, 250), (5_000, 20_000)]);
    let unknown = works(&both[..1], &[]);
    assert_eq!(unknown[0].counted, COUNTED_REQUESTS_MIN);
}

/// Goal: time decides how often, up to the most that is of use.
#[test]
fn counts_are_what_time_pays() {
    let overhead = Duration::from_millis(50);
    // Two runs of 3.5 s for each of three candidates.
    assert_eq!(once(overhead, 1, 3), Duration::from_secs(21));
    assert_eq!(affordable(Duration::from_secs(20), overhead, 1, 3), 0);
    assert_eq!(affordable(Duration::from_secs(150), overhead, 1, 3), 7);
    assert_eq!(
        affordable(Duration::from_secs(9_000), overhead, 1, 3),
        COUNTS_MAX
    );
}

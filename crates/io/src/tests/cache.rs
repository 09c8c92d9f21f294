use super::*;

const CONFIG: ResolverConfig = ResolverConfig {
    good_ns: 100,
    bad_ns: 10,
    stale_ns: 1000,
    threads: 1,
};

fn good(port: u16) -> Result<Arc<[Address]>, ResolveError> {
    Ok(Arc::new([Address::Inet(([127, 0, 0, 1], port).into())]))
}

fn bad() -> Result<Arc<[Address]>, ResolveError> {
    Err(ResolveError::Unknown {
        name: "a".to_owned(),
        reason: "gone".into(),
    })
}

/// Goal: each kind of response holds for its own time and no longer.
#[test]
fn answers_hold_for_their_time() {
    let mut cache = Cache::new(CONFIG);
    assert!(cache.get("a", 1, 0).is_none());
    assert_eq!(cache.put("a", 1, good(1), 0).valid_ns, 100);
    let half = cache.get("a", 1, 50).unwrap();
    assert_eq!((half.result, half.valid_ns), (good(1), 50));
    assert!(
        cache.get("a", 2, 50).is_none(),
        "another port is another name"
    );
    assert!(cache.get("a", 1, 100).is_none());
    assert_eq!(cache.put("b", 1, bad(), 0).result, bad());
    assert_eq!(cache.get("b", 1, 9).unwrap().result, bad());
    assert!(cache.get("b", 1, 10).is_none());
}

/// Goal: old addresses serve while lookups fail, looked up again each short while, until they are
/// too old; and a good lookup ends that at once.
#[test]
fn stale_addresses_stand_in_for_a_failure() {
    let mut cache = Cache::new(CONFIG);
    cache.put("a", 1, good(1), 0);
    let stale = cache.put("a", 1, bad(), 150);
    assert_eq!((stale.result, stale.valid_ns), (good(1), 10));
    assert!(cache.get("a", 1, 160).is_none());
    assert_eq!(cache.put("a", 1, bad(), 1099).result, good(1));
    assert_eq!(cache.put("a", 1, bad(), 1110).result, bad(), "too old");
    assert_eq!(cache.put("a", 1, good(2), 1200).result, good(2));
    assert_eq!(cache.put("a", 1, bad(), 1310).result, good(2), "the newer");
}

/// Goal: names without end take memory with an end.
#[test]
fn names_are_forgotten_when_there_are_too_many() {
    let mut cache = Cache::new(CONFIG);
    for name in 0..3 * NAMES_MAX {
        cache.put(&name.to_string(), 1, good(1), 0);
        assert!(cache.entries.len() <= NAMES_MAX);
    }
}

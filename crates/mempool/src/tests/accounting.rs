use super::*;

const BALANCED: PoolStats = PoolStats {
    name: "test",
    kind: "block",
    mode: PoolMode::On,
    live_objects: 1,
    live_bytes: 60,
    cached_bytes: 36,
    waste_bytes: 4,
    reserved_bytes: 100,
    high_water_bytes: 60,
    hits: 0,
    misses: 1,
    remote_frees: 0,
};

/// Goal: the check that the other tests lean on can fail, in each of its three parts.
#[test]
fn identity_check_sees_each_kind_of_error() {
    assert!(BALANCED.identity_holds());
    assert!(
        !PoolStats {
            reserved_bytes: 101,
            ..BALANCED
        }
        .identity_holds()
    );
    assert!(
        !PoolStats {
            mode: PoolMode::Off,
            ..BALANCED
        }
        .identity_holds()
    );
    assert!(
        !PoolStats {
            high_water_bytes: 59,
            ..BALANCED
        }
        .identity_holds()
    );
}

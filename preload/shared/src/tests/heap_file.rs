use super::*;

/// Goal: every size lies within the bounds of its class, classes follow each other without a gap,
/// and none is wider than an eighth of its smallest size.
#[test]
fn classes_cover_all_sizes() {
    let mut expected = 0;
    for class in 0..SIZE_CLASSES {
        let (low, high) = class_bounds(class);
        assert_eq!(low, expected, "{class}");
        for size in [low, high.min(1 << 60)] {
            assert_eq!(size_class(size as usize), class, "{size}");
        }
        if class + 1 < SIZE_CLASSES {
            assert!(high - low < low.div_ceil(8).max(1), "{low}..{high}");
            expected = high + 1;
        }
    }
    assert_eq!(size_class(usize::MAX), SIZE_CLASSES - 1);
}

#[test]
fn keys_keep_both_parts() {
    let (address, process) = (0x7fff_dead_beef_usize, 4095);
    let one = key(address, process);
    assert_eq!(
        (process_of(one), one & 0xffff_ffff_ffff),
        (4095, address as u64)
    );
    assert_ne!(key(address, 1), key(address, 2));
}

/// Goal: blocks that lie side by side, as allocators place them, spread over filter and buckets.
#[test]
fn neighbours_spread() {
    for distance in [16, 48, 64, 4096] {
        let mut counts = vec![0_usize; BUCKETS];
        let mut filter = vec![0_usize; FILTER_ENTRIES];
        for index in 0..BUCKETS {
            let (entry, bucket) = places(0x5555_0000_0010 + index * distance);
            counts[bucket] += 1;
            filter[entry] += 1;
        }
        let fullest = counts.iter().max().copied().unwrap_or(0);
        assert!(fullest <= BUCKET_ENTRIES / 2, "{distance}: {fullest}");
        assert!(filter.iter().max().copied().unwrap_or(0) <= 6, "{distance}");
    }
}

#[test]
fn lifetimes() {
    assert_eq!(lifetime_class(0), 0);
    assert_eq!(lifetime_class(1), 1);
    assert_eq!(lifetime_class(1_000_000), 20);
    assert_eq!(lifetime_class(u64::MAX), 63);
}

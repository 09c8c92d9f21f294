use super::*;

/// Goal: records on disk are found again by every later build.
#[test]
fn answers_never_change() {
    for (id, of_64, of_256) in [
        (&b""[..], 33, 133),
        (b"a", 32, 130),
        (b"key", 44, 179),
        (b"\0\xff", 22, 91),
    ] {
        assert_eq!(
            (bucket_of(id, 64), bucket_of(id, 256)),
            (of_64, of_256),
            "{id:?}"
        );
    }
}

/// Goal: ids that differ little are spread evenly, into all partitions and no others.
#[test]
fn neighbours_are_spread() {
    for buckets in [1, 3, 64, 1000] {
        let mut counts = vec![0; usize::from(buckets)];
        for n in 0..100 * u32::from(buckets) {
            counts[bucket_of(format!("user:{n:08}").as_bytes(), buckets) as usize] += 1;
        }
        let (min, max) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*min >= 50 && *max <= 160, "{buckets}: {min} to {max}");
    }
}

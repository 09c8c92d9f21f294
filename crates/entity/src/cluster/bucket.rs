//! In which partition an id lies.
//!
//! On the path: every statement begins with it. Its answers are on the nodes' disks: they may never
//! change.
//! Absent on purpose: a seed. Whoever picks ids so that all fall into one partition harms his own data.

/// FNV-1a, mixed so that all of its bits count, and scaled down by its high half.
pub(super) fn bucket_of(id: &[u8], buckets: u16) -> i32 {
    let hash = id.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (((mixed >> 32) * u64::from(buckets)) >> 32) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what lies on disks is found again by every later build.
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
}

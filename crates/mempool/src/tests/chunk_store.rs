use super::*;

/// Goal: runs are found exactly where a search by hand finds them.
#[test]
fn first_run_is_the_lowest() {
    let patterns = [
        0,
        1,
        ALL_FREE,
        u64::MAX,
        0b1011_0110,
        0xF0F0_FF00_0FF0_00F0,
        1 << 63,
    ];
    for bits in patterns {
        for count in (1..64).step_by(if cfg!(miri) { 9 } else { 1 }) {
            let expected = (0..=64 - count)
                .find(|&index| bits & run_mask(index, count) == run_mask(index, count));
            assert_eq!(first_run(bits, count), expected, "{bits:b} {count}");
        }
    }
}

/// Goal: runs of all lengths are apart, found by any address in them, and reused; purged memory reads as zero.
#[test]
fn runs_are_apart_and_found_by_address() {
    // Miri would take minutes for 130 MB.
    let longest = if cfg!(miri) { 4 } else { RUN_CHUNKS_MAX };
    let runs: Vec<_> = (1..=longest).map(|count| take(count).unwrap().0).collect();
    for (count, &first) in (1..).zip(&runs) {
        let start = ChunkHeader::chunk_start(first);
        assert!(is_ours(start.addr().get()));
        // SAFETY: the run is ours, `count` chunks long.
        unsafe {
            assert_eq!(usize::from(first.as_ref().chunk_count()), count);
            assert_eq!(ChunkHeader::of(start.add(CHUNK_BYTES - 1)), first);
            start.write_bytes(count as u8, count * CHUNK_BYTES);
        }
    }
    for (count, &first) in (1..).zip(&runs) {
        let start = ChunkHeader::chunk_start(first);
        // SAFETY: as above.
        unsafe {
            assert_eq!(start.read(), count as u8);
            assert_eq!(start.add(count * CHUNK_BYTES - 1).read(), count as u8);
            give_back(
                first,
                if count % 2 == 0 {
                    GiveBack::Now
                } else {
                    GiveBack::Later
                },
            );
        }
    }
    let count = if cfg!(miri) { 1 } else { 7 };
    let (first, is_zero) = take(count).unwrap();
    let bytes = ChunkHeader::chunk_start(first);
    // SAFETY: the run is ours; fresh, or written by the loop above.
    unsafe {
        let all_zero = (0..count * CHUNK_BYTES).all(|offset| bytes.add(offset).read() == 0);
        assert!(!is_zero || all_zero);
        give_back(first, GiveBack::Now);
    }
}

/// Goal: the lock can be held across a fork and is usable afterwards.
#[test]
fn fork_guard_lets_go() {
    hold_for_fork();
    release_after_fork();
    let (first, _) = take(1).unwrap();
    // SAFETY: just taken.
    unsafe { give_back(first, GiveBack::Later) };
}

use super::*;

fn file(words: &[(usize, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<HeapFile>()];
    for &(offset, value) in words {
        bytes[offset..offset + WORD_BYTES].copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

/// Goal: a realloc that is under way while the lab reads takes nothing from the allocations of a
/// server that makes none. It once made eighteen quintillion of them.
#[test]
fn a_call_under_way_is_no_overflow() {
    let thread = offset_of!(HeapFile, threads) + size_of::<Thread>();
    let size = thread + offset_of!(Thread, sizes) + 24 * WORD_BYTES;
    let reallocations = thread + offset_of!(Thread, reallocations);
    let read = |bytes: &[u8]| HeapReading::parse(bytes, &|_| true).unwrap();
    let before = read(&file(&[(size, 5)]));
    // Counted as a reallocation, and not yet by its size.
    let during = read(&file(&[(size, 5), (reallocations, 1)]));
    let profile = during.profile_since(&before, 10, None);
    assert_eq!((profile.allocations, profile.reallocations), (0, 1));
}

/// Goal: the lab reads every word where the object writes it, adds threads up, and leaves out the
/// blocks of a dead process.
#[test]
fn a_file_is_read() {
    let thread = |index: usize, field: usize| {
        offset_of!(HeapFile, threads) + index * size_of::<Thread>() + field
    };
    let size = |index, class: usize| thread(index, offset_of!(Thread, sizes)) + class * WORD_BYTES;
    let process = |number: usize| {
        let at = offset_of!(HeapFile, processes) + number * size_of::<Process>();
        at + offset_of!(Process, pid)
    };
    let bucket = offset_of!(HeapFile, buckets) + 5 * size_of::<Bucket>();
    let key = |entry: usize| bucket + entry * WORD_BYTES;
    let block = |entry: usize| bucket + offset_of!(Bucket, blocks) + entry * size_of::<Block>();
    let header = |field: usize| offset_of!(HeapFile, header) + field;
    let lifetimes = offset_of!(HeapFile, lifetimes);
    let bytes = file(&[
        (header(offset_of!(Header, mean_bytes)), 1),
        (header(offset_of!(Header, attached)), 1),
        (size(0, 24), 7),
        (size(1023, 24), 3),
        (size(2, 100), 1),
        (thread(2, offset_of!(Thread, reallocations)), 1),
        (thread(3, offset_of!(Thread, frees)), 9),
        (thread(3, offset_of!(Thread, bytes)), 400),
        (process(1), 71),
        (process(2), 72),
        (key(0), 1 << 48 | 0x1230),
        (block(0), 100),
        (key(15), 2 << 48 | 0x1230),
        (block(15), 900),
        (key(3), BUSY),
        (lifetimes + 10 * WORD_BYTES, 4 * WEIGHT_PARTS),
        (
            lifetimes + offset_of!(Lifetimes, bytes) + 10 * WORD_BYTES,
            64,
        ),
        (lifetimes + offset_of!(Lifetimes, crossed), WEIGHT_PARTS),
    ]);
    let reading = HeapReading::parse(&bytes, &|pid| pid == 71).unwrap();
    let calls = HeapCalls {
        allocations: 10,
        reallocations: 1,
        frees: 9,
        requested_bytes: 400,
        processes: 1,
    };
    assert_eq!(reading.calls, calls);
    let profile = reading.profile_since(&HeapReading::default(), 5, Some(300));
    let (from_bytes, to_bytes) = class_bounds(24);
    assert_eq!(
        profile.sizes[0],
        SizeClass {
            from_bytes,
            to_bytes,
            calls: 10
        }
    );
    assert_eq!((profile.live_bytes, profile.live_blocks), (100, 1));
    assert_eq!(profile.fragmentation, Some(3.0));
    assert_eq!(profile.cross_thread_share, Some(0.25));
    let lifetime = profile.lifetimes[0];
    assert_eq!((lifetime.from_ns, lifetime.to_ns), (512, 1023));
    assert_eq!((lifetime.blocks, lifetime.bytes), (4.0, 64.0));
    let nothing = reading.profile_since(&reading, 5, None);
    assert!(nothing.sizes.is_empty() && nothing.lifetimes.is_empty());
    let both = HeapReading::parse(&bytes, &|_| true).unwrap();
    assert_eq!(both.profile_since(&both, 1, None).live_bytes, 1000);
    assert_eq!(HeapReading::parse(&bytes[1..], &|_| true), None);
}

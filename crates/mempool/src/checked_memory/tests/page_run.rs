use super::*;

/// Goal: blocks are aligned, usable to the last byte, have their canaries' room, and a guarded
/// one ends less than its alignment before the guard page.
#[test]
fn runs_hold_their_block() {
    let page_bytes = rustix::param::page_size();
    for is_guarded in [false, true] {
        for align_bytes in (0..19).map(|shift| 1 << shift) {
            for size_bytes in [1, 16, 100, page_bytes - 16, page_bytes, 3 * page_bytes + 1] {
                let (run, block) = PageRun::map(size_bytes, align_bytes, is_guarded).unwrap();
                let (data, data_bytes) = run.data();
                let data_start = data.addr().get();
                let data_end = data_start + data_bytes;
                let start = block.addr().get();
                assert!(start.is_multiple_of(align_bytes));
                assert!(start - data_start >= CANARY_BYTES_MIN);
                let behind_bytes = data_end - start - size_bytes;
                if is_guarded {
                    assert!(behind_bytes < align_bytes);
                } else {
                    assert!(behind_bytes >= CANARY_BYTES_MIN);
                }
                // SAFETY: the data pages are this test's.
                unsafe {
                    data.write_bytes(7, data_bytes);
                    assert_eq!(block.add(size_bytes - 1).read(), 7);
                    run.release();
                }
            }
        }
    }
    assert!(PageRun::map(usize::MAX - 5, 16, true).is_err());
    assert!(PageRun::map(1 << 62, 16, false).is_err());
}

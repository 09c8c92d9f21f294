use super::*;

/// Goal: for every size the table of sizes picks what a search of the table of classes picks.
#[test]
fn every_size_gets_the_smallest_class_that_holds_it() {
    for size_bytes in (0..=POOLED_BYTES_MAX).step_by(if cfg!(miri) { 241 } else { 1 }) {
        let holds = |&block_bytes: &u32| block_bytes as usize >= size_bytes;
        let found = BLOCK_BYTES.iter().position(holds);
        assert_eq!(
            Some(SizeClass::of(size_bytes).index()),
            found,
            "{size_bytes} bytes"
        );
    }
    assert_eq!(SizeClass::DIRECT.block_bytes(), None);
}

/// Goal: a round size and a small header need hardly more than they take.
#[test]
fn a_header_before_a_round_size_does_not_cost_a_step() {
    for shift in 8..15 {
        let asked_bytes = (1 << shift) + 16;
        let block_bytes = SizeClass::of(asked_bytes).block_bytes().unwrap();
        let waste_bytes = block_bytes - asked_bytes;
        assert!(waste_bytes * 32 < asked_bytes, "{asked_bytes} bytes");
    }
}

/// Goal: the same with an alignment, for every power of two a chunk can keep.
#[test]
fn aligned_requests_get_the_smallest_class_that_fits() {
    for shift in 0..=POOLED_BYTES_MAX.ilog2() {
        let align_bytes = 1 << shift;
        for size_bytes in (0..=POOLED_BYTES_MAX).step_by(if cfg!(miri) { 1999 } else { 61 }) {
            let fits = |&block_bytes: &u32| {
                let block_bytes = block_bytes as usize;
                block_bytes >= size_bytes && block_bytes.is_multiple_of(align_bytes)
            };
            let found = BLOCK_BYTES.iter().position(fits);
            let class = SizeClass::of_aligned(size_bytes, align_bytes);
            assert_eq!(Some(class.index()), found, "{size_bytes} at {align_bytes}");
        }
    }
}

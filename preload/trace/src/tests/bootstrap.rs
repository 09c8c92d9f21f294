use super::*;

/// Goal: blocks are aligned, apart, zero, recognised, and remember their size.
#[test]
fn blocks_do_not_overlap_and_know_their_size() {
    let first = allocate(24);
    let second = allocate_aligned(PAGE_BYTES, 100);
    let third = allocate(0);
    assert!(owns(first) && owns(second) && owns(third));
    assert!((first as usize).is_multiple_of(16));
    assert!((second as usize).is_multiple_of(PAGE_BYTES));
    assert!(second as usize >= first as usize + 24);
    assert!(third as usize >= second as usize + 100);
    // SAFETY: the blocks came from `allocate` just above.
    unsafe {
        assert_eq!(block_bytes(first), 24);
        assert_eq!(block_bytes(second), 100);
        assert_eq!(core::slice::from_raw_parts(first.cast::<u8>(), 24), [0; 24]);
    }
    let on_stack = 0_u8;
    assert!(!owns((&raw const on_stack).cast()));
    assert!(!owns(ptr::null()));
    assert!(
        allocate(CAPACITY_BYTES).is_null(),
        "more than what is left is refused"
    );
}
